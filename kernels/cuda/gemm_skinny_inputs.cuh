// How the product with few rows (gemm_skinny.cuh) gets the rows that it keeps
// in shared memory.

#ifndef KERNELS_CUDA_GEMM_SKINNY_INPUTS_CUH_
#define KERNELS_CUDA_GEMM_SKINNY_INPUTS_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/gemm_layout.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_weights.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/row_norm.cuh"

namespace nacre::kernels::cuda {
namespace {  // only gemm_skinny.cuh and gemm_pairs.cuh include this

// Rounded rows in memory: each warp copies those of its chain.
struct CopiedInputs {
  static constexpr bool kCopied = true;

  struct Begun {};
  __device__ __forceinline__ Begun Begin() const { return {}; }
};

// Rows of float32 that every block norms and rounds by itself, those of a block
// shared out among its groups of warps.
struct NormedInputs {
  static constexpr bool kCopied = false;
  static constexpr int kVectors = 8;
  static_assert(kSkinnyGroupThreads == kNormThreads);

  const float* x;  // [rows, cols]
  const float* weight;
  float epsilon;
  int cols;
  bool vector;  // as of RowNorm

  bool operator==(const NormedInputs&) const = default;

  __device__ __forceinline__ RowNorm<kVectors> Begin() const {
    return RowNorm<kVectors>(cols, weight, epsilon, vector);
  }

  // Writes the rows of slice `slice` to `kept`, block after block, zeros past
  // the last column. `sums`: shared memory of the group, [rows, kNormWarps].
  template <int kGroups, typename Here>
  __device__ __forceinline__ void Write(const Here& here,
                                        const Product& product, int slice,
                                        RowNorm<kVectors>* norm, uint4* kept,
                                        float* sums) const {
    const GemmOrder& order = product.order;
    const int first = slice * order.slice_blocks;
    const int end = min(order.blocks, first + order.slice_blocks);
    const int group = threadIdx.x / kSkinnyGroupThreads;
    const auto meet = [&here, group] {
      if constexpr (kGroups == 1) {
        here.Meet();
      } else {
        GroupBarrier<kSkinnyGroupThreads>(group);
      }
    };
    for (int row = group; row < product.rows; row += kGroups) {
      norm->Run(
          x + static_cast<size_t>(row) * cols, order.blocks * kBlockInputs,
          sums + row * kNormWarps, meet, [&](int i, const float4& four) {
            const int block = i / kBlockInputs;
            if (block < first || block >= end) return;
            uint4* const vector_of_eight =
                kept + (block - first) * product.rows * 8 +
                Bf16Slot(row, i % kBlockInputs / kVectorInputs);
            StoreVector(four,
                        reinterpret_cast<uint16_t*>(vector_of_eight) + i % 8);
          });
    }
    here.Meet();  // all rows are there
  }
};

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_SKINNY_INPUTS_CUH_
