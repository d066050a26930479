// Weights on the device: float32, or one of the formats that the tensor cores
// multiply (gemm_layout.h).
//
// Immutable once filled, but for what prompts add; own their memory.

#ifndef KERNELS_CUDA_CUDA_MATRIX_H_
#define KERNELS_CUDA_CUDA_MATRIX_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gemm_layout.h"
#include "kernels/cuda/staging.h"
#include "kernels/weight_type.h"

namespace nacre::kernels::cuda {

// Inputs of a product with a format, of which the last are zeros.
inline int PaddedInputs(int cols) {
  return (cols + kVectorInputs - 1) / kVectorInputs * kVectorInputs;
}

// A matrix as cublasLt reads it (cublas_prompts.h).
struct PromptWeights {
  std::unique_ptr<Buffer> rows;  // bf16 [rows, padded_cols]
  std::shared_ptr<const CublasLt::Product> product;
};

class CudaMatrix : public PackedMatrix {
 public:
  // Queues the copy; large weights are read and quantized on all cores of this
  // process. kAuto keeps bf16 where all parts are, else float32.
  // RESOURCE_EXHAUSTED. INVALID_ARGUMENT for a row (of a format 16 rows) of
  // more bytes than a piece of `staging`. Likewise for a weight that is not
  // finite where it would be quantized. `hints` as of ProductOps::PackFor.
  static absl::StatusOr<std::unique_ptr<CudaMatrix>> Create(
      absl::Span<const HostMatrix> parts, WeightType type, Device* device,
      Staging* staging, PackHints hints = {});

  // Bytes that Create takes of the device. Fatal as StackedWeights is.
  static int64_t Bytes(absl::Span<const HostMatrix> parts, WeightType type);

  int rows() const override { return rows_; }
  int cols() const override { return cols_; }
  int64_t size_bytes() const override {
    return static_cast<int64_t>(
        memory_->size_bytes() +
        (scales_ == nullptr ? 0 : scales_->size_bytes()) +
        (prompt_ == nullptr ? 0 : prompt_->rows->size_bytes()));
  }

  // None: float32, row-major.
  absl::optional<GemmFormat> format() const { return format_; }
  // Inputs of the product: with a format a multiple of 8, zeros past cols().
  int padded_cols() const { return padded_cols_; }
  // Outputs that the order of sums follows from (GemmArgs).
  int order_outputs() const { return order_outputs_; }
  // How its outputs lie (gemm_layout.h).
  int pairs_apart() const { return pairs_apart_; }
  const void* data() const { return memory_->data(); }
  // Of fp8 one a row, else null.
  const float* scales() const {
    return scales_ == nullptr ? nullptr : scales_->f32();
  }
  // Null: all rows are multiplied with data().
  const PromptWeights* prompt() const { return prompt_.get(); }
  void set_prompt(std::unique_ptr<PromptWeights> prompt) {
    prompt_ = std::move(prompt);
  }

 private:
  CudaMatrix() = default;

  std::unique_ptr<Buffer> memory_;
  std::unique_ptr<Buffer> scales_;
  std::unique_ptr<PromptWeights> prompt_;
  int rows_ = 0;
  int cols_ = 0;
  int padded_cols_ = 0;
  int order_outputs_ = 0;
  int pairs_apart_ = kPlainPairs;
  absl::optional<GemmFormat> format_;
};

// An embedding table, element for element as in the checkpoint.
class CudaTable : public PackedTable {
 public:
  // Queues the copy. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<CudaTable>> Create(
      const HostMatrix& table, Device* device, Staging* staging);

  int rows() const override { return rows_; }
  int cols() const override { return table_.cols; }
  const DeviceTable& table() const { return table_; }

 private:
  CudaTable() = default;

  std::unique_ptr<Buffer> memory_;
  DeviceTable table_;
  int rows_ = 0;
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_CUDA_MATRIX_H_
