// What rows of activations take in each layer of a Llama beside products, norms
// and attention: gate, rounding, bias.

#ifndef KERNELS_CUDA_ROW_KERNELS_CUH_
#define KERNELS_CUDA_ROW_KERNELS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/kernel_block.cuh"
#include "kernels/cuda/math.cuh"

namespace nacre::kernels::cuda {

inline constexpr int kRowThreads = 256;

// One block for each pair of a row (x) and kRowThreads columns (y). Zeros past
// the last column; Element is float or, for bf16, uint16_t.
template <typename Here, typename Element>
__device__ __forceinline__ void GateRow(const Here& here, const float* gate_up,
                                        int cols, int out_cols, Element* out) {
  here.LaunchDependents();
  here.WaitForPrevious();
  const int column = kRowThreads * here.index().y + threadIdx.x;
  if (column >= out_cols) return;
  const size_t row = here.index().x;
  float value = 0;
  if (column < cols) {
    const float* const gates = gate_up + 2 * row * cols + column;
    value = Gated(gates[0], gates[cols]);
  }
  Store(value, out + row * out_cols + column);
}

// Blocks as GateRow's.
template <typename Here>
__device__ __forceinline__ void RoundRow(const Here& here, const float* x,
                                         int cols, int padded_cols,
                                         uint16_t* out) {
  here.LaunchDependents();
  here.WaitForPrevious();
  const int column = kRowThreads * here.index().y + threadIdx.x;
  if (column >= padded_cols) return;
  const size_t row = here.index().x;
  out[row * padded_cols + column] =
      column < cols ? RoundToBF16(x[row * cols + column]) : uint16_t{0};
}

// One block for kRowThreads elements.
template <typename Here>
__device__ __forceinline__ void AddToRow(const Here& here, float* x,
                                         size_t count, int cols,
                                         const float* bias) {
  here.LaunchDependents();
  here.WaitForPrevious();
  const size_t i = size_t{kRowThreads} * here.index().x + threadIdx.x;
  if (i < count) x[i] += bias[i % static_cast<size_t>(cols)];
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ROW_KERNELS_CUH_
