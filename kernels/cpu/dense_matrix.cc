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
  const size_t block = 2 * static_cast<size_t>(kernels.lanes);
  packed->shape_.panels = (packed->rows_ + kPanelOutputs - 1) / kPanelOutputs;
  packed->shape_.blocks = (packed->cols_ + block - 1) / block;
  const size_t element_size = packed->is_bf16_ ? 2 : sizeof(float);
  const size_t blocks = packed->shape_.panels * packed->shape_.blocks;
  const size_t bytes = blocks * kPanelOutputs * block * element_size;
  NACRE_ASSIGN_OR_RETURN(packed->memory_,
                         AllocateHostBuffer(bytes + kPrefetchBytes));

  std::vector<float> values(packed->shape_.blocks *
                            block);  // zeros behind cols
  int out_row = 0;
  for (const HostMatrix& part : parts) {
    for (int row = 0; row < part.rows; ++row, ++out_row) {
      LoadRow(part, row, values.data());
      packed->PackRow(values.data(), out_row);
    }
  }
  return packed;
}

// values [blocks * 2 * lanes]
void DenseMatrix::PackRow(const float* values, int row) {
  const size_t width = static_cast<size_t>(kernels_.lanes);
  const int panel = row / kPanelOutputs;
  const size_t output = row % kPanelOutputs;
  const size_t block_words = (is_bf16_ ? 1 : 2) * kPanelOutputs * width;
  for (size_t b = 0; b < shape_.blocks; ++b, values += 2 * width) {
    const size_t word =
        shape_.BlockIndex(panel, b) * block_words + output * width;
    if (is_bf16_) {
      uint32_t* out = static_cast<uint32_t*>(memory_->data()) + word;
      for (size_t lane = 0; lane < width; ++lane) {
        out[lane] = uint32_t{ToBF16(values[lane])} |
                    (uint32_t{ToBF16(values[width + lane])} << 16);
      }
    } else {
      float* out = memory_->f32() + word;
      std::copy_n(values, width, out);
      std::copy_n(values + width, width, out + kPanelOutputs * width);
    }
  }
}

RowTiling DenseMatrix::Tiling(int rows) const {
  return RowTiling(rows,
                   is_bf16_ ? kernels_.tile_rows_bf16 : kernels_.tile_rows_f32);
}

size_t DenseMatrix::ActivationBytes(int rows) const {
  return rows * shape_.blocks * 2 * kernels_.lanes * sizeof(float);
}

void DenseMatrix::PackActivations(const float* x, int rows, int tile_begin,
                                  int tile_end, void* packed) const {
  kernels_.pack(x, Tiling(rows), tile_begin, tile_end, cols_,
                static_cast<float*>(packed));
}

void DenseMatrix::Multiply(const void* packed, int rows, int unit_begin,
                           int unit_end, float* y) const {
  GemmArgs args;
  args.weights = memory_->data();
  args.activations = static_cast<const float*>(packed);
  args.rows = rows;
  args.outputs = rows_;
  args.shape = shape_;
  args.y = y;
  const auto multiply =
      is_bf16_ ? kernels_.multiply_bf16 : kernels_.multiply_f32;
  multiply(args, unit_begin, unit_end);
}

}  // namespace nacre::kernels
