#include "tokenizer/class_reader.h"

#include <utf8proc.h>

#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/status_macros.h"

namespace nacre::tokenizer {
namespace {

// Whether no other character equals `c` when case is ignored.
bool IsUncased(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_SO:
    case UTF8PROC_CATEGORY_CN:
      return false;
    default:
      return true;
  }
}

}  // namespace

// The two libraries agree on the case of ASCII only.
absl::Status ClassReader::CheckCase(char32_t first, char32_t last) const {
  if (!options_.ignore_case || last < 0x80) return absl::OkStatus();
  if (first == last && IsUncased(first)) return absl::OkStatus();
  return Unsupported("a character beyond ASCII under (?i)");
}

absl::StatusOr<std::optional<CharacterSet>> ClassReader::SetEscape(
    bool in_class) {
  const char c = pattern_[pos_];
  if (in_class && options_.ignore_case &&
      absl::string_view("wWpP").find(c) != absl::string_view::npos) {
    return Unsupported("a property in brackets under (?i)");
  }
  // Without braces \p is the letter.
  if (Ahead("p{") || Ahead("P{")) {
    ++pos_;
    NACRE_ASSIGN_OR_RETURN(CharacterSet set, Property(c == 'P'));
    return set;
  }
  CharacterSet set(additions_);
  switch (c) {
    case 'd':
    case 'D':
      (void)set.AddProperty("Nd");
      break;
    case 'h':
    case 'H':
      (void)set.AddPosixClass("xdigit");
      break;
    case 's':
      set.AddSpaces();
      break;
    case 'S':
      // In brackets a list joins what else is there.
      if (in_class) {
        set.AddNonSpaces();
      } else {
        set.AddSpaces();
      }
      break;
    case 'w':
    case 'W':
      set.AddWords();
      if (!in_class) set.AddLatinWords();
      break;
    default:
      return std::nullopt;
  }
  ++pos_;
  const bool negated =
      c == 'D' || c == 'H' || c == 'W' || (c == 'S' && !in_class);
  if (negated) set.Negate();
  return set;
}

absl::StatusOr<CharacterSet> ClassReader::Property(bool negated) {
  ++pos_;
  if (Accept("^")) negated = !negated;
  const size_t end = pattern_.find('}', pos_);
  if (end == absl::string_view::npos) return Invalid("'\\p{' without its '}'");
  const absl::string_view name = pattern_.substr(pos_, end - pos_);
  CharacterSet set(additions_);
  if (!set.AddProperty(name)) {
    return Unsupported(absl::StrCat("the property '", CutUtf8(name, 64), "'"));
  }
  pos_ = end + 1;
  if (negated) set.Negate();
  return set;
}

absl::StatusOr<char32_t> ClassReader::CharacterEscape(bool in_class) {
  const size_t begin = pos_;
  const char32_t c = Next();
  switch (c) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'v':
      return '\v';
    case 'f':
      return '\f';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'e':
      return 0x1B;
    case 'x':
    case 'u':
      --pos_;
      return HexEscape();
    case 'b':
      if (in_class) return '\b';
      break;
    default:
      break;
  }
  if (c >= '0' && c <= '7' && (in_class || c == '0')) {
    char32_t value = c - '0';
    for (int i = 1; i < 3 && !AtEnd(); ++i) {
      const char digit = pattern_[pos_];
      if (digit < '0' || digit > '7') break;
      value = value * 8 + (digit - '0');
      ++pos_;
    }
    if (value < 0x80) return value;
  } else if (c >= 0x80 || !absl::ascii_isalnum(static_cast<char>(c))) {
    return c;
  }
  const std::string text(pattern_.substr(begin, pos_ - begin));
  pos_ = begin;
  return Unsupported(absl::StrCat("'\\", text, "'"));
}

// \x{H...}, \xHH, \uHHHH
absl::StatusOr<char32_t> ClassReader::HexEscape() {
  const size_t begin = pos_;
  const bool four = pattern_[pos_] == 'u';
  ++pos_;
  const bool braces = !four && Accept("{");
  const size_t most = braces ? 8 : four ? 4 : 2;
  uint64_t value = 0;
  size_t digits = 0;
  while (digits < most && !AtEnd() && absl::ascii_isxdigit(pattern_[pos_])) {
    const char c = absl::ascii_tolower(pattern_[pos_++]);
    value = value * 16 + (absl::ascii_isdigit(c) ? c - '0' : c - 'a' + 10);
    ++digits;
  }
  // Without braces \x80 and above are bytes of a character, not a character.
  const bool whole = digits > 0 && (!four || digits == 4) &&
                     (!braces || Accept("}")) &&
                     (braces || four || value < 0x80);
  if (whole && value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF)) {
    return static_cast<char32_t>(value);
  }
  pos_ = begin;
  return Unsupported(
      absl::StrCat("'\\", CutUtf8(pattern_.substr(begin), 12), "'"));
}

absl::StatusOr<CharacterSet> ClassReader::Class() {
  if (++depth_ > kMaxDepth) {
    return Unsupported(absl::StrCat("nesting deeper than ", kMaxDepth));
  }
  ++pos_;
  const bool negated = Accept("^");
  std::optional<CharacterSet> operands;  // those before the last &&
  CharacterSet set(additions_);
  bool empty = true;
  bool after_range = false;
  // A bracket that comes first stands for itself.
  if (Ahead("]")) {
    if (pattern_.find(']', pos_ + 1) == absl::string_view::npos) {
      return Invalid("an empty class");
    }
    NACRE_RETURN_IF_ERROR(ClassRange(Next(), &set, &after_range));
    empty = false;
  }
  while (!Ahead("]")) {
    if (AtEnd()) return Invalid("a class without its ']'");
    if (Ahead("&&")) {
      if (empty || options_.ignore_case) {
        return Unsupported(empty ? "'&&' without a left side"
                                 : "'&&' under (?i)");
      }
      pos_ += 2;
      if (operands) {
        operands->Intersect(set);
      } else {
        operands = set;
      }
      set = CharacterSet(additions_);
      empty = true;
      after_range = false;
      continue;
    }
    NACRE_RETURN_IF_ERROR(
        ClassItem(after_range, empty && !operands, &set, &after_range));
    empty = false;
    if (set.size() > kMaxTranslatedBytes) {
      return Unsupported(
          absl::StrCat("a class of more than ", kMaxTranslatedBytes, " bytes"));
    }
  }
  if (empty) return Unsupported("'&&' without a right side");
  ++pos_;
  if (operands) {
    operands->Intersect(set);
    set = *std::move(operands);
  }
  if (negated) set.Negate();
  --depth_;
  return set;
}

absl::Status ClassReader::ClassItem(bool after_range, bool first,
                                    CharacterSet* set, bool* is_range) {
  *is_range = false;
  if (Ahead("[:")) return PosixClass(set);
  if (Ahead("[")) {
    if (options_.ignore_case) {
      return Unsupported("brackets in brackets under (?i)");
    }
    NACRE_ASSIGN_OR_RETURN(const CharacterSet inner, Class());
    set->Add(inner);
    return absl::OkStatus();
  }
  if (Ahead("-") && !first) {
    ++pos_;
    // After "a-z" the dash is itself; elsewhere it is if it comes last.
    if (!after_range && !Ahead("]")) {
      --pos_;
      return Unsupported("a '-' behind what begins no range");
    }
    set->AddRange('-', '-');
    return absl::OkStatus();
  }
  if (!Ahead("\\")) return ClassRange(Next(), set, is_range);
  ++pos_;
  if (AtEnd()) return Invalid("a '\\' without anything behind");
  NACRE_ASSIGN_OR_RETURN(const std::optional<CharacterSet> inner,
                         SetEscape(/*in_class=*/true));
  if (inner) {
    set->Add(*inner);
    return absl::OkStatus();
  }
  NACRE_ASSIGN_OR_RETURN(const char32_t c, CharacterEscape(/*in_class=*/true));
  return ClassRange(c, set, is_range);
}

// A character that was read, or the range that it begins.
absl::Status ClassReader::ClassRange(char32_t first, CharacterSet* set,
                                     bool* is_range) {
  char32_t last = first;
  if (Ahead("-") && !Ahead("-]")) {
    if (Ahead("-[") || Ahead("-&&")) {
      return Unsupported("a range that ends in no character");
    }
    ++pos_;
    if (AtEnd()) return Invalid("a class without its ']'");
    last = Next();
    if (last == '\\') {
      if (AtEnd()) return Invalid("a '\\' without anything behind");
      if (absl::string_view("dDhHsSwWpPR").find(pattern_[pos_]) !=
          absl::string_view::npos) {
        return Unsupported("a range that ends in no character");
      }
      NACRE_ASSIGN_OR_RETURN(last, CharacterEscape(/*in_class=*/true));
    }
    if (last < first) return Invalid("a range that counts down");
    *is_range = true;
  }
  NACRE_RETURN_IF_ERROR(CheckCase(first, last));
  set->AddRange(first, last);
  return absl::OkStatus();
}

absl::Status ClassReader::PosixClass(CharacterSet* set) {
  const size_t end = pattern_.find(":]", pos_ + 2);
  if (end == absl::string_view::npos) return Unsupported("'[:' in brackets");
  if (options_.ignore_case) return Unsupported("'[:' under (?i)");
  absl::string_view name = pattern_.substr(pos_ + 2, end - pos_ - 2);
  const bool negated = name.substr(0, 1) == "^";
  if (negated) name.remove_prefix(1);
  CharacterSet inner(additions_);
  if (!inner.AddPosixClass(name)) {
    return Unsupported(absl::StrCat("'[:", CutUtf8(name, 32), ":]'"));
  }
  pos_ = end + 2;
  if (negated) inner.Negate();
  set->Add(inner);
  return absl::OkStatus();
}

}  // namespace nacre::tokenizer
