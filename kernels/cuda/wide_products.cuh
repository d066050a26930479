// Products of a warpgroup (4 warps that start at a multiple of 4), from compute
// capability 9.0 with its own instructions (sm_90a). Each is 64 weight rows
// times 8 to 128 activation rows times 16 inputs. They give the bits of
// MultiplyAdd (primitives.cuh), as 1.2e8 random sums on an H200 did.
//
// They run on their own while the warps go on. So sums, and first operands in
// registers, must not be touched until WaitProducts. What shared memory holds
// must stay, too.
//
// Operands in shared memory are rows of 64 inputs, 128 bytes each, in the
// swizzle of Bf16Slot (gemm_weights.cuh), at a multiple of 1024 bytes. Or they
// are columns: each row has 64 of them, of one input.

#ifndef KERNELS_CUDA_WIDE_PRODUCTS_CUH_
#define KERNELS_CUDA_WIDE_PRODUCTS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/wide_operands.cuh"

namespace nacre::kernels::cuda {

// Is this compiled for such a device? (Host code is compiled, and never runs.)
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define NACRE_WIDE_PRODUCTS 1
#else
#define NACRE_WIDE_PRODUCTS 0
#endif

// Stores a word of an operand in shared memory: see ShowToProducts.
__device__ __forceinline__ void StoreForProducts(uint32_t* to, uint32_t word) {
  *to = word;
}

#if NACRE_WIDE_PRODUCTS

// By all threads of a warpgroup: so many registers a thread from here on. They
// are taken from or left to the block's others (all began with the same
// number).
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

// By each thread that wrote an operand to shared memory, or had it copied there
// by cp.async, when that is done: products that come behind a barrier see it.
// (What the copy engine brings they see without.)
__device__ __forceinline__ void ShowToProducts() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// Keeps first operands in their registers until here.
template <int kCount, int kWidth>
__device__ __forceinline__ void KeepUntilHere(
    uint32_t (&values)[kCount][kWidth]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) asm volatile("" : "+r"(values[i][j]));
  }
}

// Sums after their products were waited for: nothing reads them before.
template <int kRowTiles>
__device__ __forceinline__ void TakeSums(float4 (&sums)[kRowTiles]) {
#pragma unroll
  for (float4& sum : sums) {
    asm volatile("" : "+f"(sum.x), "+f"(sum.y), "+f"(sum.z), "+f"(sum.w));
  }
}

template <int kRowTiles>
struct WideProduct;

// Sums of 4, 8 and 16 tiles of rows, in the text of an instruction and as its
// operands.
#define NACRE_SUMS_4               \
  "%0, %1, %2, %3, %4, %5, %6, %7" \
  ", %8, %9, %10, %11, %12, %13, %14, %15"
#define NACRE_SUMS_8                         \
  NACRE_SUMS_4                               \
  ", %16, %17, %18, %19, %20, %21, %22, %23" \
  ", %24, %25, %26, %27, %28, %29, %30, %31"
#define NACRE_SUMS_16                        \
  NACRE_SUMS_8                               \
  ", %32, %33, %34, %35, %36, %37, %38, %39" \
  ", %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55" \
  ", %56, %57, %58, %59, %60, %61, %62, %63"
#define NACRE_SUM(i) "+f"(d[i].x), "+f"(d[i].y), "+f"(d[i].z), "+f"(d[i].w)
#define NACRE_OPERANDS_4(i) \
  NACRE_SUM(i), NACRE_SUM(i + 1), NACRE_SUM(i + 2), NACRE_SUM(i + 3)
#define NACRE_OPERANDS_8(i) NACRE_OPERANDS_4(i), NACRE_OPERANDS_4(i + 4)
#define NACRE_OPERANDS_16(i) NACRE_OPERANDS_8(i), NACRE_OPERANDS_8(i + 8)

// WideProduct<tiles> of `columns` rows; n0 to n6 are the numbers of the
// operands after the sums.
#define NACRE_WIDE_PRODUCT(tiles, columns, n0, n1, n2, n3, n4, n5, n6)         \
  template <>                                                                  \
  struct WideProduct<tiles> {                                                  \
    __device__ __forceinline__ static void Add(float4 (&d)[tiles],             \
                                               uint64_t weights,               \
                                               uint64_t rows, int keep) {      \
      asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" n2               \
                   ", 0;\n"                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" columns                 \
                   "k16.f32.bf16.bf16 {" NACRE_SUMS_##tiles                    \
                   "}, %" n0 ", %" n1 ", keep, 1, 1, %" n3 ", %" n3 ";\n}\n"   \
                   : NACRE_OPERANDS_##tiles(0)                                 \
                   : "l"(weights), "l"(rows), "r"(keep), "n"(kOfRows));        \
    }                                                                          \
    __device__ __forceinline__ static void Add(float4 (&d)[tiles],             \
                                               const uint32_t (&a)[4],         \
                                               uint64_t rows, int keep) {      \
      asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" n5               \
                   ", 0;\n"                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" columns                 \
                   "k16.f32.bf16.bf16 {" NACRE_SUMS_##tiles                    \
                   "}, {%" n0 ", %" n1 ", %" n2 ", %" n3 "}, %" n4             \
                   ", keep, 1, 1, %" n6 ";\n}\n"                               \
                   : NACRE_OPERANDS_##tiles(0)                                 \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows),    \
                     "r"(keep), "n"(kOfRows));                                 \
    }                                                                          \
    __device__ __forceinline__ static void AddColumns(                         \
        float4 (&d)[tiles], uint32_t a0, uint32_t a1, uint32_t a2,             \
        uint32_t a3, uint64_t columns_at) {                                    \
      asm volatile(                                                            \
          "{\n.reg .pred keep;\nsetp.eq.u32 keep, 0, 0;\n"                     \
          "wgmma.mma_async.sync.aligned.m64n" columns                          \
          "k16.f32.bf16.bf16 {" NACRE_SUMS_##tiles "}, {%" n0 ", %" n1         \
                                                   ", %" n2 ", %" n3 "}, %" n4 \
                                                   ", keep, 1, 1, 1;\n}\n"     \
          : NACRE_OPERANDS_##tiles(0)                                          \
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(columns_at));              \
    }                                                                          \
  }
NACRE_WIDE_PRODUCT(4, "32", "16", "17", "18", "19", "20", "21", "22");
NACRE_WIDE_PRODUCT(8, "64", "32", "33", "34", "35", "36", "37", "38");
NACRE_WIDE_PRODUCT(16, "128", "64", "65", "66", "67", "68", "69", "70");
#undef NACRE_WIDE_PRODUCT
#undef NACRE_OPERANDS_16
#undef NACRE_OPERANDS_8
#undef NACRE_OPERANDS_4
#undef NACRE_SUM
#undef NACRE_SUMS_16
#undef NACRE_SUMS_8
#undef NACRE_SUMS_4

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

// sum of 64 weight rows x 8 kTiles columns += weights (in registers as above) x
// 16 rows of the columns.
template <int kTiles>
__device__ __forceinline__ void MultiplyAddColumns(float4 (&sum)[kTiles],
                                                   const uint32_t (&low)[2],
                                                   const uint32_t (&high)[2],
                                                   const uint4* columns,
                                                   int rows, int step) {
  WideProduct<kTiles>::AddColumns(sum, low[0], low[1], high[0], high[1],
                                  ColumnsOperand(columns, rows, step));
}

#endif  // NACRE_WIDE_PRODUCTS

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_WIDE_PRODUCTS_CUH_
