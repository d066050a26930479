#include "telemetry/trace_context.h"

#include <algorithm>
#include <random>

namespace nacre::telemetry {
namespace {

// Lower case only, as the specification has it. -1 for anything else.
int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

template <size_t kSize>
bool ReadHex(absl::string_view text, std::array<uint8_t, kSize>* bytes) {
  if (text.size() != 2 * kSize) return false;
  for (size_t i = 0; i < kSize; ++i) {
    const int high = HexDigit(text[2 * i]);
    const int low = HexDigit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    (*bytes)[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

template <typename Id>
bool IsZero(const Id& id) {
  return id == Id{};
}

template <typename Id>
Id RandomId() {
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    return std::mt19937_64((uint64_t{device()} << 32) | device());
  }();
  Id id{};
  while (IsZero(id)) {
    for (uint8_t& byte : id) byte = static_cast<uint8_t>(random() >> 56);
  }
  return id;
}

}  // namespace

absl::optional<SpanContext> ParseTraceparent(absl::string_view header) {
  constexpr size_t kLength = 55;
  if (header.size() < kLength || header[2] != '-' || header[35] != '-' ||
      header[52] != '-') {
    return absl::nullopt;
  }
  SpanContext context;
  std::array<uint8_t, 1> version{}, flags{};
  if (!ReadHex(header.substr(0, 2), &version) ||
      !ReadHex(header.substr(3, 32), &context.trace_id) ||
      !ReadHex(header.substr(36, 16), &context.span_id) ||
      !ReadHex(header.substr(53, 2), &flags) || version[0] == 0xff ||
      IsZero(context.trace_id) || IsZero(context.span_id)) {
    return absl::nullopt;
  }
  if (header.size() > kLength && (version[0] == 0 || header[kLength] != '-')) {
    return absl::nullopt;
  }
  context.sampled = (flags[0] & 1) != 0;
  return context;
}

TraceId NewTraceId() { return RandomId<TraceId>(); }
SpanId NewSpanId() { return RandomId<SpanId>(); }

bool IsSampled(const TraceId& trace_id, double ratio) {
  if (ratio >= 1.0) return true;
  uint64_t low = 0;
  for (size_t i = 8; i < trace_id.size(); ++i) low = low << 8 | trace_id[i];
  // 53 bits: what a double holds exactly.
  return static_cast<double>(low >> 11) * 0x1p-53 < ratio;
}

}  // namespace nacre::telemetry
