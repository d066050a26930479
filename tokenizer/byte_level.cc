#include "tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

constexpr char32_t kFirstMapped = 0x100;
constexpr int kMappedCount = 68;  // bytes that are not printable by themselves

constexpr bool IsPrintable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

// Printable bytes stand for themselves, the others for U+0100 and up, in order.
constexpr std::array<char32_t, 256> MakeAlphabet() {
  std::array<char32_t, 256> alphabet{};
  char32_t next = kFirstMapped;
  for (int byte = 0; byte < 256; ++byte) {
    alphabet[byte] = IsPrintable(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return alphabet;
}

constexpr std::array<char32_t, 256> kAlphabet = MakeAlphabet();

constexpr std::array<uint8_t, kMappedCount> MakeMapped() {
  std::array<uint8_t, kMappedCount> mapped{};
  int next = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (!IsPrintable(byte)) mapped[next++] = static_cast<uint8_t>(byte);
  }
  return mapped;
}

constexpr std::array<uint8_t, kMappedCount> kMapped = MakeMapped();

}  // namespace

std::string EncodeByteLevel(absl::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 4);
  for (const char byte : bytes) {
    AppendUtf8(kAlphabet[static_cast<uint8_t>(byte)], &text);
  }
  return text;
}

std::string DecodeByteLevel(absl::string_view text) {
  std::string bytes;
  for (size_t offset = 0; offset < text.size();) {
    size_t size;
    const char32_t c = DecodeUtf8(text.substr(offset), &size);
    offset += size;
    if (c >= kFirstMapped && c < kFirstMapped + kMappedCount) {
      bytes.push_back(static_cast<char>(kMapped[c - kFirstMapped]));
    } else if (c < 256 && IsPrintable(static_cast<int>(c))) {
      bytes.push_back(static_cast<char>(c));
    } else {
      return std::string(text);
    }
  }
  return bytes;
}

}  // namespace nacre::tokenizer
