// Skinny matrix product on NVIDIA GPUs (sm_80 and later): 1 to 16 rows of
// activations, a large bf16 weight matrix that every step reads from memory
// once. y[rows, outputs] = x[rows, inputs] W[outputs, inputs]^T.
//
// Batch-invariant: a row's result has the same bits for any number of rows,
// whatever the other rows hold and wherever the row stands. The order in which
// an output element is summed depends on (outputs, inputs) only:
//   1. inputs are cut into `SkinnyGemmSplits` contiguous slices of whole blocks
//      of 64;
//   2. warp w of 8 adds blocks w, w + 8, ... of a slice in that order, on the
//      tensor cores (m16n8k16, f32 accumulators);
//   3. the 8 sums are added in the order of the warps, then the slices in
//   theirs.
// The number of multiprocessors decides which block computes an element, never
// how.
//
// Needs up to 152 KB of shared memory a block. Up to 16 rows cost one pass over
// the weights where they fit too (up to 224 KB, as sm_90 has); elsewhere 9 to
// 16 rows cost two.
//
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_SKINNY_GEMM_H_
#define KERNELS_CUDA_SKINNY_GEMM_H_

#include <cuda_runtime_api.h>

#include <cstddef>

namespace nacre::kernels::cuda {

inline constexpr int kSkinnyGemmMaxRows = 16;

// Device pointers, not owned; they must live until the stream has passed the
// product.
struct SkinnyGemmArgs {
  const void* weights = nullptr;      // bf16 [outputs, inputs], 16-byte aligned
  const void* activations = nullptr;  // bf16 [rows, inputs], 16-byte aligned
  float* results = nullptr;           // f32 [rows, outputs]
  // SkinnyGemmWorkspaceBytes bytes; may be null when that is 0. Products on one
  // stream may share it.
  void* workspace = nullptr;
  int outputs = 0;
  int inputs = 0;  // a multiple of 8
  int rows = 0;    // 1 to kSkinnyGemmMaxRows
  // On sm_90 and later: start fetching weights while the kernel before it on
  // the stream still runs. That kernel must not write the weights.
  bool overlap_previous = true;
};

// Slices that the inputs are cut into. A function of the shape alone: it
// decides bits.
int SkinnyGemmSplits(int outputs, int inputs);

// Bytes of workspace for up to kSkinnyGemmMaxRows rows.
size_t SkinnyGemmWorkspaceBytes(int outputs, int inputs);

// Queues the product on `stream` of the current device; does not block.
// cudaErrorInvalidValue: a shape, pointer or alignment that is not as above.
// Else what the launch says (cudaErrorInvalidValue too when the device has too
// little shared memory). Threads: any, on streams of their own.
cudaError_t SkinnyGemm(const SkinnyGemmArgs& args, cudaStream_t stream);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_SKINNY_GEMM_H_
