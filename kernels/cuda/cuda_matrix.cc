#include "kernels/cuda/cuda_matrix.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cpu/stacked_weights.h"

namespace nacre::kernels::cuda {
namespace {

constexpr int kVectorInputs = 8;  // bf16 of 16 bytes

void LoadStacked(const StackedWeights& weights, int row, int cols,
                 uint16_t* out) {
  weights.LoadBF16(row, 0, cols, out);
}
void LoadStacked(const StackedWeights& weights, int row, int cols, float* out) {
  weights.Load(row, 0, cols, out);
}

template <typename Element>
void UploadRows(const StackedWeights& weights, int cols, Staging* staging,
                void* to) {
  const size_t width = static_cast<size_t>(cols);
  const int rows_each =
      static_cast<int>(Staging::kPieceBytes / (width * sizeof(Element)));
  auto* out = static_cast<Element*>(to);
  for (int row = 0; row < weights.rows(); row += rows_each) {
    const int count = std::min(rows_each, weights.rows() - row);
    const size_t elements = static_cast<size_t>(count) * width;
    auto* const staged =
        static_cast<Element*>(staging->Reserve(elements * sizeof(Element)));
    for (int i = 0; i < count; ++i) {
      LoadStacked(weights, row + i, cols,
                  staged + static_cast<size_t>(i) * width);
    }
    staging->Send(staged, elements * sizeof(Element), out);
    out += elements;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaMatrix>> CudaMatrix::Create(
    absl::Span<const HostMatrix> parts, WeightType type, Device* device,
    Staging* staging) {
  const StackedWeights weights(parts);
  std::unique_ptr<CudaMatrix> matrix(new CudaMatrix());
  matrix->rows_ = weights.rows();
  matrix->cols_ = weights.cols();
  matrix->is_bf16_ = type == WeightType::kBF16 ||
                     (type == WeightType::kAuto && weights.is_bf16());
  matrix->padded_cols_ =
      matrix->is_bf16_
          ? (matrix->cols_ + kVectorInputs - 1) / kVectorInputs * kVectorInputs
          : matrix->cols_;
  const size_t row_bytes =
      static_cast<size_t>(matrix->padded_cols_) *
      (matrix->is_bf16_ ? sizeof(uint16_t) : sizeof(float));
  if (row_bytes > Staging::kPieceBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows of ", row_bytes, " bytes exceed the limit of ",
                     Staging::kPieceBytes));
  }
  NACRE_ASSIGN_OR_RETURN(
      matrix->memory_,
      device->Allocate(static_cast<size_t>(matrix->rows_) * row_bytes));
  const auto upload =
      matrix->is_bf16_ ? UploadRows<uint16_t> : UploadRows<float>;
  upload(weights, matrix->padded_cols_, staging, matrix->memory_->data());
  return matrix;
}

absl::StatusOr<std::unique_ptr<CudaTable>> CudaTable::Create(
    const HostMatrix& table, Device* device, Staging* staging) {
  std::unique_ptr<CudaTable> result(new CudaTable());
  const size_t bytes = static_cast<size_t>(table.rows) *
                       static_cast<size_t>(table.cols) * SizeOf(table.dtype);
  NACRE_ASSIGN_OR_RETURN(result->memory_, device->Allocate(bytes));
  staging->Upload(table.data, bytes, result->memory_->data());
  result->table_ = {result->memory_->data(), table.dtype, table.cols};
  result->rows_ = table.rows;
  return result;
}

}  // namespace nacre::kernels::cuda
