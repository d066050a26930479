// What becomes of the sums of the product with few rows (gemm_skinny.cuh): of a
// tile as soon as its chains are there, or, where it has slices, once the last
// block has them all.

#ifndef KERNELS_CUDA_GEMM_SKINNY_RESULTS_CUH_
#define KERNELS_CUDA_GEMM_SKINNY_RESULTS_CUH_

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/cuda/gemm_layout.h"
#include "kernels/cuda/gemm_order.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_weights.cuh"

namespace nacre::kernels::cuda {
namespace {  // only gemm_skinny.cuh and gemm_pairs.cuh include this

template <typename Weights>
constexpr int kSkinnyThreads = kSkinnyGroups<Weights>* kSkinnyGroupThreads;

// What of the product a warp computes.
struct SkinnyShare {
  int slice;
  int slice_blocks;
  int first_block;
  int blocks;  // from there on
};

// A tile's sums of an output of 16 and a row: its chains in turn.
template <int kRowTiles>
__device__ __forceinline__ float TileSum(const GemmOrder& order,
                                         const SkinnyShare& share, int output,
                                         int row, const float4* tile_sums) {
  // Where the instruction leaves element (output, row).
  const int owner = row / 8 * 32 + output % 8 * 4 + row % 8 / 2;
  const int part = output / 8 * 2 + row % 2;
  const auto* const value =
      reinterpret_cast<const float*>(tile_sums + owner) + part;
  float total = value[0];
#pragma unroll
  for (int chain = 1; chain < kChains; ++chain) {
    if (chain * order.chain_blocks < share.slice_blocks) {
      total += value[chain * kRowTiles * 32 * 4];
    }
  }
  return total;
}

// An element's slices in their order, as ReduceKernel adds them. `first`: of
// slice 0.
__device__ __forceinline__ float SliceSum(const Product& product,
                                          const float* first) {
  const int slices = product.order.slices;
  const size_t slice_elements =
      static_cast<size_t>(product.rows) * product.outputs;
  float total = __ldcg(first);
#pragma unroll 4
  for (int slice = 1; slice < slices; ++slice) {
    total += __ldcg(first + slice * slice_elements);
  }
  return total;
}

// What of its tiles a block that is the last of them, one for each slice, has
// yet to do: so many elements of each row of a tile.
template <typename Weights, int kElements, typename Here, typename Add>
__device__ __forceinline__ void ForLastElements(const Here& here,
                                                const Product& product,
                                                int tiles, const Add& add) {
  const int walkers = here.grid().x / product.order.slices;
  const int walker = here.index().x / product.order.slices;
  const int tile_elements = kElements * product.rows;
  const int elements = (tiles - walker + walkers - 1) / walkers * tile_elements;
  for (int i = threadIdx.x; i < elements; i += kSkinnyThreads<Weights>) {
    add(walker + i / tile_elements * walkers, i % tile_elements / kElements,
        i % kElements);
  }
}

// Results as they are, each by a thread.
struct PlainResults {
  struct Place {};
  __device__ __forceinline__ Place FindPlace(const Product&) const {
    return {};
  }

  template <typename Weights, int kRowTiles>
  __device__ __forceinline__ void StoreTile(const Product& product,
                                            const SkinnyShare& share, int tile,
                                            Place,
                                            const float4* tile_sums) const {
    const int output = threadIdx.x % kTileOutputs;
    const int row = threadIdx.x % kSkinnyGroupThreads / kTileOutputs;
    const int column = OutputOf(tile, output, product.pairs_apart);
    if (row >= product.rows || column >= product.outputs) return;
    float total =
        TileSum<kRowTiles>(product.order, share, output, row, tile_sums);
    if (Weights::kRowScales && product.order.slices == 1) {
      total *= product.row_scales[column];
    }
    const size_t at = (static_cast<size_t>(share.slice) * product.rows + row) *
                          product.outputs +
                      column;
    if (product.counters != nullptr) return __stcg(product.parts + at, total);
    if (product.residual != nullptr) total += product.residual[at];
    product.results[at] = total;
  }

  // Of the last block.
  template <typename Weights, typename Here>
  __device__ __forceinline__ void AddSlices(const Here& here,
                                            const Product& product,
                                            int tiles) const {
    ForLastElements<Weights, kTileOutputs>(
        here, product, tiles, [&](int tile, int row, int output) {
          const int column = OutputOf(tile, output, product.pairs_apart);
          if (column >= product.outputs) return;
          const size_t at = static_cast<size_t>(row) * product.outputs + column;
          float total = SliceSum(product, product.parts + at);
          if (Weights::kRowScales) total *= product.row_scales[column];
          if (product.residual != nullptr) total += product.residual[at];
          product.results[at] = total;
        });
  }
};

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_SKINNY_RESULTS_CUH_
