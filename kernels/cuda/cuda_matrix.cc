#include "kernels/cuda/cuda_matrix.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cpu/stacked_weights.h"
#include "kernels/cuda/gemm_quantization.h"

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

// INVALID_ARGUMENT unless one of what is staged at once fits into a piece.
absl::Status CheckUnit(size_t bytes) {
  if (bytes <= Staging::kPieceBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("weights that are staged at once have ", bytes,
                   " bytes, the limit is ", Staging::kPieceBytes));
}

// Stages `count` units of `unit_bytes`, written by write(unit, memory), as many
// at a time as fit.
absl::Status Upload(int count, size_t unit_bytes,
                    absl::FunctionRef<absl::Status(int, void*)> write,
                    Staging* staging, void* to) {
  const int units_each = static_cast<int>(Staging::kPieceBytes / unit_bytes);
  auto* out = static_cast<char*>(to);
  for (int unit = 0; unit < count; unit += units_each) {
    const int units = std::min(units_each, count - unit);
    const size_t bytes = static_cast<size_t>(units) * unit_bytes;
    auto* const staged = static_cast<char*>(staging->Reserve(bytes));
    for (int i = 0; i < units; ++i) {
      NACRE_RETURN_IF_ERROR(
          write(unit + i, staged + static_cast<size_t>(i) * unit_bytes));
    }
    staging->Send(staged, bytes, out);
    out += bytes;
  }
  return absl::OkStatus();
}

template <typename Element>
absl::Status UploadRows(const StackedWeights& weights, int cols,
                        Staging* staging, void* to) {
  const auto write = [&](int row, void* memory) {
    LoadStacked(weights, row, cols, static_cast<Element*>(memory));
    return absl::OkStatus();
  };
  return Upload(weights.rows(), static_cast<size_t>(cols) * sizeof(Element),
                write, staging, to);
}

// Quantizes and uploads tile by tile. `scales` [rows] is written for fp8.
absl::Status UploadTiles(const StackedWeights& weights, GemmFormat format,
                         Staging* staging, void* to, float* scales) {
  const int cols = weights.cols();
  std::vector<float> tile(static_cast<size_t>(kTileOutputs) *
                          static_cast<size_t>(cols));
  const auto write = [&](int index, void* memory) -> absl::Status {
    const int first = index * kTileOutputs;
    const int count = std::min(kTileOutputs, weights.rows() - first);
    const size_t values =
        static_cast<size_t>(count) * static_cast<size_t>(cols);
    for (int i = 0; i < count; ++i) {
      LoadStacked(weights, first + i, cols,
                  tile.data() + static_cast<size_t>(i) * cols);
    }
    for (size_t i = 0; i < values; ++i) {
      if (std::isfinite(tile[i])) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "weight [", static_cast<size_t>(first) + i / cols, ", ", i % cols,
          "] is ", tile[i], ", which cannot be quantized"));
    }
    const HostMatrix matrix = {DType::kF32, tile.data(), count, cols};
    if (format == GemmFormat::kInt8) {
      QuantizeInt8Tile(matrix, 0, memory);
    } else {
      QuantizeFp8Tile(matrix, 0, memory, scales + first);
    }
    return absl::OkStatus();
  };
  return Upload(GemmTiles(weights.rows()), PackedTileBytes(format, cols), write,
                staging, to);
}

absl::optional<GemmFormat> FormatOf(WeightType type, bool is_bf16) {
  switch (type) {
    case WeightType::kInt8:
      return GemmFormat::kInt8;
    case WeightType::kFp8:
      return GemmFormat::kFp8;
    case WeightType::kBF16:
      return GemmFormat::kBf16;
    case WeightType::kAuto:
      if (is_bf16) return GemmFormat::kBf16;
      break;
    case WeightType::kF32:
    case WeightType::kInt4:
      break;
  }
  return absl::nullopt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaMatrix>> CudaMatrix::Create(
    absl::Span<const HostMatrix> parts, WeightType type, Device* device,
    Staging* staging) {
  const StackedWeights weights(parts);
  std::unique_ptr<CudaMatrix> matrix(new CudaMatrix());
  matrix->rows_ = weights.rows();
  matrix->cols_ = weights.cols();
  matrix->padded_cols_ = weights.cols();
  if (type == WeightType::kInt4) {
    return absl::UnimplementedError("the cuda backend has no int4 weights");
  }
  matrix->format_ = FormatOf(type, weights.is_bf16());
  if (!matrix->format_.has_value()) {
    const size_t row_bytes = sizeof(float) * matrix->cols_;
    NACRE_RETURN_IF_ERROR(CheckUnit(row_bytes));
    NACRE_ASSIGN_OR_RETURN(matrix->memory_,
                           device->Allocate(row_bytes * matrix->rows_));
    NACRE_RETURN_IF_ERROR(UploadRows<float>(weights, matrix->cols_, staging,
                                            matrix->memory_->data()));
    return matrix;
  }
  const GemmFormat format = *matrix->format_;
  matrix->padded_cols_ =
      (weights.cols() + kVectorInputs - 1) / kVectorInputs * kVectorInputs;
  NACRE_RETURN_IF_ERROR(CheckUnit(
      format == GemmFormat::kBf16 ? sizeof(uint16_t) * matrix->padded_cols_
                                  : PackedTileBytes(format, weights.cols())));
  NACRE_ASSIGN_OR_RETURN(
      matrix->memory_, device->Allocate(GemmWeightBytes(format, weights.rows(),
                                                        matrix->padded_cols_)));
  void* const to = matrix->memory_->data();
  if (format == GemmFormat::kBf16) {
    NACRE_RETURN_IF_ERROR(
        UploadRows<uint16_t>(weights, matrix->padded_cols_, staging, to));
    return matrix;
  }
  std::vector<float> scales(static_cast<size_t>(weights.rows()));
  NACRE_RETURN_IF_ERROR(
      UploadTiles(weights, format, staging, to, scales.data()));
  if (format == GemmFormat::kFp8) {
    const size_t bytes = scales.size() * sizeof(float);
    NACRE_ASSIGN_OR_RETURN(matrix->scales_, device->Allocate(bytes));
    staging->Upload(scales.data(), bytes, matrix->scales_->data());
  }
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
