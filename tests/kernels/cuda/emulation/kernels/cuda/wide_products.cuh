// Stands in for kernels/cuda/wide_products.cuh where kernels are compiled for
// the emulated device.

#ifndef TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_WIDE_PRODUCTS_CUH_
#define TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_WIDE_PRODUCTS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/wide_operands.cuh"
#include "tests/kernels/cuda/emulation/machine.h"

#define NACRE_WIDE_PRODUCTS 1

namespace nacre::kernels::cuda {

template <int kRegisters>
void TakeRegisters() {}
template <int kRegisters>
void LeaveRegisters() {}

inline void BeginProducts() {}
inline void CommitProducts() { emulation::CommitProducts(); }
template <int kPending>
void WaitProducts() {
  emulation::WaitProducts(kPending);
}

inline void ShowToProducts() { emulation::ShowToProducts(); }
inline void StoreForProducts(uint32_t* to, uint32_t word) {
  emulation::StoreForProducts(to, word);
}

template <int kCount, int kWidth>
void KeepUntilHere(uint32_t (&)[kCount][kWidth]) {}

template <int kRowTiles>
void TakeSums(float4 (&)[kRowTiles]) {}

template <int kRowTiles>
void MultiplyAddWide(float4 (&sum)[kRowTiles], const uint4* weights,
                     const uint4* rows, int step, bool keep) {
  const emulation::SharedMatrix left = {RowsOperand(weights, step), kOfRows,
                                        weights};
  emulation::MultiplyAddWide(&sum[0].x, kRowTiles, &left, {},
                             {RowsOperand(rows, step), kOfRows, rows}, keep);
}
template <int kRowTiles>
void MultiplyAddWide(float4 (&sum)[kRowTiles], const uint32_t (&weights)[4],
                     const uint4* rows, int step, bool keep) {
  emulation::MultiplyAddWide(&sum[0].x, kRowTiles, nullptr,
                             {weights, weights + 1, weights + 2, weights + 3},
                             {RowsOperand(rows, step), kOfRows, rows}, keep);
}

template <int kTiles>
void MultiplyAddColumns(float4 (&sum)[kTiles], const uint32_t (&low)[2],
                        const uint32_t (&high)[2], const uint4* columns,
                        int rows, int step) {
  emulation::MultiplyAddWide(
      &sum[0].x, kTiles, nullptr, {low, low + 1, high, high + 1},
      {ColumnsOperand(columns, rows, step), kOfColumns, columns},
      /*keep=*/true);
}

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_WIDE_PRODUCTS_CUH_
