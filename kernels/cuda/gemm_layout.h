// How the matrix product keeps weights on a GPU. Plain C++.
//
//   kBf16  bf16.
//   kInt8  integers in [-127, 127] and one bf16 scale for every output and 64
//          inputs (kernels/quantization.h).
//   kFp8   E4M3 and one f32 scale for every output, which is an array of its
//          own.
//   kInt4  integers in [-8, 7] and one bf16 scale for every output and 32
//          inputs (kernels/quantization.h).
//
// All are cut into tiles of 16 outputs, those into blocks of 64 inputs. Tiles
// follow each other, and so do the blocks of a tile. So what a warp reads of a
// product with few rows lies together, in kilobytes, which is what memory is
// fast at. What is missing at the edges is zeros.
//
// Outputs come in pairs, `pairs_apart` from each other: o and o + pairs_apart,
// of every 2 pairs_apart outputs. A tile has 8 pairs that follow each other, so
// that a block with a tile has both outputs of a pair. Of gate and up, stacked,
// pairs_apart is half of the outputs; of heads whose halves turn, half of
// head_dim. Where nothing asks for pairs it is 8: the 16 outputs of a tile
// follow each other.
//
// A block of bf16 is 2048 bytes, as it lies in shared memory. It has 16 outputs
// of 128 bytes, the 16-byte vectors of each swapped by its number (Bf16Slot).
//
// One of kInt8 and kFp8 is 1024 bytes of weights,
//   [half: 32 inputs][outputs 0-7, 8-15][lane 0-31][8 bytes]
// Lane 4 g + t has of output g, in each 16 inputs of the half, inputs 2 t,
// 2 t + 1, 2 t + 8 and 2 t + 9: what it feeds to the tensor cores. These four
// are stored in the order 0 2 1 3: two masks of a word then give two pairs. An
// int8 weight is its magnitude with the sign in bit 7. After them, int8 has 32
// bytes of scales: bf16 [g][output g, output g + 8].
//
// A block of kInt4 is 512 bytes of weights,
//   [half: 32 inputs][lane 0-31][outputs 0-7, 8-15][4 bytes]
// Lane 4 g + t has the same 8 inputs of an output as above, each plus 8 in 4
// bits. In each 16 inputs, 2 t and 2 t + 1 stand at bits s and s + 16 of the
// lane's word, 2 t + 8 and 2 t + 9 four bits on. s is 0, of the second 16
// inputs 8. After them, 32 bytes of scales for each half, as int8 has them.

#ifndef KERNELS_CUDA_GEMM_LAYOUT_H_
#define KERNELS_CUDA_GEMM_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "common/host_device.h"

namespace nacre::kernels::cuda {

enum class GemmFormat { kBf16, kInt8, kFp8, kInt4 };

inline constexpr int kTileOutputs = 16;
inline constexpr int kBlockInputs = 64;
inline constexpr int kBlockWeightBytes = kTileOutputs * kBlockInputs;
inline constexpr int kBlockScaleBytes = 2 * kTileOutputs;
inline constexpr int kInt4WeightBytes = kBlockWeightBytes / 2;
inline constexpr int kVectorInputs = 8;  // bf16 of 16 bytes

inline int GemmTiles(int outputs) {
  return (outputs + kTileOutputs - 1) / kTileOutputs;
}

inline constexpr int kPlainPairs = kTileOutputs / 2;

// Whether outputs can be in such pairs.
inline bool HavePairs(int outputs, int pairs_apart) {
  return pairs_apart > 0 && pairs_apart % kPlainPairs == 0 &&
         outputs % (2 * pairs_apart) == 0;
}

// The outputs of a tile: the first one, and that of row `row` of 16.
NACRE_HOST_DEVICE constexpr int FirstOutput(int tile, int pairs_apart) {
  const int pair = tile * kPlainPairs;
  return pair + pair / pairs_apart * pairs_apart;
}
NACRE_HOST_DEVICE constexpr int OutputOf(int tile, int row, int pairs_apart) {
  return FirstOutput(tile, pairs_apart) + row % kPlainPairs +
         row / kPlainPairs * pairs_apart;
}

inline int GemmBlocks(int inputs) {
  return (inputs + kBlockInputs - 1) / kBlockInputs;
}

// Where vector `column` (of 8) of an output lies in a block of bf16, and of a
// row in a tile of rows. The vectors of a column lie in different banks of
// shared memory. This is the tensor cores' own "128-byte swizzle", of tiles
// that begin at a multiple of 1024 bytes.
NACRE_HOST_DEVICE constexpr int Bf16Slot(int row, int column) {
  return row * 8 + (column ^ row % 8);
}

// Bytes of a packed block.
NACRE_HOST_DEVICE constexpr int PackedBlockBytes(GemmFormat format) {
  switch (format) {
    case GemmFormat::kBf16:
      return 2 * kBlockWeightBytes;
    case GemmFormat::kInt8:
      return kBlockWeightBytes + kBlockScaleBytes;
    case GemmFormat::kFp8:
      return kBlockWeightBytes;
    case GemmFormat::kInt4:
      return kInt4WeightBytes + 2 * kBlockScaleBytes;
  }
  return 0;
}

// Bytes of a packed tile.
inline size_t PackedTileBytes(GemmFormat format, int inputs) {
  return size_t{1} * GemmBlocks(inputs) * PackedBlockBytes(format);
}

inline size_t GemmWeightBytes(GemmFormat format, int outputs, int inputs) {
  return GemmTiles(outputs) * PackedTileBytes(format, inputs);
}

// Packs one tile.
//   weights  bf16 [outputs, inputs]; outputs 1 to 16
//   packed   PackedTileBytes(kBf16, inputs) bytes
void PackBf16Tile(const uint16_t* weights, int outputs, int inputs,
                  void* packed);

//   integers  [outputs, inputs], in [-127, 127]; outputs 1 to 16
//   scales    bf16 [outputs, GemmBlocks(inputs)]
//   packed    PackedTileBytes(kInt8, inputs) bytes
void PackInt8Tile(const int8_t* integers, const uint16_t* scales, int outputs,
                  int inputs, void* packed);

//   integers  [outputs, inputs], in [-8, 7]; outputs 1 to 16
//   scales    bf16 [outputs, 2 GemmBlocks(inputs)]
//   packed    PackedTileBytes(kInt4, inputs) bytes
void PackInt4Tile(const int8_t* integers, const uint16_t* scales, int outputs,
                  int inputs, void* packed);

//   codes   E4M3 [outputs, inputs]; outputs 1 to 16
//   packed  PackedTileBytes(kFp8, inputs) bytes
void PackFp8Tile(const uint8_t* codes, int outputs, int inputs, void* packed);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_LAYOUT_H_
