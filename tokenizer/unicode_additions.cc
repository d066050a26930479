#include "tokenizer/unicode_additions.h"

#include <algorithm>
#include <bitset>
#include <cstring>

#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

// Blocks of 256 characters.
using Pages = std::bitset<0x1100>;

template <typename Row>
Pages PagesOf(const Row* rows, size_t count) {
  Pages pages;
  for (size_t i = 0; i < count; ++i) {
    for (char32_t page = rows[i].first >> 8; page <= rows[i].last >> 8;
         ++page) {
      pages.set(page);
    }
  }
  return pages;
}

template <typename Row>
const Row* FindRow(const Row* rows, size_t count, char32_t c) {
  const Row* const row =
      std::lower_bound(rows, rows + count, c,
                       [](const Row& r, char32_t x) { return r.last < x; });
  return row != rows + count && row->first <= c ? row : nullptr;
}

const Pages& AdditionPages() {
  static const Pages kPages = PagesOf(kUnicodeAdditions, kUnicodeAdditionCount);
  return kPages;
}

}  // namespace

const UnicodeAddition* FindUnicodeAddition(char32_t code_point) {
  if (!AdditionPages().test(code_point >> 8)) return nullptr;
  return FindRow(kUnicodeAdditions, kUnicodeAdditionCount, code_point);
}

bool HasUnicodeAddition(absl::string_view text) {
  const Pages& pages = AdditionPages();
  size_t i = 0;
  while (i < text.size()) {
    uint64_t eight;
    if (i + sizeof(eight) <= text.size()) {
      std::memcpy(&eight, text.data() + i, sizeof(eight));
      if ((eight & 0x8080808080808080) == 0) {
        i += sizeof(eight);
        continue;
      }
    }
    // Below U+0800, where characters have at most two bytes, is no entry.
    if (static_cast<uint8_t>(text[i]) < 0xE0) {
      ++i;
      continue;
    }
    size_t size;
    const char32_t c = DecodeUtf8(text.substr(i), &size);
    if (pages.test(c >> 8) && FindUnicodeAddition(c) != nullptr) return true;
    i += size;
  }
  return false;
}

bool IsInert(char32_t code_point) {
  static const Pages kPages = PagesOf(kInertRanges, kInertRangeCount);
  return kPages.test(code_point >> 8) &&
         FindRow(kInertRanges, kInertRangeCount, code_point) != nullptr;
}

char32_t AddedLowercase(char32_t code_point) {
  const CaseAddition* const row =
      FindRow(kLowercaseAdditions, kLowercaseAdditionCount, code_point);
  return row == nullptr ? code_point : code_point + row->offset;
}

}  // namespace nacre::tokenizer
