#include "chat/string_units.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/ascii.h"
#include "chat/character_tables.h"
#include "chat/concat.h"
#include "chat/errors.h"
#include "chat/text.h"

namespace nacre::chat {
namespace {

utf8proc_category_t CategoryOf(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

template <size_t kSize>
bool InRanges(char32_t code_point, const CharacterRange (&ranges)[kSize]) {
  const auto range = std::lower_bound(
      std::begin(ranges), std::end(ranges), code_point,
      [](const CharacterRange& r, char32_t c) { return r.last < c; });
  return range != std::end(ranges) && range->first <= code_point;
}

template <size_t kSize>
const char* FindMapping(char32_t code_point,
                        const CharacterMapping (&mappings)[kSize]) {
  const auto mapping = std::lower_bound(
      std::begin(mappings), std::end(mappings), code_point,
      [](const CharacterMapping& m, char32_t c) { return m.from < c; });
  return mapping != std::end(mappings) && mapping->from == code_point
             ? mapping->to
             : nullptr;
}

// Unicode's Case_Ignorable, which decides about the final sigma.
bool IsCaseIgnorable(char32_t c) {
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x387 ||
             c == 0x55F || c == 0x5F4 || c == 0x2018 || c == 0x2019 ||
             c == 0x2024 || c == 0x2027 || c == 0xFE13 || c == 0xFE52 ||
             c == 0xFE55 || c == 0xFF07 || c == 0xFF0E || c == 0xFF1A;
  }
}

// The character that ends before `end`; *begin is set to where it begins.
char32_t CodePointBefore(std::string_view text, size_t end, size_t* begin) {
  *begin = end - 1;
  while ((static_cast<unsigned char>(text[*begin]) & 0xC0) == 0x80) --*begin;
  size_t size = 0;
  return CodePointAt(text, *begin, &size);
}

// Hexadecimal digits of an escape at `at`, `count` of them.
bool ReadHex(std::string_view text, size_t at, size_t count, uint32_t* value) {
  if (at + count > text.size()) return false;
  *value = 0;
  for (const char c : text.substr(at, count)) {
    if (!absl::ascii_isxdigit(c)) return false;
    *value =
        *value * 16 +
        (absl::ascii_isdigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10);
  }
  return true;
}

}  // namespace

bool IsSpace(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || (c >= 0x1C && c <= 0x20) || c == 0x85 ||
         c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::string_view StripSpace(std::string_view text, bool left, bool right) {
  size_t size = 0;
  while (left && !text.empty() && IsSpace(CodePointAt(text, 0, &size))) {
    text.remove_prefix(size);
  }
  while (right && !text.empty()) {
    size_t begin = 0;
    if (!IsSpace(CodePointBefore(text, text.size(), &begin))) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

bool IsLineEnd(char32_t c) {
  return (c >= 0xA && c <= 0xD) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
         c == 0x2028 || c == 0x2029;
}

bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsAlpha(char32_t c) {
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool IsDecimal(char32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_ND; }
bool IsDigit(char32_t c) { return IsDecimal(c) || InRanges(c, kOtherDigits); }

bool IsNumeric(char32_t c) {
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return InRanges(c, kOtherNumeric);
  }
}

bool IsUpper(char32_t c) {
  return CategoryOf(c) == UTF8PROC_CATEGORY_LU || InRanges(c, kOtherUpper);
}
bool IsLower(char32_t c) {
  return CategoryOf(c) == UTF8PROC_CATEGORY_LL || InRanges(c, kOtherLower);
}
bool IsTitle(char32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_LT; }

void AppendUpper(char32_t c, std::string* text) {
  if (const char* mapped = FindMapping(c, kLongUpper)) {
    text->append(mapped);
  } else {
    AppendCodePoint(static_cast<char32_t>(
                        utf8proc_toupper(static_cast<utf8proc_int32_t>(c))),
                    text);
  }
}

void AppendLower(char32_t c, std::string* text) {
  // The only character whose lower case is two.
  if (c == 0x130) {
    text->append("i\u0307");
  } else {
    AppendCodePoint(static_cast<char32_t>(
                        utf8proc_tolower(static_cast<utf8proc_int32_t>(c))),
                    text);
  }
}

void AppendTitle(char32_t c, std::string* text) {
  if (const char* mapped = FindMapping(c, kLongTitle)) {
    text->append(mapped);
  } else {
    AppendCodePoint(static_cast<char32_t>(
                        utf8proc_totitle(static_cast<utf8proc_int32_t>(c))),
                    text);
  }
}

bool IsFinalSigma(std::string_view text, size_t at) {
  char32_t c = 0;
  size_t before = at;
  do {
    if (before == 0) return false;
    c = CodePointBefore(text, before, &before);
  } while (IsCaseIgnorable(c));
  if (!IsCased(c)) return false;
  size_t size = 0;
  CodePointAt(text, at, &size);
  for (at += size; at < text.size(); at += size) {
    c = CodePointAt(text, at, &size);
    if (!IsCaseIgnorable(c)) return !IsCased(c);
  }
  return true;
}

bool IsTitleCase(std::string_view text) {
  bool any = false;
  bool after_cased = false;
  size_t size = 0;
  for (size_t at = 0; at < text.size(); at += size) {
    const char32_t c = CodePointAt(text, at, &size);
    const bool begins = IsUpper(c) || IsTitle(c);
    if (begins ? after_cased : IsLower(c) && !after_cased) return false;
    after_cased = begins || IsLower(c);
    any = any || after_cased;
  }
  return any;
}

absl::StatusOr<std::string> Unescape(std::string_view literal) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv";
  constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  std::string text;
  for (size_t at = 0; at < literal.size(); ++at) {
    if (literal[at] != '\\' || at + 1 == literal.size()) {
      text += literal[at];
      continue;
    }
    const char letter = literal[++at];
    if (const size_t known = kLetters.find(letter); known != kLetters.npos) {
      text += kMeanings[known];
    } else if (letter == '\n') {
      // The line goes on.
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      const size_t count = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
      uint32_t value = 0;
      if (!ReadHex(literal, at + 1, count, &value) || value > 0x10FFFF) {
        return absl::InvalidArgumentError(
            Concat("a string has a bad \\", std::string(1, letter)));
      }
      if (value >= 0xD800 && value <= 0xDFFF) {
        return Unsupported("a string has a surrogate");
      }
      AppendCodePoint(value, &text);
      at += count;
    } else if (letter >= '0' && letter <= '7') {
      uint32_t value = 0;
      size_t digits = 0;
      while (digits < 3 && at < literal.size() && literal[at] >= '0' &&
             literal[at] <= '7') {
        value = value * 8 + (literal[at] - '0');
        ++digits;
        ++at;
      }
      --at;
      AppendCodePoint(value, &text);
    } else if (letter == 'N') {
      return Unsupported("a string has \\N");
    } else {
      text += '\\';
      text += letter;
    }
  }
  return text;
}

}  // namespace nacre::chat
