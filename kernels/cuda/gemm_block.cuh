// One block of 64 inputs of the matrix product, on the tensor cores. The
// kernels for few and for many rows have it in common, and with it their bits.

#ifndef KERNELS_CUDA_GEMM_BLOCK_CUH_
#define KERNELS_CUDA_GEMM_BLOCK_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/fused.cuh"
#include "kernels/cuda/gemm_weights.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {

// A lane's share of tiles of 8 rows, from tile `first` on: two steps of a half
// in each four words.
template <int kTiles>
__device__ __forceinline__ void LoadRows(const uint4* activations, int first,
                                         int last_row, int lane,
                                         uint32_t (&x)[kTiles][2][4]) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const int row = min(8 * (first + j) + lane % 8, last_row);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      LoadMatrices(x[j][half],
                   activations + Bf16Slot(row, 4 * half + lane / 8));
    }
  }
}

// to += sums of a group of inputs, times its scales: two bf16, of outputs lane
// / 4 and lane / 4 + 8.
__device__ __forceinline__ void AddScaled(const float4& part, uint32_t scales,
                                          float4& to) {
  const float low = FloatOf(scales << 16);
  const float high = FloatOf(scales & 0xffff0000);
  to = {Fused(part.x, low, to.x), Fused(part.y, low, to.y),
        Fused(part.z, high, to.z), Fused(part.w, high, to.w)};
}

// Adds 16-output tiles x 8-row tiles to sums, in the order
// that gemm_order.h gives; `rows` of the rows are needed. Past the last one
// in memory, `last_row`, stands that one again. Two tiles of rows take turns,
// so that instructions need not wait for the sum of the one before.
template <typename Weights, int kOutputTiles, int kRowTiles>
__device__ __forceinline__ void MultiplyBlock(
    const uint4* weights, const uint4* activations, int rows, int last_row,
    int lane, float4 (&sum)[kOutputTiles][kRowTiles]) {
  constexpr int kTurns = kRowTiles % 2 == 0 ? 2 : 1;
  Fragments fragments[kOutputTiles];
  // Of inputs whose sum begins at zero, to be scaled; else one for all.
  constexpr int kSums = Weights::kGroups > 0 ? Weights::kGroups : 1;
  constexpr int kSumSteps = kSteps / kSums;
  uint32_t scales[kOutputTiles][kSums] = {};
#pragma unroll
  for (int i = 0; i < kOutputTiles; ++i) {
    const uint4* const tile = weights + i * Weights::kVectors;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Weights::LoadHalf(tile, half, lane, fragments[i].halves[half]);
    }
    if constexpr (Weights::kGroups > 0) {
#pragma unroll
      for (int group = 0; group < kSums; ++group) {
        scales[i][group] = Weights::Scales(tile, group, lane);
      }
    }
  }
#pragma unroll
  for (int first = 0; first < kRowTiles; first += kTurns) {
    // Sums of blocks need registers of their own: the branch keeps the compiler
    // from starting so many tiles at once that none are left.
    if (Weights::kGroups > 0 && 8 * first >= rows) break;
    uint32_t x[kTurns][2][4];
    LoadRows(activations, first, last_row, lane, x);
#pragma unroll
    for (int group = 0; group < kSums; ++group) {
      float4 block_sum[kOutputTiles][kTurns];
#pragma unroll
      for (int i = 0; i < kOutputTiles; ++i) {
#pragma unroll
        for (int j = 0; j < kTurns; ++j) {
          block_sum[i][j] =
              Weights::kGroups > 0 ? float4{0, 0, 0, 0} : sum[i][first + j];
        }
      }
#pragma unroll
      for (int of = 0; of < kSumSteps; ++of) {
        const int step = group * kSumSteps + of;
#pragma unroll
        for (int j = 0; j < kTurns; ++j) {
          const uint32_t* const b = x[j][step / 2] + step % 2 * 2;
#pragma unroll
          for (int i = 0; i < kOutputTiles; ++i) {
            const uint32_t(&a)[4] = fragments[i].halves[step / 2][step % 2];
            MultiplyAdd(block_sum[i][j], a[0], a[1], a[2], a[3], b[0], b[1]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kOutputTiles; ++i) {
#pragma unroll
        for (int j = 0; j < kTurns; ++j) {
          float4& to = sum[i][first + j];
          if constexpr (Weights::kGroups > 0) {
            AddScaled(block_sum[i][j], scales[i][group], to);
          } else {
            to = block_sum[i][j];
          }
        }
      }
    }
  }
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_BLOCK_CUH_
