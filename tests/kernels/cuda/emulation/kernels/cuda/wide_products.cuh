// Stands in for kernels/cuda/wide_products.cuh where kernels are compiled for
// the emulated device.

#ifndef TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_WIDE_PRODUCTS_CUH_
#define TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_WIDE_PRODUCTS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

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

template <int kCount, int kWidth>
void KeepUntilHere(uint32_t (&)[kCount][kWidth]) {}

template <int kRowTiles>
void TakeSums(float4 (&)[kRowTiles]) {}

template <int kRowTiles>
void MultiplyAddWide(float4 (&sum)[kRowTiles], const uint4* weights,
                     const uint4* rows, int step, bool keep) {
  emulation::MultiplyAddWide(&sum[0].x, kRowTiles, weights, nullptr, rows, step,
                             keep);
}
template <int kRowTiles>
void MultiplyAddWide(float4 (&sum)[kRowTiles], const uint32_t (&weights)[4],
                     const uint4* rows, int step, bool keep) {
  emulation::MultiplyAddWide(&sum[0].x, kRowTiles, nullptr, weights, rows, step,
                             keep);
}

template <int kTiles>
void MultiplyAddColumns(float4 (&sum)[kTiles], const uint32_t (&low)[2],
                        const uint32_t (&high)[2], const uint4* columns,
                        int rows, int step) {
  const uint32_t a[4] = {low[0], low[1], high[0], high[1]};
  emulation::MultiplyAddColumns(&sum[0].x, kTiles, a, columns, rows, step);
}

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_WIDE_PRODUCTS_CUH_
