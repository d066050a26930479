// The few instructions that CUDA C++ has no name for, one function each. All
// run on the device, by every thread of a warp unless said otherwise.

#ifndef KERNELS_CUDA_PRIMITIVES_CUH_
#define KERNELS_CUDA_PRIMITIVES_CUH_

#include <cuda_runtime.h>

#include <cstdint>

namespace nacre::kernels::cuda {

// Copies 16 bytes, or writes zeros when `inside` is false.
__device__ __forceinline__ void CopyVector(uint4* shared, const char* global,
                                           bool inside) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address),
               "l"(global), "r"(bytes)
               : "memory");
}

// Likewise 4 bytes.
__device__ __forceinline__ void CopyWord(uint32_t* shared,
                                         const uint32_t* global, bool inside) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = inside ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(address),
               "l"(global), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Lets the next kernel of the stream start fetching what does not depend on us.
__device__ __forceinline__ void LaunchDependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// Returns when the kernel before on the stream is done and its writes are seen.
__device__ __forceinline__ void WaitForPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// A barrier of the first or the second kThreads threads of a block; unlike
// __syncthreads also of warps that come to it in different places. (That takes
// barrier.sync: bar.sync is its aligned form, which all must come to in one
// place.)
template <int kThreads>
__device__ __forceinline__ void GroupBarrier(int group) {
  if (group == 0) {
    asm volatile("barrier.sync 1, %0;\n" ::"n"(kThreads) : "memory");
  } else {
    asm volatile("barrier.sync 2, %0;\n" ::"n"(kThreads) : "memory");
  }
}

// Four matrices of 8 rows x 8 bf16 from shared memory. Lane 8 m + r says where
// row r of matrix m lies, 16 bytes. Lane 4 r + t gets its words t, of matrix m
// in words[m].
__device__ __forceinline__ void LoadMatrices(uint32_t (&words)[4],
                                             const uint4* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
      : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
      : "r"(address)
      : "memory");
}

__device__ __forceinline__ void MultiplyAdd(float4& sum, uint32_t a0,
                                            uint32_t a1, uint32_t a2,
                                            uint32_t a3, uint32_t b0,
                                            uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(sum.x), "+f"(sum.y), "+f"(sum.z), "+f"(sum.w)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Four matrices of 8 x 8 elements of 16 bits: lane 8m + r names row r of matrix
// m, 16 bytes of shared memory. Lane 4g + t gets column g of rows 2t and 2t + 1
// of each, a word.
__device__ __forceinline__ void LoadTransposed(const uint4* row,
                                               uint32_t (&words)[4]) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, "
      "[%4];\n"
      : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
      : "r"(address)
      : "memory");
}

// The larger, NaN where one is.
__device__ __forceinline__ float MaxOrNan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;\n" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

// Two floats as bf16 in one word, rounded to nearest (ties to even). NaN
// becomes 0x7fff.
__device__ __forceinline__ uint32_t RoundedPair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_PRIMITIVES_CUH_
