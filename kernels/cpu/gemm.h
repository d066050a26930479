// Skinny matrix product: few rows of activations, a large weight matrix that
// every step reads from memory once.
//
// Weights lie in the order in which the kernel reads them: panels of 4 outputs,
// in groups of 4 panels; a group goes through the inputs in chunks of 16
// blocks, so that the activations of a chunk stay in the level-1 cache for 16
// outputs. With L the lanes of a vector of the target, a block is 2 L inputs:
//   weights      [group][chunk][panel of the group][block of the chunk] of
//     f32   [half 2][output 4][L] float
//     bf16  [output 4][L] 32-bit words: input l low, input L + l high
//   activations  [row tile][block][row of the tile][2 L] float
// Both are padded with zeros to whole panels and blocks. No stride is a power
// of two.
//
// An output element owns one vector accumulator. Inputs are added to it in
// order with fused multiply-adds, its lanes in a fixed order at the end. Tiles,
// chunks and threads only decide when that happens, so they change no bit. Both
// weight types add in the same order: f32 copies of bf16 weights give the same
// bits.

#ifndef KERNELS_CPU_GEMM_H_
#define KERNELS_CPU_GEMM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/row_tiling.h"

namespace nacre::kernels {

inline constexpr int kPanelOutputs = 4;
inline constexpr int kGroupPanels = 4;
inline constexpr size_t kChunkBlocks = 16;

// Weights are fetched this far ahead of their use; a packed matrix has as much
// room behind it.
inline constexpr size_t kPrefetchBytes = 8192;

// Sizes of a packed matrix, in panels of outputs and blocks of inputs.
struct PackedShape {
  int panels = 0;
  size_t blocks = 0;

  int groups() const { return (panels + kGroupPanels - 1) / kGroupPanels; }
  int PanelsOfGroup(int group) const {
    return std::min(kGroupPanels, panels - group * kGroupPanels);
  }
  // Which block of the matrix, counted in memory order, is (panel, block).
  size_t BlockIndex(int panel, size_t block) const {
    const int group = panel / kGroupPanels;
    const size_t chunk = block / kChunkBlocks * kChunkBlocks;
    const size_t chunk_blocks = std::min(kChunkBlocks, blocks - chunk);
    return group * kGroupPanels * blocks + chunk * PanelsOfGroup(group) +
           panel % kGroupPanels * chunk_blocks + block - chunk;
  }
};

// One product y = x W^T over packed operands.
struct GemmArgs {
  const void* weights = nullptr;       // packed, 64-byte aligned
  const float* activations = nullptr;  // packed, 64-byte aligned
  int rows = 0;                        // of activations, > 0
  int outputs = 0;                     // rows of W
  PackedShape shape;
  float* y = nullptr;  // [rows, outputs]
};

struct GemmKernels {
  int lanes;  // L
  // Rows of a tile at most.
  int tile_rows_f32;
  int tile_rows_bf16;
  // Copies tiles [tile_begin, tile_end) of x [rows, cols].
  //                                            out [rows, blocks * 2 * L]
  void (*pack)(const float* x, const RowTiling& tiling, int tile_begin,
               int tile_end, int cols, float* out);
  // Computes the outputs of groups [group_begin, group_end) for all rows.
  void (*multiply_f32)(const GemmArgs& args, int group_begin, int group_end);
  void (*multiply_bf16)(const GemmArgs& args, int group_begin, int group_end);
};

// The table of the best target that this CPU supports.
GemmKernels ChooseGemmKernels();

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_GEMM_H_
