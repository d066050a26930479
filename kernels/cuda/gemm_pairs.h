// Matrix products of few rows whose results are used where they come about.
// That takes both outputs of a pair (gemm_layout.h), which one thread has. Each
// replaces a product and the kernel after it, and passes no f32 results on. The
// bits are those of the two.
//
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_GEMM_PAIRS_H_
#define KERNELS_CUDA_GEMM_PAIRS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/paged_kv.h"

namespace nacre::kernels::cuda {

// Inputs that the product norms itself: the rows that NormalizeAndRoundRows
// (elementwise.h) makes, which then are not args.activations.
struct NormOfInputs {
  const float* x = nullptr;       // [rows, cols]
  const float* weight = nullptr;  // [cols]
  float epsilon = 0;
  int cols = 0;  // PaddedInputs of them are args.inputs
};

// Whether it is worth it: every block norms all rows, where a kernel of its own
// would take each row once.
bool NormsInputs(int rows, int inputs);

// Whether both can be done: rows are at most 16, outputs are in pairs, and a
// block has room for what the kernel keeps. Of several slices the last block
// adds: then there are counters.
bool TakesPairs(const GemmArgs& args);

// Gemm and GateAndRoundRows (elementwise.h). The first half of the outputs are
// gates, args.pairs_apart is as much. No results, no residual.
//   gated  bf16 [rows, outputs / 2]
//   norm   null: the inputs are args.activations
cudaError_t GemmAndGate(const GemmArgs& args, const NormOfInputs* norm,
                        uint16_t* gated, const Queue& queue);

// What RotateAndStore (paged_kv.h) is told.
struct RotateOutputs {
  const float* bias = nullptr;  // [outputs], added first; null: none
  const float* cos = nullptr;   // [rows, head_dim / 2]
  const float* sin = nullptr;
  int num_heads = 0;
  PagedRows rows;
  PagedKv kv;

  bool operator==(const RotateOutputs&) const = default;
};

// Gemm, AddToRows if there is a bias, and RotateAndStore. args.pairs_apart is
// head_dim / 2. Of the results only queries are written. No residual.
cudaError_t GemmAndRotate(const GemmArgs& args, const NormOfInputs* norm,
                          const RotateOutputs& to, const Queue& queue);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_PAIRS_H_
