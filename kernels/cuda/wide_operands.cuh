// What tells a warpgroup's product (wide_products.cuh) where in shared memory
// an operand is: PTX ISA, "Asynchronous warpgroup level matrix shared memory
// layout". The emulated device has these, too, and its products read by them.

#ifndef KERNELS_CUDA_WIDE_OPERANDS_CUH_
#define KERNELS_CUDA_WIDE_OPERANDS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/shared_barriers.cuh"

namespace nacre::kernels::cuda {

// How the instruction is told which of the two an operand is.
constexpr int kOfRows = 0;
constexpr int kOfColumns = 1;

// From vector `first` on, in the swizzle of 128 bytes: 8 rows are 1024 bytes,
// and the next 64 columns, if there are any, `apart` vectors behind.
__device__ __forceinline__ uint64_t WideOperand(const uint4* shared, int first,
                                                int apart) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return kSwizzle128 | uint64_t{1024 / 16} << 32 |
         static_cast<uint64_t>(apart) << 16 |
         ((SharedAddress(shared) & 0x3ffff) / 16 + first);
}

// Step `step` (of 4) of rows of 64 inputs.
__device__ __forceinline__ uint64_t RowsOperand(const uint4* rows, int step) {
  return WideOperand(rows, 2 * step, /*apart=*/1);
}

// Of columns, 64 a row and `rows` rows after each other, then the next 64: the
// rows from 16 `step` on.
__device__ __forceinline__ uint64_t ColumnsOperand(const uint4* columns,
                                                   int rows, int step) {
  return WideOperand(columns, 16 * 8 * step, 8 * rows);
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_WIDE_OPERANDS_CUH_
