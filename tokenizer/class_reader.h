// Reads the part of an Oniguruma pattern that stands for one character: a class
// in brackets, an escape. Base of the translator; one pattern, one thread.

#ifndef TOKENIZER_CLASS_READER_H_
#define TOKENIZER_CLASS_READER_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tokenizer/character_set.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {

// Longer translations are refused.
inline constexpr size_t kMaxTranslatedBytes = size_t{1} << 20;

class ClassReader {
 protected:
  struct Options {
    bool ignore_case = false;
    bool dot_all = false;  // "m"
    bool extended = false;
  };
  // Groups inside groups and classes inside classes.
  static constexpr int kMaxDepth = 64;

  ClassReader(absl::string_view pattern, bool additions)
      : pattern_(pattern), additions_(additions) {}

  // Each reads from pos_ on, which errors name.
  absl::StatusOr<CharacterSet> Class();
  // \d, \p{L} and the like; the backslash is read. Nothing: it is none.
  absl::StatusOr<std::optional<CharacterSet>> SetEscape(bool in_class);
  // A single character; the backslash is read.
  absl::StatusOr<char32_t> CharacterEscape(bool in_class);

  // The two libraries agree on the case of ASCII only.
  absl::Status CheckCase(char32_t first, char32_t last) const;

  bool AtEnd() const { return pos_ >= pattern_.size(); }
  bool Ahead(absl::string_view text) const {
    return !AtEnd() && pattern_.substr(pos_, text.size()) == text;
  }
  bool Accept(absl::string_view text) {
    if (!Ahead(text)) return false;
    pos_ += text.size();
    return true;
  }
  char32_t Next() {
    size_t size;
    const char32_t c = DecodeUtf8(pattern_.substr(pos_), &size);
    pos_ += size;
    return c;
  }
  absl::Status Invalid(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(what, " at byte ", pos_));
  }
  absl::Status Unsupported(absl::string_view what) const {
    return absl::UnimplementedError(absl::StrCat(what, " at byte ", pos_));
  }

  absl::string_view pattern_;  // valid UTF-8
  bool additions_;
  size_t pos_ = 0;
  Options options_;
  int depth_ = 0;

 private:
  absl::Status ClassItem(bool after_range, bool first, CharacterSet* set,
                         bool* is_range);
  absl::Status ClassRange(char32_t first, CharacterSet* set, bool* is_range);
  absl::Status PosixClass(CharacterSet* set);
  absl::StatusOr<CharacterSet> Property(bool negated);
  absl::StatusOr<char32_t> HexEscape();
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_CLASS_READER_H_
