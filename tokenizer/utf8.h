// UTF-8: scanning one character, validity, and assembling text from single
// bytes. Pure functions; Utf8Assembler is used by one thread at a time.

#ifndef TOKENIZER_UTF8_H_
#define TOKENIZER_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace nacre::tokenizer {

// U+FFFD, what undecodable bytes are shown as.
inline constexpr char kReplacementCharacter[] = "\xEF\xBF\xBD";

enum class Utf8State {
  kComplete,    // a whole character of `size` bytes
  kIncomplete,  // all `size` bytes may begin a character, the rest is missing
  kInvalid,     // the first `size` bytes begin no character (the "maximal
                // subpart" of the Unicode standard, 3.9); size >= 1
};

struct Utf8Prefix {
  Utf8State state;
  size_t size;  // bytes
};

// Looks at the first character of `text`, which must not be empty.
Utf8Prefix ScanUtf8(absl::string_view text);

// Offset of the first byte that is not valid UTF-8, or npos.
size_t FindInvalidUtf8(absl::string_view text);

// Code point of the first character of valid, non-empty `text`; *size is set to
// its length in bytes.
char32_t DecodeUtf8(absl::string_view text, size_t* size);

// Code point of the last character of valid, non-empty `text`.
char32_t DecodeLastUtf8(absl::string_view text);

// The longest beginning of valid `text` that has at most `size` bytes and ends
// after a whole character.
absl::string_view CutUtf8(absl::string_view text, size_t size);

void AppendUtf8(char32_t code_point, std::string* text);

// Classes of the regex crate's \s and \w (Unicode White_Space and UTS #18).
bool IsWhitespace(char32_t code_point);
bool IsWordCharacter(char32_t code_point);

// Turns a stream of bytes into valid UTF-8. Holds back at most three bytes.
class Utf8Assembler {
 public:
  // How many U+FFFD an invalid sequence becomes: one for each byte
  // (SentencePiece) or one for each maximal subpart (Rust's from_utf8_lossy).
  enum class Replacement { kPerByte, kPerSubpart };

  explicit Utf8Assembler(Replacement replacement) : replacement_(replacement) {}

  // Adds bytes; appends to *text what is now decided.
  void Append(absl::string_view bytes, std::string* text);
  // No byte follows: the bytes held back are invalid.
  void Finish(std::string* text);

 private:
  void Drain(bool finished, std::string* text);

  Replacement replacement_;
  std::string pending_;
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_UTF8_H_
