// The order in which the matrix product adds, and what it follows from.
//
// A row's result must have the same bits whichever rows are computed with it. A
// token's hidden state may come from a decoding step of one row, from the
// verification of 8 or from a prompt of 4000. So the order is a function of
// (outputs, inputs) alone, and both kernels keep it:
//   1. inputs are cut into blocks of 64, these into `slices` contiguous slices
//      of `slice_blocks`, a slice into up to 8 contiguous chains of
//      `chain_blocks`;
//   2. a chain is one f32 accumulator on the tensor cores (m16n8k16), its
//      blocks in order. int8: each block starts from zero, and its sum times
//      its scale is added to the accumulator (one fused multiply-add). int4:
//      each half of a block does;
//   3. the chains of a slice are added in order, then the slices in theirs.
//      fp8: the sum is multiplied by the output's scale last.
// The number of multiprocessors and of rows decides where an element is
// computed, never how. Ranks that have shares of the outputs take the order of
// all of them (GemmArgs::order_outputs).
//
// Why chains: with few rows a product is bound by reading weights. 8 warps of
// one block, each with a chain of its own, keep enough of them on their way.
// They need nothing of each other until a tile of outputs is done. With many
// rows it is bound by the tensor cores. There a warp walks over the chains one
// after another. That costs a second set of accumulators (the chains added so
// far) and one addition a chain. Chains are contiguous so that this walk is a
// walk along rows of memory.
//
// Why slices: with few rows, activations stay in shared memory, which has room
// for 4096 inputs. And a matrix of few outputs would leave multiprocessors
// idle. Slices are then computed apart and added in their order: with few rows
// by the last block that has one, with more by a kernel of its own. With many
// rows one block goes through all of them.

#ifndef KERNELS_CUDA_GEMM_ORDER_H_
#define KERNELS_CUDA_GEMM_ORDER_H_

#include "kernels/cuda/gemm_layout.h"

namespace nacre::kernels::cuda {

inline constexpr int kChains = 8;           // of a slice, at most
inline constexpr int kMaxSliceBlocks = 64;  // of activations in shared memory

struct GemmOrder {
  int blocks;  // of all inputs
  int slices;
  int slice_blocks;  // the last slice may have fewer
  int chain_blocks;  // the last chain of a slice may have fewer

  bool operator==(const GemmOrder&) const = default;
};

// What blocks of their own compute, to be added when all are done.
enum class Apart { kNothing, kSlices, kChains };

// A part of each slice or chain; those of a slice that has fewer chains are
// empty.
#ifdef __CUDACC__
__host__ __device__
#endif
    inline int
    PartsOf(const GemmOrder& order, Apart apart) {
  return apart == Apart::kNothing  ? 1
         : apart == Apart::kSlices ? order.slices
                                   : order.slices * kChains;
}

inline GemmOrder GemmOrderOf(int outputs, int inputs) {
  // Tiles of a slice that keep large chips busy, and blocks worth a slice.
  constexpr int kEnoughTiles = 256;
  constexpr int kMinSliceBlocks = 16;
  const auto quotient = [](int a, int b) { return (a + b - 1) / b; };
  GemmOrder order = {};
  order.blocks = GemmBlocks(inputs);
  int slices = quotient(order.blocks, kMaxSliceBlocks);
  while (GemmTiles(outputs) * slices < kEnoughTiles &&
         order.blocks >= 2 * slices * kMinSliceBlocks) {
    slices *= 2;
  }
  order.slice_blocks = quotient(order.blocks, slices);
  order.slices = quotient(order.blocks, order.slice_blocks);
  order.chain_blocks = quotient(order.slice_blocks, kChains);
  return order;
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_ORDER_H_
