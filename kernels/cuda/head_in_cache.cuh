// Where one KV head of one position is written, and read one element at a time.

#ifndef KERNELS_CUDA_HEAD_IN_CACHE_CUH_
#define KERNELS_CUDA_HEAD_IN_CACHE_CUH_

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/cuda/kv_address.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/paged_kv.h"

namespace nacre::kernels::cuda {

// Element is float, or uint16_t for bf16.
template <typename Element>
class HeadInCache {
 public:
  __device__ HeadInCache(const PagedRows& rows, const PagedKv& kv, int row,
                         int head)
      : kv_(kv),
        place_(
            FindPosition(kv, RowPath(rows, row), rows.positions[row], head)) {}
  __device__ HeadInCache(const PagedKv& kv, KvSlot slot, int head)
      : HeadInCache(kv, make_int2(slot / kv.block_size, slot % kv.block_size),
                    head) {}
  // `block`: of FindBlock.
  __device__ HeadInCache(const PagedKv& kv, int2 block, int head)
      : kv_(kv), place_(FindHead(kv, block, head)) {}

  __device__ void StoreKey(int d, float value) const { Store(value, Key(d)); }
  __device__ void StoreValue(int d, float value) const {
    Store(value, Value(d));
  }
  // Element d of a key, and of a value.
  __device__ Element* Key(int d) const {
    // Elements of one position that lie together in a key.
    constexpr int kPerWord = sizeof(float) / sizeof(Element);
    const size_t word =
        static_cast<size_t>(d / kPerWord) * kv_.block_size + place_.offset;
    return Elements() + place_.keys + word * kPerWord + d % kPerWord;
  }
  __device__ Element* Value(int d) const {
    const ValueColumn column = FindColumn(kv_, d);
    return Elements() + place_.values + column.begin +
           static_cast<size_t>(place_.offset) * column.width;
  }

 private:
  __device__ Element* Elements() const {
    return static_cast<Element*>(kv_.blocks);
  }

  const PagedKv& kv_;
  const KvPlace place_;
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_HEAD_IN_CACHE_CUH_
