// Matrix product with float32 weights: exact weights where a checkpoint has
// them, at the price of twice bf16's memory traffic. y = x W^T.
//
// Batch-invariant: lane l of a warp sums inputs 4 l + 128 i + {0, 1, 2, 3}, i
// rising, in four sums of fused multiply-adds. These are added, then the lanes
// in a tree. No step knows of other rows.
//
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_F32_GEMM_H_
#define KERNELS_CUDA_F32_GEMM_H_

#include "kernels/cuda/launch.h"

namespace nacre::kernels::cuda {

// Queues the product; does not block. Pointers are the device's.
//   x [rows, inputs], weights [outputs, inputs], y [rows, outputs]
//   residual [rows, outputs], added last, or null
cudaError_t F32Gemm(const Queue& queue, const float* x, int rows,
                    const float* weights, int outputs, int inputs,
                    const float* residual, float* y);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_F32_GEMM_H_
