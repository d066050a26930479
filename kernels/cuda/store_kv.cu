#include <cuda_runtime.h>

#include "kernels/cuda/kv_address.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/paged_kv.h"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// One block for each pair of a row (x) and a KV head (y).
template <typename Element>
__global__ void __launch_bounds__(kThreads)
    StoreKernel(const float* k, const float* v, int row_stride,
                const PagedRows rows, const PagedKv kv) {
  // Elements of one position that lie together in a key.
  constexpr int kPerWord = sizeof(float) / sizeof(Element);
  LaunchDependents();
  WaitForPrevious();
  const int row = blockIdx.x;
  const int head = blockIdx.y;
  const KvPlace place = FindPosition(kv, rows.tables + rows.table_begins[row],
                                     rows.positions[row], head);
  auto* const keys = static_cast<Element*>(kv.blocks) + place.keys;
  auto* const values = static_cast<Element*>(kv.blocks) + place.values;
  const size_t from = static_cast<size_t>(row) * row_stride +
                      static_cast<size_t>(head) * kv.head_dim;
  for (int d = threadIdx.x; d < kv.head_dim; d += kThreads) {
    const size_t word =
        static_cast<size_t>(d / kPerWord) * kv.block_size + place.offset;
    Store(k[from + d], keys + word * kPerWord + d % kPerWord);
    const ValueColumn column = FindColumn(kv, d);
    Store(v[from + d], values + column.begin +
                           static_cast<size_t>(place.offset) * column.width);
  }
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

}  // namespace nacre::kernels::cuda
