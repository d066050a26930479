#include "kernels/cuda/gemm_layout.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace nacre::kernels::cuda {
namespace {

// Where a weight lies in its block.
int Offset(int output, int input) {
  const int half = input / 32;
  const int lane = output % 8 * 4 + input % 8 / 2;
  const int word = input % 32 / 16;
  const int byte = input % 2 * 2 + input % 16 / 8;  // 0 2 1 3
  return ((half * 2 + output / 8) * 32 + lane) * 8 + word * 4 + byte;
}

template <typename Byte>
void PackTile(int outputs, int inputs, size_t block_bytes, const Byte& byte_of,
              unsigned char* packed) {
  std::memset(packed, 0, block_bytes * GemmBlocks(inputs));
  for (int output = 0; output < outputs; ++output) {
    for (int input = 0; input < inputs; ++input) {
      packed[input / kBlockInputs * block_bytes +
             Offset(output, input % kBlockInputs)] =
          byte_of(size_t{1} * output * inputs + input);
    }
  }
}

// Scales [outputs, blocks, groups of a block] of a tile, each block's where
// `to` says.
template <typename To>
void PackScales(const uint16_t* scales, int outputs, int blocks, int groups,
                const To& to) {
  for (int output = 0; output < outputs; ++output) {
    for (int block = 0; block < blocks; ++block) {
      for (int group = 0; group < groups; ++group) {
        std::memcpy(to(block) + size_t{1} * group * kBlockScaleBytes +
                        size_t{2} * (output % 8 * 2 + output / 8),
                    scales++, sizeof(*scales));
      }
    }
  }
}

}  // namespace

void PackBf16Tile(const uint16_t* weights, int outputs, int inputs,
                  void* packed) {
  auto* const bytes = static_cast<unsigned char*>(packed);
  std::memset(bytes, 0, PackedTileBytes(GemmFormat::kBf16, inputs));
  for (int output = 0; output < outputs; ++output) {
    const uint16_t* const row = weights + size_t{1} * output * inputs;
    for (int input = 0; input < inputs; input += kVectorInputs) {
      const int slot = Bf16Slot(output, input % kBlockInputs / kVectorInputs);
      const size_t block = input / kBlockInputs * size_t{2} * kBlockWeightBytes;
      std::memcpy(bytes + block + size_t{16} * slot, row + input,
                  sizeof(uint16_t) * std::min(kVectorInputs, inputs - input));
    }
  }
}

void PackInt8Tile(const int8_t* integers, const uint16_t* scales, int outputs,
                  int inputs, void* packed) {
  constexpr size_t block_bytes = PackedBlockBytes(GemmFormat::kInt8);
  auto* const bytes = static_cast<unsigned char*>(packed);
  const auto byte_of = [integers](size_t i) {
    const int value = integers[i];
    return static_cast<unsigned char>(std::abs(value) | (value < 0 ? 0x80 : 0));
  };
  PackTile(outputs, inputs, block_bytes, byte_of, bytes);
  PackScales(scales, outputs, GemmBlocks(inputs), 1, [bytes](int block) {
    return bytes + block * block_bytes + kBlockWeightBytes;
  });
}

void PackInt4Tile(const int8_t* integers, const uint16_t* scales, int outputs,
                  int inputs, void* packed) {
  constexpr size_t block_bytes = PackedBlockBytes(GemmFormat::kInt4);
  constexpr int kZero = 0x88;  // two integers
  auto* const bytes = static_cast<unsigned char*>(packed);
  const auto block_at = [bytes](int block) {
    return bytes + block * block_bytes;
  };
  for (int block = 0; block < GemmBlocks(inputs); ++block) {
    std::memset(block_at(block), kZero, kInt4WeightBytes);
    std::memset(block_at(block) + kInt4WeightBytes, 0,
                size_t{2} * kBlockScaleBytes);
  }
  for (int output = 0; output < outputs; ++output) {
    for (int input = 0; input < inputs; ++input) {
      const int half = input % kBlockInputs / 32;
      const int lane = output % 8 * 4 + input % 8 / 2;
      const int bit = input % 2 * 16 + input % 32 / 16 * 8 + input % 16 / 8 * 4;
      const int word = (half * 32 + lane) * 2 + output / 8;
      unsigned char& byte =
          block_at(input / kBlockInputs)[size_t{4} * word + bit / 8];
      const int code = integers[size_t{1} * output * inputs + input] + 8;
      byte = static_cast<unsigned char>((byte & ~(15 << bit % 8)) |
                                        code << bit % 8);
    }
  }
  PackScales(scales, outputs, GemmBlocks(inputs), 2, [block_at](int block) {
    return block_at(block) + kInt4WeightBytes;
  });
}

void PackFp8Tile(const uint8_t* codes, int outputs, int inputs, void* packed) {
  PackTile(
      outputs, inputs, kBlockWeightBytes,
      [codes](size_t i) { return codes[i]; },
      static_cast<unsigned char*>(packed));
}

}  // namespace nacre::kernels::cuda
