// Products of a CudaBackend: rounds the activations of those that have a
// format, and multiplies by our kernels, or rows of prompts by cublasLt.
//
// A part of CudaBackend, and under its threads.

#ifndef KERNELS_CUDA_CUDA_PRODUCTS_H_
#define KERNELS_CUDA_CUDA_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/types/optional.h"
#include "kernels/backend.h"
#include "kernels/cuda/cublas_prompts.h"
#include "kernels/cuda/cuda_matrix.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_pairs.h"

namespace nacre::kernels::cuda {

// Rows whose rounded activations are kept at a time: the most of a step that a
// worker runs. Decides no bits.
inline constexpr int kPassRows = 512;

inline const float* RowsFrom(const float* x, int first, int cols) {
  return x + static_cast<size_t>(first) * static_cast<size_t>(cols);
}

class CudaProducts {
 public:
  using WriteRounded = CublasPrompts::WriteRounded;

  // `device` outlives it. `fusion` as in CudaBackendOptions; `prompts` may be
  // null.
  CudaProducts(Device* device, bool fusion,
               std::unique_ptr<CublasPrompts> prompts)
      : device_(device), fusion_(fusion), prompts_(std::move(prompts)) {}

  CublasPrompts* prompts() const { return prompts_.get(); }

  // Room for products with `w`. False after an error.
  bool Reserve(const CudaMatrix& w);

  // `residual` may be null in all three.
  void Multiply(const float* x, int rows, const CudaMatrix& w,
                const float* residual, float* y);
  void MultiplyF32(const float* x, int rows, const CudaMatrix& w,
                   const float* residual, float* y);
  void MultiplyRounded(WriteRounded write, int rows, const CudaMatrix& w,
                       const float* residual, float* y);

  // Whether these rows are multiplied by one kernel with what follows, where
  // `pairs_apart` says which outputs it takes together (gemm_pairs.h).
  bool TakesPairs(int rows, const CudaMatrix& w, int pairs_apart) const;
  // y = gated w^T + residual, where gated are GemmAndGate's of the rows' norm.
  // For rows that it takes in pairs; w has a format.
  void MultiplyGated(const NormedRows& in, const CudaMatrix& gate_up,
                     const CudaMatrix& w, const float* residual, float* y);
  // GemmAndRotate of the rows' norm; likewise.
  void MultiplyAndRotate(const NormedRows& in, const CudaMatrix& w,
                         const RotateOutputs& to, float* qkv);

  // Memory for these rows in bf16, of what is queued next and can write them
  // rounded, too; null: they are not wanted.
  uint16_t* RoomForRounded(int rows, int cols) const;
  // They are there: those of `of` [rows, cols]. Multiply takes them if nothing
  // was queued since.
  void KeepRounded(const float* of, int rows, int cols) {
    rounded_ = {of, rows, cols, device_->queued()};
  }

 private:
  struct RoundedRows {
    const float* of = nullptr;
    int rows = 0;
    int cols = 0;
    int64_t queued = 0;  // Device::queued

    bool operator==(const RoundedRows&) const = default;
  };

  bool has_prompts() const {
    return prompts_ != nullptr && !prompts_->runs().empty();
  }
  // Norms and rounds inputs of w, unless the product does that itself: then
  // *norm says so. False after an error.
  bool Normalize(const NormedRows& in, const CudaMatrix& w,
                 absl::optional<NormOfInputs>* norm);
  // Of rows that are rounded where activations_ begins.
  GemmArgs ArgsOf(int rows, const CudaMatrix& w) const;
  uint16_t* rounded() const {
    return static_cast<uint16_t*>(activations_->data());
  }
  bool HasRounded(const float* x, int rows, const CudaMatrix& w) const;
  // Rows [first, end) of it, by our kernels.
  void MultiplyRows(WriteRounded write, int first, int end, const CudaMatrix& w,
                    const float* residual, float* y);

  Device* const device_;
  const bool fusion_;
  const std::unique_ptr<CublasPrompts> prompts_;
  // Of one pass over the largest weights: bf16 activations, and partial sums.
  std::unique_ptr<Buffer> activations_;
  RoundedRows rounded_;  // that activations_ begins with
  std::unique_ptr<Buffer> workspace_;
  std::unique_ptr<Buffer> counters_;  // zeros between products
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_CUDA_PRODUCTS_H_
