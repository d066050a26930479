#include <cuda_runtime.h>

#include "kernels/cuda/head_in_cache.cuh"
#include "kernels/cuda/kernel_block.cuh"
#include "kernels/cuda/paged_kv.h"
#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/rotate_and_store.cuh"

namespace nacre::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// One block for each pair of a row (x) and a KV head (y).
template <typename Element>
__global__ void __launch_bounds__(kThreads)
    StoreKernel(const float* k, const float* v, int row_stride,
                const PagedRows rows, const PagedKv kv) {
  LaunchDependents();
  WaitForPrevious();
  const int row = blockIdx.x;
  const int head = blockIdx.y;
  const HeadInCache<Element> cache(rows, kv, row, head);
  const size_t from = static_cast<size_t>(row) * row_stride +
                      static_cast<size_t>(head) * kv.head_dim;
  for (int d = threadIdx.x; d < kv.head_dim; d += kThreads) {
    cache.StoreKey(d, k[from + d]);
    cache.StoreValue(d, v[from + d]);
  }
}

// One block for each pair of a move (x) and a KV head (y).
template <typename Element>
__global__ void __launch_bounds__(kThreads)
    MoveKernel(const KvMove* moves, const PagedKv kv) {
  LaunchDependents();
  WaitForPrevious();
  const KvMove move = moves[blockIdx.x];
  const int head = blockIdx.y;
  const HeadInCache<Element> from(kv, move.from, head);
  const HeadInCache<Element> to(kv, move.to, head);
  for (int d = threadIdx.x; d < kv.head_dim; d += kThreads) {
    *to.Key(d) = *from.Key(d);
    *to.Value(d) = *from.Value(d);
  }
}

template <typename Element>
__global__ void __launch_bounds__(kRotateThreads)
    RotateAndStoreKernel(float* qkv, int num_heads, const float* cos,
                         const float* sin, const PagedRows rows,
                         const PagedKv kv) {
  RotateAndStoreHead<KernelBlock, Element>({}, qkv, num_heads, cos, sin, rows,
                                           kv);
}

}  // namespace

cudaError_t StoreKeysAndValues(const Queue& queue, const float* k,
                               const float* v, int row_stride,
                               const PagedRows& rows, const PagedKv& kv) {
  const auto kernel =
      kv.type == DType::kBF16 ? StoreKernel<uint16_t> : StoreKernel<float>;
  const dim3 blocks(static_cast<unsigned>(rows.count),
                    static_cast<unsigned>(kv.num_kv_heads));
  return LaunchKernel(queue, {blocks, kThreads}, kernel, k, v, row_stride, rows,
                      kv);
}

cudaError_t MoveKeysAndValues(const Queue& queue, const KvMove* moves,
                              int count, const PagedKv& kv) {
  const auto kernel =
      kv.type == DType::kBF16 ? MoveKernel<uint16_t> : MoveKernel<float>;
  const dim3 blocks(static_cast<unsigned>(count),
                    static_cast<unsigned>(kv.num_kv_heads));
  return LaunchKernel(queue, {blocks, kThreads}, kernel, moves, kv);
}

cudaError_t RotateAndStore(const Queue& queue, float* qkv, int num_heads,
                           const float* cos, const float* sin,
                           const PagedRows& rows, const PagedKv& kv) {
  const bool bf16 = kv.type == DType::kBF16;
  const auto kernel =
      bf16 ? RotateAndStoreKernel<uint16_t> : RotateAndStoreKernel<float>;
  const dim3 blocks(static_cast<unsigned>(rows.count),
                    static_cast<unsigned>(num_heads + kv.num_kv_heads));
  return LaunchKernel(queue,
                      {blocks, kRotateThreads, 0,
                       bf16 ? PhaseKind::kRotateAndStore : PhaseKind::kNone},
                      kernel, qkv, num_heads, cos, sin, rows, kv);
}

}  // namespace nacre::kernels::cuda
