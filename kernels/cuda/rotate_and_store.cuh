// Rotary embedding of queries, and of keys on their way into the cache.

#ifndef KERNELS_CUDA_ROTATE_AND_STORE_CUH_
#define KERNELS_CUDA_ROTATE_AND_STORE_CUH_

#include <cuda_runtime.h>

#include "kernels/cuda/head_in_cache.cuh"
#include "kernels/cuda/kernel_block.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/paged_kv.h"

namespace nacre::kernels::cuda {

inline constexpr int kRotateThreads = 64;  // pairs of a head of 128

// One block for each pair of a row (x) and a head (y), those of queries first.
template <typename Here, typename Element>
__device__ __forceinline__ void RotateAndStoreHead(
    const Here& here, float* qkv, int num_heads, const float* cos,
    const float* sin, const PagedRows& rows, const PagedKv& kv) {
  here.LaunchDependents();
  here.WaitForPrevious();
  const int row = here.index().x;
  const int head = here.index().y;
  const int half = kv.head_dim / 2;
  const int heads = num_heads + 2 * kv.num_kv_heads;
  float* const x = qkv + (static_cast<size_t>(row) * heads + head) *
                             static_cast<size_t>(kv.head_dim);
  const float* const row_cos = cos + static_cast<size_t>(row) * half;
  const float* const row_sin = sin + static_cast<size_t>(row) * half;
  if (head < num_heads) {
    for (int j = threadIdx.x; j < half; j += kRotateThreads) {
      const Pair turned = Rotate(x[j], x[j + half], row_cos[j], row_sin[j]);
      x[j] = turned.first;
      x[j + half] = turned.second;
    }
    return;
  }
  const float* const value =
      x + static_cast<size_t>(kv.num_kv_heads) * kv.head_dim;
  for (int j = threadIdx.x; j < half; j += kRotateThreads) {
    const Pair turned = Rotate(x[j], x[j + half], row_cos[j], row_sin[j]);
    const Pair values = {value[j], value[j + half]};
    // Found after the loads above: they are on their way meanwhile.
    const HeadInCache<Element> cache(rows, kv, row, head - num_heads);
    cache.StoreKey(j, turned.first);
    cache.StoreKey(j + half, turned.second);
    cache.StoreValue(j, values.first);
    cache.StoreValue(j + half, values.second);
  }
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ROTATE_AND_STORE_CUH_
