#include "tokenizer/utf8.h"

#include <utf8proc.h>

#include <cstdint>

#include "tokenizer/unicode_additions.h"

namespace nacre::tokenizer {
namespace {

uint8_t ByteAt(absl::string_view text, size_t i) {
  return static_cast<uint8_t>(text[i]);
}

}  // namespace

Utf8Prefix ScanUtf8(absl::string_view text) {
  const uint8_t lead = ByteAt(text, 0);
  if (lead < 0x80) return {Utf8State::kComplete, 1};
  size_t length;
  // The range of the second byte excludes overlong forms, surrogates and what
  // lies above U+10FFFF (Unicode standard, table 3-7).
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Utf8State::kInvalid, 1};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8State::kIncomplete, i};
    const uint8_t byte = ByteAt(text, i);
    if (byte < low || byte > high) return {Utf8State::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8State::kComplete, length};
}

size_t FindInvalidUtf8(absl::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    const Utf8Prefix prefix = ScanUtf8(text.substr(offset));
    if (prefix.state != Utf8State::kComplete) return offset;
    offset += prefix.size;
  }
  return absl::string_view::npos;
}

char32_t DecodeUtf8(absl::string_view text, size_t* size) {
  const uint8_t lead = ByteAt(text, 0);
  if (lead < 0x80) {
    *size = 1;
    return lead;
  }
  *size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t code_point = lead & (0xFF >> (*size + 1));
  for (size_t i = 1; i < *size; ++i) {
    code_point = (code_point << 6) | (ByteAt(text, i) & 0x3F);
  }
  return code_point;
}

char32_t DecodeLastUtf8(absl::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (ByteAt(text, begin) & 0xC0) == 0x80) --begin;
  size_t size;
  return DecodeUtf8(text.substr(begin), &size);
}

absl::string_view CutUtf8(absl::string_view text, size_t size) {
  if (text.size() <= size) return text;
  while (size > 0 && (ByteAt(text, size) & 0xC0) == 0x80) --size;
  return text.substr(0, size);
}

void AppendUtf8(char32_t c, std::string* text) {
  if (c < 0x80) {
    text->push_back(static_cast<char>(c));
    return;
  }
  const int tail = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr uint8_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
  text->push_back(static_cast<char>(kLead[tail] | (c >> (6 * tail))));
  for (int i = tail - 1; i >= 0; --i) {
    text->push_back(static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3F)));
  }
}

bool IsWhitespace(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsWordCharacter(char32_t c) {
  if (const UnicodeAddition* const row = FindUnicodeAddition(c)) {
    return row->category <= kMe || row->category == kNd ||
           row->category == kNl || row->category == kPc;
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  // Join_Control, and the enclosed letters that count as alphabetic.
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

void Utf8Assembler::Append(absl::string_view bytes, std::string* text) {
  pending_.append(bytes.data(), bytes.size());
  Drain(/*finished=*/false, text);
}

void Utf8Assembler::Finish(std::string* text) {
  Drain(/*finished=*/true, text);
}

void Utf8Assembler::Drain(bool finished, std::string* text) {
  size_t offset = 0;
  while (offset < pending_.size()) {
    const absl::string_view rest = absl::string_view(pending_).substr(offset);
    const Utf8Prefix prefix = ScanUtf8(rest);
    if (prefix.state == Utf8State::kComplete) {
      text->append(rest.data(), prefix.size);
      offset += prefix.size;
      continue;
    }
    if (prefix.state == Utf8State::kIncomplete && !finished) break;
    text->append(kReplacementCharacter);
    offset += replacement_ == Replacement::kPerByte ? 1 : prefix.size;
  }
  pending_.erase(0, offset);
}

}  // namespace nacre::tokenizer
