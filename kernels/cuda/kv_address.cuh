// Where a position's key and value lie in a paged layer: as
// kernels/kv_address.h, cut into what a kernel keeps and what it adds.

#ifndef KERNELS_CUDA_KV_ADDRESS_CUH_
#define KERNELS_CUDA_KV_ADDRESS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/paged_kv.h"

namespace nacre::kernels::cuda {

inline constexpr int kValueGroup = 64;  // kKvGroup of kernels/backend.h

// Where the positions that a row attends to are kept.
struct RowPath {
  const int32_t* table;
  const int32_t* tail;
  int tail_begin;

  __device__ RowPath(const PagedRows& rows, int row)
      : table(rows.tables + rows.table_begins[row]),
        tail(nullptr),
        tail_begin(kNoTail) {
    if (rows.tail_begins == nullptr) return;
    tail = rows.tables + rows.tail_indices[row];
    tail_begin = rows.tail_begins[row];
  }
};

// A position's block and its offset in it.
__device__ __forceinline__ int2 FindBlock(const PagedKv& kv,
                                          const RowPath& path, int position) {
  const bool in_tail = position >= path.tail_begin;
  const int slot = in_tail ? path.tail[position - path.tail_begin] : position;
  const int block = slot / kv.block_size;
  return make_int2(in_tail ? block : path.table[block], slot % kv.block_size);
}

// One KV head of one block: elements from PagedKv::blocks.
struct KvPlace {
  size_t keys;
  size_t values;
  int offset;  // of the position in its block
};

// `place`: of FindBlock.
__device__ __forceinline__ KvPlace FindHead(const PagedKv& kv, int2 place,
                                            int kv_head) {
  const size_t half = static_cast<size_t>(kv.block_size) * kv.head_dim;
  const size_t block = place.x;
  const size_t keys = (block * kv.num_kv_heads + kv_head) * 2 * half;
  return {keys, keys + half, place.y};
}

__device__ __forceinline__ KvPlace FindPosition(const PagedKv& kv,
                                                const RowPath& path,
                                                int position, int kv_head) {
  return FindHead(kv, FindBlock(kv, path, position), kv_head);
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
