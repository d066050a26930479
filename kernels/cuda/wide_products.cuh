// Products of a warpgroup (4 warps that start at a multiple of 4), from compute
// capability 9.0 with its own instructions (sm_90a): 64 weight rows times 8 to
// 128 activation rows times 16 inputs. They give the bits of MultiplyAdd
// (primitives.cuh), as 1.2e8 random sums on an H200 did.
//
// They run on their own while the warps go on: sums, and first operands in
// registers, must not be touched until WaitProducts; what shared memory holds
// must stay, too.
//
// Operands in shared memory are rows of 64 inputs, 128 bytes each, in the
// swizzle of Bf16Slot (gemm_weights.cuh), at a multiple of 1024 bytes.

#ifndef KERNELS_CUDA_WIDE_PRODUCTS_CUH_
#define KERNELS_CUDA_WIDE_PRODUCTS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/bulk_copies.cuh"

namespace nacre::kernels::cuda {

// Is this compiled for such a device? (Host code is compiled, and never runs.)
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define NACRE_WIDE_PRODUCTS 1
#else
#define NACRE_WIDE_PRODUCTS 0
#endif

#if NACRE_WIDE_PRODUCTS

// By all threads of a warpgroup: so many registers a thread from here on, taken
// from or left to the block's others (all began with the same number).
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void LeaveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

// Before the first product after registers of products were written.
__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

// Those since the last call are a group.
__device__ __forceinline__ void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

// Until at most the last kPending groups are under way.
template <int kPending>
__device__ __forceinline__ void WaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending)
               : "memory");
}

// Step `step` (of 4) of rows of 64 inputs.
__device__ __forceinline__ uint64_t RowsOperand(const uint4* rows, int step) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 / 16} << 32;
  return kSwizzle128 | kEightRows | uint64_t{1} << 16 |
         ((SharedAddress(rows) & 0x3ffff) / 16 + 2 * step);
}

template <int kRowTiles>
struct WideProduct;

template <>
struct WideProduct<4> {
  __device__ __forceinline__ static void Add(float4 (&d)[4], uint64_t weights,
                                             uint64_t rows, int keep) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
        "%14, %15}, "
        "%16, %17, keep, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0].x), "+f"(d[0].y), "+f"(d[0].z), "+f"(d[0].w), "+f"(d[1].x),
          "+f"(d[1].y), "+f"(d[1].z), "+f"(d[1].w), "+f"(d[2].x), "+f"(d[2].y),
          "+f"(d[2].z), "+f"(d[2].w), "+f"(d[3].x), "+f"(d[3].y), "+f"(d[3].z),
          "+f"(d[3].w)
        : "l"(weights), "l"(rows), "r"(keep));
  }
  __device__ __forceinline__ static void Add(float4 (&d)[4],
                                             const uint32_t (&a)[4],
                                             uint64_t rows, int keep) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
        "%14, %15}, "
        "{%16, %17, %18, %19}, %20, keep, 1, 1, 0;\n}\n"
        : "+f"(d[0].x), "+f"(d[0].y), "+f"(d[0].z), "+f"(d[0].w), "+f"(d[1].x),
          "+f"(d[1].y), "+f"(d[1].z), "+f"(d[1].w), "+f"(d[2].x), "+f"(d[2].y),
          "+f"(d[2].z), "+f"(d[2].w), "+f"(d[3].x), "+f"(d[3].y), "+f"(d[3].z),
          "+f"(d[3].w)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows), "r"(keep));
  }
};

template <>
struct WideProduct<8> {
  __device__ __forceinline__ static void Add(float4 (&d)[8], uint64_t weights,
                                             uint64_t rows, int keep) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
        "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
        "%26, %27, %28, %29, %30, %31}, "
        "%32, %33, keep, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0].x), "+f"(d[0].y), "+f"(d[0].z), "+f"(d[0].w), "+f"(d[1].x),
          "+f"(d[1].y), "+f"(d[1].z), "+f"(d[1].w), "+f"(d[2].x), "+f"(d[2].y),
          "+f"(d[2].z), "+f"(d[2].w), "+f"(d[3].x), "+f"(d[3].y), "+f"(d[3].z),
          "+f"(d[3].w), "+f"(d[4].x), "+f"(d[4].y), "+f"(d[4].z), "+f"(d[4].w),
          "+f"(d[5].x), "+f"(d[5].y), "+f"(d[5].z), "+f"(d[5].w), "+f"(d[6].x),
          "+f"(d[6].y), "+f"(d[6].z), "+f"(d[6].w), "+f"(d[7].x), "+f"(d[7].y),
          "+f"(d[7].z), "+f"(d[7].w)
        : "l"(weights), "l"(rows), "r"(keep));
  }
  __device__ __forceinline__ static void Add(float4 (&d)[8],
                                             const uint32_t (&a)[4],
                                             uint64_t rows, int keep) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
        "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
        "%26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, keep, 1, 1, 0;\n}\n"
        : "+f"(d[0].x), "+f"(d[0].y), "+f"(d[0].z), "+f"(d[0].w), "+f"(d[1].x),
          "+f"(d[1].y), "+f"(d[1].z), "+f"(d[1].w), "+f"(d[2].x), "+f"(d[2].y),
          "+f"(d[2].z), "+f"(d[2].w), "+f"(d[3].x), "+f"(d[3].y), "+f"(d[3].z),
          "+f"(d[3].w), "+f"(d[4].x), "+f"(d[4].y), "+f"(d[4].z), "+f"(d[4].w),
          "+f"(d[5].x), "+f"(d[5].y), "+f"(d[5].z), "+f"(d[5].w), "+f"(d[6].x),
          "+f"(d[6].y), "+f"(d[6].z), "+f"(d[6].w), "+f"(d[7].x), "+f"(d[7].y),
          "+f"(d[7].z), "+f"(d[7].w)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows), "r"(keep));
  }
};

template <>
struct WideProduct<16> {
  __device__ __forceinline__ static void Add(float4 (&d)[16], uint64_t weights,
                                             uint64_t rows, int keep) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
        "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
        "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
        "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
        "%62, %63}, "
        "%64, %65, keep, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0].x), "+f"(d[0].y), "+f"(d[0].z), "+f"(d[0].w), "+f"(d[1].x),
          "+f"(d[1].y), "+f"(d[1].z), "+f"(d[1].w), "+f"(d[2].x), "+f"(d[2].y),
          "+f"(d[2].z), "+f"(d[2].w), "+f"(d[3].x), "+f"(d[3].y), "+f"(d[3].z),
          "+f"(d[3].w), "+f"(d[4].x), "+f"(d[4].y), "+f"(d[4].z), "+f"(d[4].w),
          "+f"(d[5].x), "+f"(d[5].y), "+f"(d[5].z), "+f"(d[5].w), "+f"(d[6].x),
          "+f"(d[6].y), "+f"(d[6].z), "+f"(d[6].w), "+f"(d[7].x), "+f"(d[7].y),
          "+f"(d[7].z), "+f"(d[7].w), "+f"(d[8].x), "+f"(d[8].y), "+f"(d[8].z),
          "+f"(d[8].w), "+f"(d[9].x), "+f"(d[9].y), "+f"(d[9].z), "+f"(d[9].w),
          "+f"(d[10].x), "+f"(d[10].y), "+f"(d[10].z), "+f"(d[10].w),
          "+f"(d[11].x), "+f"(d[11].y), "+f"(d[11].z), "+f"(d[11].w),
          "+f"(d[12].x), "+f"(d[12].y), "+f"(d[12].z), "+f"(d[12].w),
          "+f"(d[13].x), "+f"(d[13].y), "+f"(d[13].z), "+f"(d[13].w),
          "+f"(d[14].x), "+f"(d[14].y), "+f"(d[14].z), "+f"(d[14].w),
          "+f"(d[15].x), "+f"(d[15].y), "+f"(d[15].z), "+f"(d[15].w)
        : "l"(weights), "l"(rows), "r"(keep));
  }
  __device__ __forceinline__ static void Add(float4 (&d)[16],
                                             const uint32_t (&a)[4],
                                             uint64_t rows, int keep) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
        "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
        "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
        "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
        "%62, %63}, "
        "{%64, %65, %66, %67}, %68, keep, 1, 1, 0;\n}\n"
        : "+f"(d[0].x), "+f"(d[0].y), "+f"(d[0].z), "+f"(d[0].w), "+f"(d[1].x),
          "+f"(d[1].y), "+f"(d[1].z), "+f"(d[1].w), "+f"(d[2].x), "+f"(d[2].y),
          "+f"(d[2].z), "+f"(d[2].w), "+f"(d[3].x), "+f"(d[3].y), "+f"(d[3].z),
          "+f"(d[3].w), "+f"(d[4].x), "+f"(d[4].y), "+f"(d[4].z), "+f"(d[4].w),
          "+f"(d[5].x), "+f"(d[5].y), "+f"(d[5].z), "+f"(d[5].w), "+f"(d[6].x),
          "+f"(d[6].y), "+f"(d[6].z), "+f"(d[6].w), "+f"(d[7].x), "+f"(d[7].y),
          "+f"(d[7].z), "+f"(d[7].w), "+f"(d[8].x), "+f"(d[8].y), "+f"(d[8].z),
          "+f"(d[8].w), "+f"(d[9].x), "+f"(d[9].y), "+f"(d[9].z), "+f"(d[9].w),
          "+f"(d[10].x), "+f"(d[10].y), "+f"(d[10].z), "+f"(d[10].w),
          "+f"(d[11].x), "+f"(d[11].y), "+f"(d[11].z), "+f"(d[11].w),
          "+f"(d[12].x), "+f"(d[12].y), "+f"(d[12].z), "+f"(d[12].w),
          "+f"(d[13].x), "+f"(d[13].y), "+f"(d[13].z), "+f"(d[13].w),
          "+f"(d[14].x), "+f"(d[14].y), "+f"(d[14].z), "+f"(d[14].w),
          "+f"(d[15].x), "+f"(d[15].y), "+f"(d[15].z), "+f"(d[15].w)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows), "r"(keep));
  }
};

// sum of 64 weight rows x 8 kRowTiles activation rows = (keep ? sum : 0) +
// weights x rows, of step `step`. The first operand: rows in shared memory, or
// this warp's 16 of them in registers, as MultiplyAdd has them.
template <int kRowTiles>
__device__ __forceinline__ void MultiplyAddWide(float4 (&sum)[kRowTiles],
                                                const uint4* weights,
                                                const uint4* rows, int step,
                                                bool keep) {
  WideProduct<kRowTiles>::Add(sum, RowsOperand(weights, step),
                              RowsOperand(rows, step), keep);
}
template <int kRowTiles>
__device__ __forceinline__ void MultiplyAddWide(float4 (&sum)[kRowTiles],
                                                const uint32_t (&weights)[4],
                                                const uint4* rows, int step,
                                                bool keep) {
  WideProduct<kRowTiles>::Add(sum, weights, RowsOperand(rows, step), keep);
}

#endif  // NACRE_WIDE_PRODUCTS

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_WIDE_PRODUCTS_CUH_
