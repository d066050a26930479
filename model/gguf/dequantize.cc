#include "model/gguf/dequantize.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace nacre::model {
namespace {

using kernels::DType;

// ggml's numbers of types.
enum TypeId : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ6_K = 14,
  kBF16 = 30,
};

float HalfAt(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return kernels::FromF16(bits);
}

// A scale, then 32 integers.
void BlockQ8_0(const uint8_t* block, float* values) {
  const float scale = HalfAt(block);
  for (int i = 0; i < 32; ++i) {
    values[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * scale;
  }
}

// A scale, then 16 bytes of two integers: the lower halves come first.
void BlockQ4_0(const uint8_t* block, float* values) {
  const float scale = HalfAt(block);
  for (int i = 0; i < 16; ++i) {
    const int byte = block[2 + i];
    values[i] = scale * static_cast<float>((byte & 15) - 8);
    values[16 + i] = scale * static_cast<float>((byte >> 4) - 8);
  }
}

// Two scales of eight scales and eight minima of 6 bits each, then 128 bytes of
// two integers: 32 lower halves, 32 upper ones, and so on.
void BlockQ4_K(const uint8_t* block, float* values) {
  const float scale_of_scales = HalfAt(block);
  const float scale_of_minima = HalfAt(block + 2);
  const uint8_t* const packed = block + 4;
  const uint8_t* const integers = block + 16;
  for (int group = 0; group < 8; ++group) {
    int scale;
    int minimum;
    if (group < 4) {
      scale = packed[group] & 63;
      minimum = packed[4 + group] & 63;
    } else {
      // The upper two bits lie in those of the first four.
      scale = (packed[4 + group] & 15) | ((packed[group - 4] >> 2) & 48);
      minimum = (packed[4 + group] >> 4) | ((packed[group] >> 2) & 48);
    }
    const float step = scale_of_scales * static_cast<float>(scale);
    const float offset = scale_of_minima * static_cast<float>(minimum);
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int integer = (integers[group / 2 * 32 + i] >> shift) & 15;
      values[group * 32 + i] = step * static_cast<float>(integer) - offset;
    }
  }
}

// The lower four bits of 256 integers, their upper two, sixteen scales, and the
// scale of these.
void BlockQ6_K(const uint8_t* block, float* values) {
  const uint8_t* const scales = block + 192;
  const float scale_of_scales = HalfAt(block + 208);
  for (int group = 0; group < 8; ++group) {
    const int half = group / 4;
    const int part = group % 4;
    const uint8_t* const low = &block[half * 64 + part % 2 * 32];
    const uint8_t* const high = &block[128 + half * 32];
    for (int i = 0; i < 32; ++i) {
      const int integer = ((low[i] >> (part / 2 * 4)) & 15) |
                          ((high[i] >> (part * 2)) & 3) << 4;
      const int element = group * 32 + i;
      const float step =
          scale_of_scales *
          static_cast<float>(static_cast<int8_t>(scales[element / 16]));
      values[element] = step * static_cast<float>(integer - 32);
    }
  }
}

template <size_t kBytes, int kElements,
          void (*kBlock)(const uint8_t* block, float* values)>
void AllBlocks(absl::string_view blocks, float* values) {
  const auto* block = reinterpret_cast<const uint8_t*>(blocks.data());
  const uint8_t* const end = block + blocks.size();
  for (; block < end; block += kBytes, values += kElements) {
    kBlock(block, values);
  }
}

}  // namespace

std::optional<GgufElements> ElementsOf(const gguf::TensorType& type) {
  switch (type.id) {
    case kF32:
      return GgufElements{DType::kF32, nullptr};
    case kF16:
      return GgufElements{DType::kF16, nullptr};
    case kBF16:
      return GgufElements{DType::kBF16, nullptr};
    case kQ8_0:
      return GgufElements{DType::kF32, AllBlocks<34, 32, BlockQ8_0>};
    case kQ4_0:
      return GgufElements{DType::kF32, AllBlocks<18, 32, BlockQ4_0>};
    case kQ4_K:
      return GgufElements{DType::kF32, AllBlocks<144, 256, BlockQ4_K>};
    case kQ6_K:
      return GgufElements{DType::kF32, AllBlocks<210, 256, BlockQ6_K>};
    default:
      return std::nullopt;
  }
}

}  // namespace nacre::model
