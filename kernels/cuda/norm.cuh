// The norm of rows or heads by their root mean square, a block each.

#ifndef KERNELS_CUDA_NORM_CUH_
#define KERNELS_CUDA_NORM_CUH_

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/cuda/kernel_block.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/row_norm.cuh"

namespace nacre::kernels::cuda {

// One block for each pair of a row (x) and a head of it (y), which has `cols`
// elements. Zeros past the last column; Element is float or, for bf16,
// uint16_t. `vector`: all rows are aligned to four elements. The first weights
// are loaded while the kernel before still runs.
template <typename Here, typename Element, int kVectors>
__device__ __forceinline__ void NormalizeHead(const Here& here, const float* x,
                                              int row_stride, int cols,
                                              const float* weight,
                                              float epsilon, Element* out,
                                              int out_stride, int out_cols,
                                              bool vector) {
  here.LaunchDependents();
  RowNorm<kVectors> norm(cols, weight, epsilon, vector);
  here.WaitForPrevious();
  const dim3 index = here.index();
  const size_t head = static_cast<size_t>(index.y) * cols;
  Element* const to = out + static_cast<size_t>(index.x) * out_stride + head;
  norm.Run(
      x + static_cast<size_t>(index.x) * row_stride + head, out_cols,
      reinterpret_cast<float*>(here.shared), [&here] { here.Meet(); },
      [&](int i, const float4& four) {
        StoreFour(four, out_cols - i, vector, to + i);
      });
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_NORM_CUH_
