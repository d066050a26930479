// Where a position's key and value lie in a paged layer: as
// kernels/kv_address.h, cut into what a kernel keeps and what it adds.

#ifndef KERNELS_CUDA_KV_ADDRESS_CUH_
#define KERNELS_CUDA_KV_ADDRESS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/paged_kv.h"

namespace nacre::kernels::cuda {

inline constexpr int kValueGroup = 64;  // kKvGroup of kernels/backend.h

// One KV head of one block: elements from PagedKv::blocks.
struct KvPlace {
  size_t keys;
  size_t values;
  int offset;  // of the position in its block
};

__device__ __forceinline__ KvPlace FindPosition(const PagedKv& kv,
                                                const int32_t* table,
                                                int position, int kv_head) {
  const size_t half = static_cast<size_t>(kv.block_size) * kv.head_dim;
  const size_t block = table[position / kv.block_size];
  const size_t keys = (block * kv.num_kv_heads + kv_head) * 2 * half;
  return {keys, keys + half, position % kv.block_size};
}

// Element `d` of a value: a part that depends on d alone, and the width by
// which positions follow each other.
struct ValueColumn {
  size_t begin;
  int width;
};

__device__ __forceinline__ ValueColumn FindColumn(const PagedKv& kv, int d) {
  const int group = d / kValueGroup * kValueGroup;
  return {static_cast<size_t>(group) * kv.block_size + (d - group),
          min(kValueGroup, kv.head_dim - group)};
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_KV_ADDRESS_CUH_
