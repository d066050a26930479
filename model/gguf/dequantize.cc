#include "model/gguf/dequantize.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace nacre::model {
namespace {

using kernels::DType;
using kernels::SplitBlock;
using kernels::WeightGroups;

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

uint16_t HalfAt(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

// A minimum, which is added, as an offset, which is taken off.
uint16_t NegatedHalfAt(const uint8_t* bytes) {
  return static_cast<uint16_t>(HalfAt(bytes) ^ 0x8000u);
}

// A scale, then 32 signed integers.
void SplitQ8_0(const uint8_t* block, SplitBlock* out) {
  out->scale = HalfAt(block);
  for (int i = 0; i < 32; ++i) {
    out->integers[i] = static_cast<uint8_t>(block[2 + i] ^ 0x80);
  }
}

// 16 bytes of two integers: the lower halves come first.
void SplitHalves(const uint8_t* packed, SplitBlock* out) {
  for (int i = 0; i < 16; ++i) {
    out->integers[i] = packed[i] & 15;
    out->integers[16 + i] = packed[i] >> 4;
  }
}

// A scale, then halves.
void SplitQ4_0(const uint8_t* block, SplitBlock* out) {
  out->scale = HalfAt(block);
  SplitHalves(block + 2, out);
}

// A scale, a minimum, then halves.
void SplitQ4_1(const uint8_t* block, SplitBlock* out) {
  out->scale = HalfAt(block);
  out->offset_scale = NegatedHalfAt(block + 2);
  SplitHalves(block + 4, out);
}

// The fifth bits of 32 integers, one after another, then halves.
void SplitFiveBits(const uint8_t* packed, SplitBlock* out) {
  uint32_t fifth;
  std::memcpy(&fifth, packed, sizeof(fifth));
  SplitHalves(packed + 4, out);
  for (int i = 0; i < 32; ++i) {
    out->integers[i] |= static_cast<uint8_t>((fifth >> i & 1) << 4);
  }
}

void SplitQ5_0(const uint8_t* block, SplitBlock* out) {
  out->scale = HalfAt(block);
  SplitFiveBits(block + 2, out);
}

void SplitQ5_1(const uint8_t* block, SplitBlock* out) {
  out->scale = HalfAt(block);
  out->offset_scale = NegatedHalfAt(block + 2);
  SplitFiveBits(block + 4, out);
}

// 256 integers of two bits in 64 bytes. 128 of them are in 32 bytes, the first
// 32 in the lowest bits.
void SplitTwoBits(const uint8_t* packed, SplitBlock* out) {
  for (int i = 0; i < 256; ++i) {
    out->integers[i] =
        (packed[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
  }
}

// Sixteen bytes of a step and an offset, two bits, the two scales.
void SplitQ2_K(const uint8_t* block, SplitBlock* out) {
  for (int group = 0; group < 16; ++group) {
    out->steps[group] = static_cast<int8_t>(block[group] & 15);
    out->offsets[group] = block[group] >> 4;
  }
  SplitTwoBits(block + 16, out);
  out->scale = HalfAt(block + 80);
  out->offset_scale = HalfAt(block + 82);
}

// In this order:
// - the third bits of 256 integers, 32 elements to a bit of 32 bytes;
// - their other two bits;
// - twelve bytes of sixteen steps of 6 bits: eight bytes of lower halves, four
//   of the upper two bits;
// - the scale.
void SplitQ3_K(const uint8_t* block, SplitBlock* out) {
  const uint8_t* const packed = block + 96;
  for (int group = 0; group < 16; ++group) {
    const int low = (packed[group % 8] >> (group / 8 * 4)) & 15;
    const int high = (packed[8 + group % 4] >> (group / 4 * 2)) & 3;
    out->steps[group] = static_cast<int8_t>((low | high << 4) - 32);
  }
  SplitTwoBits(block + 32, out);
  for (int i = 0; i < 256; ++i) {
    out->integers[i] |=
        static_cast<uint8_t>((block[i % 32] >> (i / 32) & 1) << 2);
  }
  out->scale = HalfAt(block + 108);
}

// What Q4_K and Q5_K begin with: the two scales, then eight steps and eight
// offsets of 6 bits each in 12 bytes.
void SplitSteps(const uint8_t* block, SplitBlock* out) {
  out->scale = HalfAt(block);
  out->offset_scale = HalfAt(block + 2);
  const uint8_t* const packed = block + 4;
  for (int group = 0; group < 4; ++group) {
    out->steps[group] = static_cast<int8_t>(packed[group] & 63);
    out->offsets[group] = packed[4 + group] & 63;
    // The upper two bits of the others lie in those of the first four.
    out->steps[4 + group] = static_cast<int8_t>((packed[8 + group] & 15) |
                                                ((packed[group] >> 2) & 48));
    out->offsets[4 + group] = static_cast<uint8_t>(
        (packed[8 + group] >> 4) | ((packed[4 + group] >> 2) & 48));
  }
}

// 128 bytes of two integers: 32 lower halves, 32 upper ones, and so on.
void SplitLongHalves(const uint8_t* packed, SplitBlock* out) {
  for (int i = 0; i < 256; ++i) {
    out->integers[i] = (packed[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4)) & 15;
  }
}

void SplitQ4_K(const uint8_t* block, SplitBlock* out) {
  SplitSteps(block, out);
  SplitLongHalves(block + 16, out);
}

// Steps, the fifth bits of 256 integers, 32 elements to a bit of 32 bytes, then
// halves.
void SplitQ5_K(const uint8_t* block, SplitBlock* out) {
  SplitSteps(block, out);
  SplitLongHalves(block + 48, out);
  for (int i = 0; i < 256; ++i) {
    out->integers[i] |=
        static_cast<uint8_t>((block[16 + i % 32] >> (i / 32) & 1) << 4);
  }
}

// The lower four bits of 256 integers, 64 of them in 32 bytes in turns, their
// upper two, sixteen steps, the scale.
void SplitQ6_K(const uint8_t* block, SplitBlock* out) {
  SplitTwoBits(block + 128, out);
  for (int i = 0; i < 256; ++i) {
    const uint8_t byte = block[i / 128 * 64 + i % 64];
    const int low = (byte >> (i % 128 / 64 * 4)) & 15;
    out->integers[i] = static_cast<uint8_t>(low | out->integers[i] << 4);
  }
  std::memcpy(out->steps, block + 192, 16);
  out->scale = HalfAt(block + 208);
}

struct GroupsOfType {
  TypeId id;
  WeightGroups groups;
};

constexpr GroupsOfType kGroups[] = {
    {kQ4_0,
     {.block_bytes = 18,
      .block = 32,
      .group = 32,
      .low_bits = 4,
      .zero = 8,
      .split = SplitQ4_0}},
    {kQ4_1,
     {.block_bytes = 20,
      .block = 32,
      .group = 32,
      .low_bits = 4,
      .has_offsets = true,
      .split = SplitQ4_1}},
    {kQ5_0,
     {.block_bytes = 22,
      .block = 32,
      .group = 32,
      .low_bits = 4,
      .high_bits = 1,
      .zero = 16,
      .split = SplitQ5_0}},
    {kQ5_1,
     {.block_bytes = 24,
      .block = 32,
      .group = 32,
      .low_bits = 4,
      .high_bits = 1,
      .has_offsets = true,
      .split = SplitQ5_1}},
    {kQ8_0,
     {.block_bytes = 34,
      .block = 32,
      .group = 32,
      .low_bits = 8,
      .zero = 128,
      .split = SplitQ8_0}},
    {kQ2_K,
     {.block_bytes = 84,
      .block = 256,
      .group = 16,
      .low_bits = 2,
      .has_steps = true,
      .has_offsets = true,
      .split = SplitQ2_K}},
    {kQ3_K,
     {.block_bytes = 110,
      .block = 256,
      .group = 16,
      .low_bits = 2,
      .high_bits = 1,
      .has_steps = true,
      .zero = 4,
      .split = SplitQ3_K}},
    {kQ4_K,
     {.block_bytes = 144,
      .block = 256,
      .group = 32,
      .low_bits = 4,
      .has_steps = true,
      .has_offsets = true,
      .split = SplitQ4_K}},
    {kQ5_K,
     {.block_bytes = 176,
      .block = 256,
      .group = 32,
      .low_bits = 4,
      .high_bits = 1,
      .has_steps = true,
      .has_offsets = true,
      .split = SplitQ5_K}},
    {kQ6_K,
     {.block_bytes = 210,
      .block = 256,
      .group = 16,
      .low_bits = 4,
      .high_bits = 2,
      .has_steps = true,
      .zero = 32,
      .split = SplitQ6_K}},
};

}  // namespace

std::optional<GgufElements> ElementsOf(const gguf::TensorType& type) {
  switch (type.id) {
    case kF32:
      return GgufElements{DType::kF32, nullptr};
    case kF16:
      return GgufElements{DType::kF16, nullptr};
    case kBF16:
      return GgufElements{DType::kBF16, nullptr};
    default:
      break;
  }
  for (const GroupsOfType& known : kGroups) {
    if (type.id == known.id) return GgufElements{DType::kF32, &known.groups};
  }
  return std::nullopt;
}

}  // namespace nacre::model
