// The product with more than 16 rows where a warpgroup multiplies as one
// (compute capability 9.0): as TiledKernel, a block computes a tile of outputs
// x rows and streams both operands through shared memory, a block of 64 inputs
// a stage. A warpgroup has 64 outputs. Products of a stage run while the warps
// wait for the next stage and ask for later ones. bf16 weights are multiplied
// from shared memory; the others pass through registers, where they become
// bf16.

#ifndef KERNELS_CUDA_GEMM_WIDE_CUH_
#define KERNELS_CUDA_GEMM_WIDE_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/fused.cuh"
#include "kernels/cuda/gemm_order.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_tiled.cuh"
#include "kernels/cuda/gemm_weights.cuh"
#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/wide_products.cuh"

namespace nacre::kernels::cuda {
namespace {  // only gemm.cu includes this

constexpr int kGroupThreads = 128;
constexpr int kGroupTiles = 4;  // of 16 outputs

#if NACRE_WIDE_PRODUCTS

// Shared memory from the first multiple of 1024 bytes on.
__device__ __forceinline__ uint4* WideShared(uint4* shared) {
  const uint32_t past = SharedAddress(shared) % kWideAlignment;
  return shared + (kWideAlignment - past) % kWideAlignment / sizeof(uint4);
}

// Keeps values in their registers until here.
template <int kCount>
__device__ __forceinline__ void KeepUntilHere(uint32_t (&values)[kCount][4]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(values[i][j]));
  }
}

// What a warpgroup knows of its share, and the products of one stage.
template <typename Weights, int kRowTiles>
class WideSums {
 public:
  // `tile`: of the group's first 16 outputs, in a stage's weights.
  __device__ __forceinline__ explicit WideSums(int lane, int warp_tile)
      : lane_(lane), warp_tile_(warp_tile) {}

  // Starts what a stage adds to the sums, or has added all of it. Nothing of
  // the stage before is under way afterwards.
  __device__ __forceinline__ void AddBlock(const uint4* weights,
                                           const uint4* rows) {
    if constexpr (Weights::kBlockScales) {
      AddScaled(weights, rows);
    } else if constexpr (Weights::kFormat == GemmFormat::kBf16) {
      BeginProducts();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        MultiplyAddWide(sum[0], weights, rows, step, true);
      }
      CommitProducts();
      WaitProducts<1>();
    } else {
      AddHalf<0>(weights, rows);
      WaitProducts<1>();
      KeepUntilHere(halves_[1]);
      AddHalf<1>(weights, rows);
      WaitProducts<1>();
      KeepUntilHere(halves_[0]);
    }
  }

  float4 sum[1][kRowTiles];

 private:
  template <int kHalf>
  __device__ __forceinline__ void AddHalf(const uint4* weights,
                                          const uint4* rows) {
    Weights::LoadHalf(weights + warp_tile_ * Weights::kVectors, kHalf, lane_,
                      halves_[kHalf]);
    BeginProducts();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      MultiplyAddWide(sum[0], halves_[kHalf][i], rows, 2 * kHalf + i, true);
    }
    CommitProducts();
  }

  __device__ __forceinline__ void AddScaled(const uint4* weights,
                                            const uint4* rows) {
    float4 block_sum[kRowTiles];
    const uint4* const tile = weights + warp_tile_ * Weights::kVectors;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Weights::LoadHalf(tile, half, lane_, halves_[half]);
      BeginProducts();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        MultiplyAddWide(block_sum, halves_[half][i], rows, 2 * half + i,
                        half + i > 0);
      }
      CommitProducts();
    }
    const uint32_t scales = Weights::Scales(tile, lane_);
    const float low = FloatOf(scales << 16);
    const float high = FloatOf(scales & 0xffff0000);
    WaitProducts<0>();
    KeepUntilHere(halves_[0]);
    KeepUntilHere(halves_[1]);
#pragma unroll
    for (int j = 0; j < kRowTiles; ++j) {
      const float4& part = block_sum[j];
      float4& to = sum[0][j];
      to = {Fused(part.x, low, to.x), Fused(part.y, low, to.y),
            Fused(part.z, high, to.z), Fused(part.w, high, to.w)};
    }
  }

  const int lane_;
  const int warp_tile_;
  uint32_t halves_[2][2][4] = {};
};

template <typename Weights, typename Tile>
__device__ __forceinline__ void MultiplyWide(const Product& product,
                                             uint4* shared) {
  constexpr int kStages = kWideStages<Weights, Tile>;
  constexpr int kAhead = kStages - 2;  // of the stage that is multiplied
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int group = threadIdx.x / kGroupThreads;
  const GemmOrder& order = product.order;
  const TileAt tile = FindTile<Tile>(product);
  const int first = tile.slice * order.slice_blocks;
  const int end = product.apart ? min(order.blocks, first + order.slice_blocks)
                                : order.blocks;
  uint4* const row_stages = WideShared(shared);
  uint4* const weight_stages = row_stages + kStages * Tile::kRows * 8;
  constexpr int kWeightVectors = Tile::kOutputTiles * Weights::kVectors;
  const auto copy_weights = [&](int block, int stage) {
    Weights::template Copy<Tile::kOutputTiles, Tile::kThreads>(
        weight_stages + stage * kWeightVectors, product, tile.output, block,
        threadIdx.x);
  };
  const auto copy_rows = [&](int block, int stage) {
    CopyBf16<Tile::kRows, Tile::kThreads>(
        row_stages + stage * Tile::kRows * 8, product.activations, tile.row,
        product.rows, product.inputs, block, threadIdx.x);
  };

  LaunchDependents();
#pragma unroll
  for (int stage = 0; stage < kAhead; ++stage) {
    if (first + stage < end) copy_weights(first + stage, stage);
  }
  WaitForPrevious();
#pragma unroll
  for (int stage = 0; stage < kAhead; ++stage) {
    if (first + stage < end) copy_rows(first + stage, stage);
    CommitCopies();
  }

  // Of this warpgroup, in a stage.
  const int group_tile = group * kGroupTiles;
  WideSums<Weights, Tile::kRows / 8> sums(lane, warp % kGroupTiles);
  float4 total[1][Tile::kRows / 8];
  int stage = 0;
  int refilled = kAhead;
  int block = first;
  for (int slice = tile.slice; block < end; ++slice) {
    const int slice_end = min(end, block + order.slice_blocks);
    for (bool first_chain = true; block < slice_end; first_chain = false) {
      const int chain_end = min(slice_end, block + order.chain_blocks);
      Clear(sums.sum);
#pragma unroll 1
      for (; block < chain_end; ++block) {
        WaitCopies<kAhead - 1>();
        ShowCopies();
        // Copies of all are there, products of the stage before last are done.
        __syncthreads();
        if (const int ahead = block + kAhead; ahead < end) {
          copy_weights(ahead, refilled);
          copy_rows(ahead, refilled);
        }
        CommitCopies();
        sums.AddBlock(weight_stages + stage * kWeightVectors +
                          group_tile * Weights::kVectors,
                      row_stages + stage * Tile::kRows * 8);
        stage = stage == kStages - 1 ? 0 : stage + 1;
        refilled = refilled == kStages - 1 ? 0 : refilled + 1;
      }
      WaitProducts<0>();
      AddChain(first_chain, sums.sum, total);
    }
    StoreSums<Weights, 1, Tile::kRows / 8>(
        product, slice,
        (tile.output + group_tile + warp % kGroupTiles) * kTileOutputs,
        tile.row, total);
  }
  WaitCopies<0>();  // no copy may be under way when the block ends
}

#endif  // NACRE_WIDE_PRODUCTS

template <typename Weights, typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    WideKernel(const Product product) {
#if NACRE_WIDE_PRODUCTS
  extern __shared__ uint4 shared[];
  MultiplyWide<Weights, Tile>(product, shared);
#endif
}

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_WIDE_CUH_
