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
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
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

// A scale, a minimum, then integers as of Q4_0.
void BlockQ4_1(const uint8_t* block, float* values) {
  const float scale = HalfAt(block);
  const float minimum = HalfAt(block + 2);
  for (int i = 0; i < 16; ++i) {
    const int byte = block[4 + i];
    values[i] = scale * static_cast<float>(byte & 15) + minimum;
    values[16 + i] = scale * static_cast<float>(byte >> 4) + minimum;
  }
}

// The 32 integers of 5 bits: their fifth bits, one after another, then the
// other four as of Q4_0.
void FiveBits(const uint8_t* packed, int* integers) {
  uint32_t fifth;
  std::memcpy(&fifth, packed, sizeof(fifth));
  for (int i = 0; i < 16; ++i) {
    const int byte = packed[4 + i];
    integers[i] = (byte & 15) | static_cast<int>(fifth >> i & 1) << 4;
    integers[16 + i] = (byte >> 4) | static_cast<int>(fifth >> (16 + i) & 1)
                                         << 4;
  }
}

void BlockQ5_0(const uint8_t* block, float* values) {
  const float scale = HalfAt(block);
  int integers[32];
  FiveBits(block + 2, integers);
  for (int i = 0; i < 32; ++i) {
    values[i] = scale * static_cast<float>(integers[i] - 16);
  }
}

void BlockQ5_1(const uint8_t* block, float* values) {
  const float scale = HalfAt(block);
  const float minimum = HalfAt(block + 2);
  int integers[32];
  FiveBits(block + 4, integers);
  for (int i = 0; i < 32; ++i) {
    values[i] = scale * static_cast<float>(integers[i]) + minimum;
  }
}

// Where the two bits of a group of 16 elements lie in 64 bytes. 128 elements
// are in 32 bytes, the first 32 of them in the lowest bits.
struct TwoBits {
  explicit TwoBits(int group)
      : first_byte(group / 8 * 32 + group % 2 * 16), shift(group % 8 / 2 * 2) {}
  int At(const uint8_t* bytes, int i) const {
    return (bytes[first_byte + i] >> shift) & 3;
  }

  int first_byte;
  int shift;
};

// Sixteen bytes of a scale and a minimum, 256 integers of two bits, the scale
// of the scales and that of the minima.
void BlockQ2_K(const uint8_t* block, float* values) {
  const float scale_of_scales = HalfAt(block + 80);
  const float scale_of_minima = HalfAt(block + 82);
  for (int group = 0; group < 16; ++group) {
    const float step = scale_of_scales * static_cast<float>(block[group] & 15);
    const float offset =
        scale_of_minima * static_cast<float>(block[group] >> 4);
    const TwoBits bits(group);
    for (int i = 0; i < 16; ++i) {
      const int integer = bits.At(block + 16, i);
      values[group * 16 + i] = step * static_cast<float>(integer) - offset;
    }
  }
}

// In this order:
// - the third bits of 256 integers, 32 elements to a bit of 32 bytes;
// - their other two bits;
// - twelve bytes of sixteen scales of 6 bits: eight bytes of lower halves, four
//   of the upper two bits;
// - the scale of the scales.
void BlockQ3_K(const uint8_t* block, float* values) {
  const uint8_t* const packed = block + 96;
  const float scale_of_scales = HalfAt(block + 108);
  for (int group = 0; group < 16; ++group) {
    const int low = (packed[group % 8] >> (group / 8 * 4)) & 15;
    const int high = (packed[8 + group % 4] >> (group / 4 * 2)) & 3;
    const float step =
        scale_of_scales * static_cast<float>((low | high << 4) - 32);
    const TwoBits bits(group);
    for (int i = 0; i < 16; ++i) {
      const int third = (block[group % 2 * 16 + i] >> (group / 2)) & 1;
      const int integer = bits.At(block + 32, i) + third * 4 - 4;
      values[group * 16 + i] = step * static_cast<float>(integer);
    }
  }
}

// What a group of 32 elements of Q4_K and Q5_K is multiplied by, and what is
// taken off. A block has two scales, of scales and of minima. After them it has
// eight scales and eight minima of 6 bits each in 12 bytes.
struct Steps {
  Steps(const uint8_t* block, int group) {
    const uint8_t* const packed = block + 4;
    int scale_bits;
    int minimum_bits;
    if (group < 4) {
      scale_bits = packed[group] & 63;
      minimum_bits = packed[4 + group] & 63;
    } else {
      // The upper two bits lie in those of the first four.
      scale_bits = (packed[4 + group] & 15) | ((packed[group - 4] >> 2) & 48);
      minimum_bits = (packed[4 + group] >> 4) | ((packed[group] >> 2) & 48);
    }
    step = HalfAt(block) * static_cast<float>(scale_bits);
    offset = HalfAt(block + 2) * static_cast<float>(minimum_bits);
  }

  float step;
  float offset;
};

// Steps, then 128 bytes of two integers: 32 lower halves, 32 upper ones, and so
// on.
void BlockQ4_K(const uint8_t* block, float* values) {
  const uint8_t* const integers = block + 16;
  for (int group = 0; group < 8; ++group) {
    const Steps steps(block, group);
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int integer = (integers[group / 2 * 32 + i] >> shift) & 15;
      values[group * 32 + i] =
          steps.step * static_cast<float>(integer) - steps.offset;
    }
  }
}

// Steps, the fifth bits of 256 integers, 32 elements to a bit of 32 bytes, then
// the other four as of Q4_K.
void BlockQ5_K(const uint8_t* block, float* values) {
  const uint8_t* const fifth = block + 16;
  const uint8_t* const integers = block + 48;
  for (int group = 0; group < 8; ++group) {
    const Steps steps(block, group);
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int integer = ((integers[group / 2 * 32 + i] >> shift) & 15) |
                          ((fifth[i] >> group) & 1) << 4;
      values[group * 32 + i] =
          steps.step * static_cast<float>(integer) - steps.offset;
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
    case kQ4_1:
      return GgufElements{DType::kF32, AllBlocks<20, 32, BlockQ4_1>};
    case kQ5_0:
      return GgufElements{DType::kF32, AllBlocks<22, 32, BlockQ5_0>};
    case kQ5_1:
      return GgufElements{DType::kF32, AllBlocks<24, 32, BlockQ5_1>};
    case kQ2_K:
      return GgufElements{DType::kF32, AllBlocks<84, 256, BlockQ2_K>};
    case kQ3_K:
      return GgufElements{DType::kF32, AllBlocks<110, 256, BlockQ3_K>};
    case kQ4_K:
      return GgufElements{DType::kF32, AllBlocks<144, 256, BlockQ4_K>};
    case kQ5_K:
      return GgufElements{DType::kF32, AllBlocks<176, 256, BlockQ5_K>};
    case kQ6_K:
      return GgufElements{DType::kF32, AllBlocks<210, 256, BlockQ6_K>};
    default:
      return std::nullopt;
  }
}

}  // namespace nacre::model
