// What surrounds products by cublasLt (cublas_prompts.h): weights as it reads
// them, and rows out of its results.
//
// Each queues one kernel and does not block; what it returns is the launch's.
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_PROMPT_ROWS_H_
#define KERNELS_CUDA_PROMPT_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"

namespace nacre::kernels::cuda {

// Weights of GemmFormat::kBf16 (gemm_layout.h), row after row.
//   packed, pairs_apart as of GemmArgs, out bf16 [outputs, inputs]; inputs a
//   multiple of 8
cudaError_t UnpackRows(const Queue& queue, const void* packed, int outputs,
                       int inputs, int pairs_apart, uint16_t* out);

// out = x + residual, or x where that is null.   x, residual, out [count]
cudaError_t CopyAndAdd(const Queue& queue, const float* x,
                       const float* residual, size_t count, float* out);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_PROMPT_ROWS_H_
