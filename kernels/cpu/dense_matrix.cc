#include "kernels/cpu/dense_matrix.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/status_macros.h"

namespace nacre::kernels {

absl::StatusOr<std::unique_ptr<DenseMatrix>> DenseMatrix::Create(
    absl::Span<const HostMatrix> parts, WeightType type,
    const GemmKernels& kernels) {
  std::unique_ptr<DenseMatrix> packed(new DenseMatrix(kernels));
  packed->rows_ = CheckedTotalRows(parts);
  packed->cols_ = parts[0].cols;
  packed->is_bf16_ =
      type == WeightType::kBF16 ||
      (type == WeightType::kAuto &&
       std::all_of(parts.begin(), parts.end(), [](const HostMatrix& part) {
         return part.dtype == DType::kBF16;
       }));
  packed->cells_ = static_cast<size_t>((packed->cols_ + kDenseCellInputs - 1) /
                                       kDenseCellInputs);
  const size_t inputs = packed->cells_ * kDenseCellInputs;
  const size_t bytes = packed->num_units() * inputs * packed->unit_outputs() *
                       (packed->is_bf16_ ? sizeof(uint16_t) : sizeof(float));
  NACRE_ASSIGN_OR_RETURN(packed->memory_,
                         AllocateHostBuffer(bytes + kPrefetchBytes));

  std::vector<float> values(inputs);  // zeros behind cols
  int out_row = 0;
  for (const HostMatrix& part : parts) {
    for (int row = 0; row < part.rows; ++row, ++out_row) {
      LoadRow(part, row, values.data());
      packed->PackRow(values.data(), out_row);
    }
  }
  return packed;
}

// values [cells * 8]
void DenseMatrix::PackRow(const float* values, int row) {
  const size_t outputs = unit_outputs();
  const size_t unit = static_cast<size_t>(row) / outputs;
  const size_t inputs = cells_ * kDenseCellInputs;
  size_t index = unit * inputs * outputs + row % outputs;
  if (is_bf16_) {  // pairs of inputs
    auto* const words = static_cast<uint32_t*>(memory_->data());
    index = unit * inputs / 2 * outputs + row % outputs;
    for (size_t k = 0; k < inputs; k += 2, index += outputs) {
      words[index] =
          uint32_t{ToBF16(values[k])} | (uint32_t{ToBF16(values[k + 1])} << 16);
    }
  } else {
    float* const floats = memory_->f32();
    for (size_t k = 0; k < inputs; ++k, index += outputs) {
      floats[index] = values[k];
    }
  }
}

int DenseMatrix::num_units() const {
  const int outputs = static_cast<int>(unit_outputs());
  return (rows_ + outputs - 1) / outputs;
}

RowTiling DenseMatrix::Tiling(int rows) const {
  return RowTiling(rows,
                   is_bf16_ ? kernels_.tile_rows_bf16 : kernels_.tile_rows_f32);
}

size_t DenseMatrix::ActivationBytes(int rows) const {
  return rows * cells_ * kDenseCellInputs * sizeof(float);
}

void DenseMatrix::PackActivations(const float* x, int rows, int tile_begin,
                                  int tile_end, void* packed) const {
  kernels_.pack(x, Tiling(rows), tile_begin, tile_end, cols_,
                static_cast<float*>(packed));
}

void DenseMatrix::Multiply(const void* packed, int rows, int unit_begin,
                           int unit_end, float* y) const {
  GemmArgs args;
  args.weights = static_cast<const char*>(memory_->data());
  args.activations = static_cast<const char*>(packed);
  args.rows = rows;
  args.outputs = rows_;
  args.cells = cells_;
  args.y = y;
  const auto multiply =
      is_bf16_ ? kernels_.multiply_bf16 : kernels_.multiply_f32;
  multiply(args, unit_begin, unit_end);
}

}  // namespace nacre::kernels
