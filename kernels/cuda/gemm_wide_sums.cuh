// What a warpgroup adds to its sums from one stage of WideKernel's shared
// memory (gemm_wide.cuh).

#ifndef KERNELS_CUDA_GEMM_WIDE_SUMS_CUH_
#define KERNELS_CUDA_GEMM_WIDE_SUMS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/gemm_block.cuh"
#include "kernels/cuda/gemm_layout.h"
#include "kernels/cuda/gemm_weights.cuh"
#include "kernels/cuda/wide_products.cuh"

namespace nacre::kernels::cuda {
namespace {  // only gemm.cu includes this

constexpr int kGroupTiles = 4;  // of 16 outputs, of a warpgroup

#if NACRE_WIDE_PRODUCTS

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
    if constexpr (Weights::kGroups > 0) {
      AddGroups(weights, rows);
    } else if constexpr (Weights::kFormat == GemmFormat::kBf16) {
      BeginProducts();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        MultiplyAddWide(sum[0], weights, rows, step, true);
      }
      CommitProducts();
      WaitProducts<1>();
    } else {
      const uint4* const tile = weights + warp_tile_ * Weights::kVectors;
      const auto first = Weights::LoadWords(tile, 0, lane_);
      const auto second = Weights::LoadWords(tile, 1, lane_);
      AddHalf<0>(first, rows);
      WaitProducts<1>();
      KeepUntilHere(halves_[1]);
      AddHalf<1>(second, rows);
      WaitProducts<1>();
      KeepUntilHere(halves_[0]);
    }
  }

  float4 sum[1][kRowTiles];

 private:
  template <int kHalf, typename Words>
  __device__ __forceinline__ void AddHalf(const Words& words,
                                          const uint4* rows) {
    Weights::Widen(words, halves_[kHalf]);
    BeginProducts();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      MultiplyAddWide(sum[0], halves_[kHalf][i], rows, 2 * kHalf + i, true);
    }
    CommitProducts();
  }

  __device__ __forceinline__ void AddGroups(const uint4* weights,
                                            const uint4* rows) {
    const uint4* const tile = weights + warp_tile_ * Weights::kVectors;
    const typename Weights::Words words[2] = {
        Weights::LoadWords(tile, 0, lane_), Weights::LoadWords(tile, 1, lane_)};
    constexpr int kHalves = 2 / Weights::kGroups;  // of a group
#pragma unroll
    for (int group = 0; group < Weights::kGroups; ++group) {
      float4 group_sum[kRowTiles];
#pragma unroll
      for (int of = 0; of < kHalves; ++of) {
        const int half = group * kHalves + of;
        Weights::Widen(words[half], halves_[half]);
        BeginProducts();
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          MultiplyAddWide(group_sum, halves_[half][i], rows, 2 * half + i,
                          of + i > 0);
        }
        CommitProducts();
      }
      const uint32_t scales = Weights::Scales(tile, group, lane_);
      WaitProducts<0>();
      TakeSums(group_sum);
#pragma unroll
      for (int of = 0; of < kHalves; ++of) {
        KeepUntilHere(halves_[group * kHalves + of]);
      }
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) {
        AddScaled(group_sum[j], scales, sum[0][j]);
      }
    }
  }

  const int lane_;
  const int warp_tile_;
  uint32_t halves_[2][2][4] = {};
};

#endif  // NACRE_WIDE_PRODUCTS

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_WIDE_SUMS_CUH_
