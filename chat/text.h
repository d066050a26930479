// A string of a template, which remembers which of its bytes the user wrote.
//
// Texts are immutable once built; a builder is used by one thread at a time.

#ifndef CHAT_TEXT_H_
#define CHAT_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/chat_template.h"

namespace nacre::chat {

// Everything that a render allocates and its heap frees at its end.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

struct Text : Object {
  std::string bytes;            // valid UTF-8
  std::vector<TextRange> user;  // sorted, disjoint, not adjacent
  bool ascii = true;
  bool safe = false;  // the result of the filter "safe"

  // Python counts code points.
  size_t length() const;
  // The byte at which code point `index` begins; `index` <= length().
  size_t ByteOffset(size_t index) const;
  bool any_user() const { return !user.empty(); }
};

// Appends parts of texts, each with the marks of its bytes.
class TextBuilder {
 public:
  // Appends beyond `max_bytes` are dropped and remembered.
  explicit TextBuilder(size_t max_bytes) : max_bytes_(max_bytes) {}

  void Append(std::string_view bytes, bool user = false);
  void Append(const Text& text, size_t begin, size_t end);
  void Append(const Text& text) { Append(text, 0, text.bytes.size()); }

  size_t size() const { return bytes_.size(); }
  bool overflowed() const { return overflowed_; }
  std::string TakeBytes() { return std::move(bytes_); }
  std::vector<TextRange> TakeUser() { return std::move(user_); }

 private:
  bool Fits(size_t size);
  void Mark(size_t begin, size_t end);

  size_t max_bytes_;
  bool overflowed_ = false;
  std::string bytes_;
  std::vector<TextRange> user_;
};

// The code point at `offset` of valid UTF-8; *size is set to its bytes.
char32_t CodePointAt(std::string_view text, size_t offset, size_t* size);
void AppendCodePoint(char32_t code_point, std::string* text);
// The offset of the first byte that is no UTF-8, or npos.
size_t FindBadUtf8(std::string_view text);
// All bytes are below 128.
bool IsAscii(std::string_view text);

}  // namespace nacre::chat

#endif  // CHAT_TEXT_H_
