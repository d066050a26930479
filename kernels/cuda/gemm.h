// Matrix product on NVIDIA GPUs (sm_80 and later):
//   y[rows, outputs] = x[rows, inputs] W[outputs, inputs]^T [+ residual]
// Activations are bf16, sums f32 and weights bf16, fp8, int8 or int4
// (gemm_layout.h). Weights of 8 or 4 bits are widened to bf16, exactly, on
// their way to the tensor cores. Up to 64 rows read every weight from memory
// once.
//
// Batch-invariant: a row's result has the same bits for any number of rows,
// whatever the other rows hold and wherever the row stands (gemm_order.h).
//
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_GEMM_H_
#define KERNELS_CUDA_GEMM_H_

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/cuda/gemm_layout.h"
#include "kernels/cuda/launch.h"

namespace nacre::kernels::cuda {

inline constexpr int kGemmCounters = 1024;

// Device pointers, not owned; they must live until the stream has passed the
// product.
struct GemmArgs {
  GemmFormat format = GemmFormat::kBf16;
  const void* weights = nullptr;      // GemmWeightBytes, 16-byte aligned
  const float* scales = nullptr;      // kFp8 only: [outputs]
  const void* activations = nullptr;  // bf16 [rows, inputs], 16-byte aligned
  float* results = nullptr;           // f32 [rows, outputs]
  // f32 [rows, outputs], added last: the bits are those of a product and an
  // addition of its own. Apart from `results`; null: nothing is added.
  const float* residual = nullptr;
  // GemmWorkspaceBytes bytes; may be null when that is 0. Products on one
  // stream may share it.
  void* workspace = nullptr;
  // kGemmCounters zeros, and zeros again behind the product; shared as
  // `workspace` is. Up to 16 rows the last block of some outputs then adds
  // their slices. Null: a kernel of its own does. The bits are the same.
  unsigned* counters = nullptr;
  int outputs = 0;
  int pairs_apart = kPlainPairs;  // gemm_layout.h: how weights are packed
  // That the order follows from, of a matrix of which this is a share; 0:
  // those above.
  int order_outputs = 0;
  int inputs = 0;  // a multiple of 8
  int rows = 0;    // 1 or more
};

// Bytes of workspace with which any number of rows up to `rows` can be
// multiplied; no more is needed beyond 256 rows.
size_t GemmWorkspaceBytes(GemmFormat format, int outputs, int inputs, int rows,
                          int order_outputs = 0);

// Queues the product on a stream of the current device; does not block. With
// queue.overlap, on sm_90 and later, weights are fetched while the kernel
// before it still runs. That kernel must not write them. cudaErrorInvalidValue:
// a shape, pointer or alignment that is not as above, or a device whose blocks
// have less than 48 KB of shared memory. Else what the launch says. Threads:
// any, on streams of their own.
cudaError_t Gemm(const GemmArgs& args, const Queue& queue);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_H_
