// One layer's paged KV cache and the rows of a batch, as kernels see them: all
// pointers are the device's. The layout is KvLayer's (kernels/backend.h).

#ifndef KERNELS_CUDA_PAGED_KV_H_
#define KERNELS_CUDA_PAGED_KV_H_

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/kv_layer.h"

namespace nacre::kernels::cuda {

struct PagedKv {
  void* blocks = nullptr;
  int num_kv_heads = 0;
  int block_size = 0;
  int head_dim = 0;  // even for bf16
  DType type = DType::kF32;

  bool operator==(const PagedKv&) const = default;
};

// Where each row stands in its session. Block tables of all sessions lie after
// each other, and after each the tails of its rows (RowContext).
struct PagedRows {
  const int32_t* positions = nullptr;     // [rows]
  const int32_t* table_begins = nullptr;  // [rows]: index into `tables`
  const int32_t* tables = nullptr;
  // [rows]; null where no row has a tail. Index into `tables`: of the tail.
  const int32_t* tail_begins = nullptr;
  const int32_t* tail_indices = nullptr;
  int count = 0;

  bool operator==(const PagedRows&) const = default;
};

// Queues a kernel that writes row i's key and value at its position, rounded to
// nearest (ties to even) where the cache is bf16.
//   k, v: row i at k + i * row_stride, [num_kv_heads * head_dim]
cudaError_t StoreKeysAndValues(const Queue& queue, const float* k,
                               const float* v, int row_stride,
                               const PagedRows& rows, const PagedKv& kv);

// Queues a kernel that copies keys and values as Backend::MoveKv does.
//   moves [count]
cudaError_t MoveKeysAndValues(const Queue& queue, const KvMove* moves,
                              int count, const PagedKv& kv);

// Queues a kernel that turns queries in place, and writes keys, turned, and
// values as StoreKeysAndValues does. `qkv` keeps the keys as they were.
//   qkv [rows, (num_heads + 2 * num_kv_heads) * head_dim]
//   cos, sin [rows, head_dim / 2]
cudaError_t RotateAndStore(const Queue& queue, float* qkv, int num_heads,
                           const float* cos, const float* sin,
                           const PagedRows& rows, const PagedKv& kv);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_PAGED_KV_H_
