#include "tests/testing/gguf_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/dtype.h"
#include "model/quantized/dequantize.h"
#include "tests/testing/gguf_writer.h"

namespace nacre::gguf {
namespace {

float Largest(absl::Span<const float> values) {
  float largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// value / step in [least, most].
int Rounded(float value, float step, int least, int most) {
  if (step == 0) return std::clamp(0, least, most);
  const float steps = std::nearbyint(value / step);
  return static_cast<int>(
      std::clamp(steps, static_cast<float>(least), static_cast<float>(most)));
}

// Appends it; *value becomes what is stored.
void AppendF16(float* value, std::string* to) {
  const uint16_t bits = model::RoundToF16(*value);
  *to += GgufWriter::Raw(bits);
  *value = kernels::FromF16(bits);
}

void AppendQ4_K(absl::Span<const float> values, std::string* to) {
  constexpr size_t kGroups = 8, kEach = 32;
  float steps[kGroups], offsets[kGroups];
  for (size_t g = 0; g < kGroups; ++g) {
    const auto group = values.subspan(g * kEach, kEach);
    const auto [least, most] = std::minmax_element(group.begin(), group.end());
    offsets[g] = std::max(0.0f, -*least);
    steps[g] = std::max(0.0f, *most + offsets[g]) / 15;
  }
  float scale = Largest(steps) / 63, offset_scale = Largest(offsets) / 63;
  AppendF16(&scale, to);
  AppendF16(&offset_scale, to);
  uint8_t packed[12] = {};
  uint8_t integers[256];
  for (size_t g = 0; g < kGroups; ++g) {
    const int step = Rounded(steps[g], scale, 0, 63);
    const int offset = Rounded(offsets[g], offset_scale, 0, 63);
    if (g < 4) {
      packed[g] |= static_cast<uint8_t>(step);
      packed[g + 4] |= static_cast<uint8_t>(offset);
    } else {
      packed[g + 4] = static_cast<uint8_t>((step & 15) | (offset & 15) << 4);
      packed[g - 4] |= static_cast<uint8_t>(step >> 4 << 6);
      packed[g] |= static_cast<uint8_t>(offset >> 4 << 6);
    }
    for (size_t i = g * kEach; i < (g + 1) * kEach; ++i) {
      integers[i] = static_cast<uint8_t>(
          Rounded(values[i] + offset_scale * static_cast<float>(offset),
                  scale * static_cast<float>(step), 0, 15));
    }
  }
  to->append(reinterpret_cast<const char*>(packed), sizeof(packed));
  for (size_t i = 0; i < 256; i += 64) {
    for (size_t j = i; j < i + 32; ++j) {
      *to += static_cast<char>(integers[j] | integers[j + 32] << 4);
    }
  }
}

void AppendQ6_K(absl::Span<const float> values, std::string* to) {
  constexpr size_t kGroups = 16, kEach = 16;
  float steps[kGroups];
  for (size_t g = 0; g < kGroups; ++g) {
    steps[g] = Largest(values.subspan(g * kEach, kEach)) / 31;
  }
  std::string end;
  float scale = Largest(steps) / 127;
  AppendF16(&scale, &end);
  std::string packed_steps;
  uint8_t integers[256];
  for (size_t g = 0; g < kGroups; ++g) {
    const int step = Rounded(steps[g], scale, 0, 127);
    packed_steps += static_cast<char>(step);
    for (size_t i = g * kEach; i < (g + 1) * kEach; ++i) {
      integers[i] = static_cast<uint8_t>(
          32 + Rounded(values[i], scale * static_cast<float>(step), -32, 31));
    }
  }
  for (size_t i = 0; i < 256; i += 128) {
    for (size_t j = i; j < i + 64; ++j) {
      *to +=
          static_cast<char>((integers[j] & 15) | (integers[j + 64] & 15) << 4);
    }
  }
  for (size_t i = 0; i < 256; i += 128) {
    for (size_t j = i; j < i + 32; ++j) {
      *to += static_cast<char>(integers[j] >> 4 | integers[j + 32] >> 4 << 2 |
                               integers[j + 64] >> 4 << 4 |
                               integers[j + 96] >> 4 << 6);
    }
  }
  *to += packed_steps + end;
}

}  // namespace

std::string F16(absl::Span<const float> values) {
  std::string bytes;
  for (float value : values) AppendF16(&value, &bytes);
  return bytes;
}

std::string Q8_0(absl::Span<const float> values) {
  std::string bytes;
  for (size_t i = 0; i < values.size(); i += 32) {
    const auto block = values.subspan(i, 32);
    float scale = Largest(block) / 127;
    AppendF16(&scale, &bytes);
    for (const float value : block) {
      bytes += static_cast<char>(Rounded(value, scale, -127, 127));
    }
  }
  return bytes;
}

std::string Q4_K(absl::Span<const float> values) {
  std::string bytes;
  for (size_t i = 0; i < values.size(); i += 256) {
    AppendQ4_K(values.subspan(i, 256), &bytes);
  }
  return bytes;
}

std::string Q6_K(absl::Span<const float> values) {
  std::string bytes;
  for (size_t i = 0; i < values.size(); i += 256) {
    AppendQ6_K(values.subspan(i, 256), &bytes);
  }
  return bytes;
}

}  // namespace nacre::gguf
