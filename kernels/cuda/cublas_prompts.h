// PromptProducts by cublasLt. Weights that are added are kept twice: as our
// kernels read them, and row after row.
//
// A part of CudaBackend, and under its threads.

#ifndef KERNELS_CUDA_CUBLAS_PROMPTS_H_
#define KERNELS_CUDA_CUBLAS_PROMPTS_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/cuda_matrix.h"
#include "kernels/cuda/device.h"
#include "kernels/prompt_products.h"

namespace nacre::kernels::cuda {

class CublasPrompts : public PromptProducts {
 public:
  // Queues what writes rows [first, first + count) of a product's inputs,
  // rounded to bf16 and padded.
  using WriteRounded = absl::FunctionRef<cudaError_t(
      const Queue& queue, int first, int count, uint16_t* out)>;

  // `device` outlives it.
  CublasPrompts(Device* device, std::unique_ptr<CublasLt> library)
      : device_(device), library_(std::move(library)) {}

  absl::Status Add(PackedMatrix* w) override;
  int64_t AddedBytes(int rows, int cols) const override;
  void SetRows(absl::Span<const PromptRun> runs) override;

  absl::Span<const PromptRun> runs() const { return runs_; }
  // What decides bits, as a part of a numerics_id.
  std::string numerics() const;

  // The products of the rows of `run`, to rows of y [rows of the step, w.rows],
  // plus those of `residual`, if it is not null.
  void Multiply(WriteRounded write, const PromptRun& run, const CudaMatrix& w,
                const float* residual, float* y);

 private:
  struct Planned {
    CublasLt::Shape shape;
    std::shared_ptr<const CublasLt::Product> product;
  };

  // One algorithm for a shape.
  absl::StatusOr<std::shared_ptr<const CublasLt::Product>> ProductOf(
      const CublasLt::Shape& shape);
  // False after an error, which the device keeps.
  bool Check(const absl::Status& status);

  Device* const device_;
  const std::unique_ptr<CublasLt> library_;
  std::vector<Planned> planned_;
  std::vector<PromptRun> runs_;
  // A chunk of the largest weights: inputs, and results that are not all
  // wanted. Rows that a product does not need hold what others left.
  std::unique_ptr<Buffer> activations_;
  std::unique_ptr<Buffer> results_;
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_CUBLAS_PROMPTS_H_
