#include "chat/text.h"

#include <utf8proc.h>

#include <algorithm>

#include "common/check.h"

namespace nacre::chat {
namespace {

bool IsContinuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace

size_t Text::length() const {
  if (ascii) return bytes.size();
  return bytes.size() -
         std::count_if(bytes.begin(), bytes.end(), IsContinuation);
}

size_t Text::ByteOffset(size_t index) const {
  if (ascii) return index;
  size_t offset = 0;
  for (; offset < bytes.size(); ++offset) {
    if (IsContinuation(bytes[offset])) continue;
    if (index == 0) break;
    --index;
  }
  return offset;
}

bool TextBuilder::Fits(size_t size) {
  if (overflowed_ || size > max_bytes_ - bytes_.size()) overflowed_ = true;
  return !overflowed_;
}

void TextBuilder::Mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!user_.empty() && user_.back().end == begin) {
    user_.back().end = end;
  } else {
    user_.push_back({begin, end});
  }
}

void TextBuilder::Append(std::string_view bytes, bool user) {
  if (!Fits(bytes.size())) return;
  if (user) Mark(bytes_.size(), bytes_.size() + bytes.size());
  bytes_.append(bytes);
}

void TextBuilder::Append(const Text& text, size_t begin, size_t end) {
  if (!Fits(end - begin)) return;
  const size_t base = bytes_.size();
  bytes_.append(text.bytes, begin, end - begin);
  // The first range that ends after `begin`.
  auto range = std::upper_bound(
      text.user.begin(), text.user.end(), begin,
      [](size_t offset, const TextRange& r) { return offset < r.end; });
  for (; range != text.user.end() && range->begin < end; ++range) {
    Mark(base + std::max(range->begin, begin) - begin,
         base + std::min(range->end, end) - begin);
  }
}

char32_t CodePointAt(std::string_view text, size_t offset, size_t* size) {
  utf8proc_int32_t code_point = 0;
  const auto read = utf8proc_iterate(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data() + offset),
      static_cast<utf8proc_ssize_t>(text.size() - offset), &code_point);
  NACRE_CHECK(read > 0, "a text is no UTF-8");
  *size = static_cast<size_t>(read);
  return static_cast<char32_t>(code_point);
}

void AppendCodePoint(char32_t code_point, std::string* text) {
  utf8proc_uint8_t bytes[4];
  const auto size =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  text->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

size_t FindBadUtf8(std::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    if (static_cast<unsigned char>(text[offset]) < 0x80) {
      ++offset;
      continue;
    }
    utf8proc_int32_t code_point = 0;
    const auto read = utf8proc_iterate(
        reinterpret_cast<const utf8proc_uint8_t*>(text.data() + offset),
        static_cast<utf8proc_ssize_t>(text.size() - offset), &code_point);
    if (read <= 0) return offset;
    offset += static_cast<size_t>(read);
  }
  return std::string_view::npos;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char byte) {
    return static_cast<unsigned char>(byte) < 0x80;
  });
}

}  // namespace nacre::chat
