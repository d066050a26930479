#include "kernels/cpu/quantized_matrix.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cpu/row_tiling.h"
#include "kernels/quantization.h"

namespace nacre::kernels {
absl::StatusOr<std::unique_ptr<QuantizedMatrix>> QuantizedMatrix::Create(
    absl::Span<const HostMatrix> parts, WeightType type,
    const QuantizedGemmKernels& kernels) {
  std::unique_ptr<QuantizedMatrix> matrix(new QuantizedMatrix(kernels));
  matrix->type_ = type;
  matrix->rows_ = CheckedTotalRows(parts);
  matrix->cols_ = parts[0].cols;
  matrix->group_ = QuantizedGroupSize(type);
  matrix->groups_ = static_cast<size_t>((matrix->cols_ + matrix->group_ - 1) /
                                        matrix->group_);
  const bool is_int8 = type == WeightType::kInt8;
  const size_t bytes = matrix->num_units() * matrix->groups_ *
                       (is_int8 ? Int8Cells::kBytes : Int4Cells::kBytes);
  NACRE_ASSIGN_OR_RETURN(matrix->memory_,
                         AllocateHostBuffer(bytes + kPrefetchBytes));
  matrix->weights_ = static_cast<uint8_t*>(matrix->memory_->data());

  std::vector<float> values(matrix->groups_ * matrix->group_);  // zeros at end
  int out_row = 0;
  for (size_t part = 0; part < parts.size(); ++part) {
    for (int row = 0; row < parts[part].rows; ++row, ++out_row) {
      LoadRow(parts[part], row, values.data());
      NACRE_RETURN_IF_ERROR(is_int8 ? matrix->PackWeights<Int8Cells>(
                                          values.data(), part, row, out_row)
                                    : matrix->PackWeights<Int4Cells>(
                                          values.data(), part, row, out_row));
    }
  }
  return matrix;
}

// values [groups * group]
template <class Cells>
absl::Status QuantizedMatrix::PackWeights(const float* values, size_t part,
                                          int part_row, int row) {
  constexpr size_t kSteps = static_cast<size_t>(Cells::kSteps);
  for (int k = 0; k < cols_; ++k) {
    if (!std::isfinite(values[k])) {
      return absl::InvalidArgumentError(absl::StrCat(
          "weight [", part_row, ", ", k, "] of matrix ", part, " is ",
          values[k], ", which has no ", 8 / Cells::kQuadsPerStep,
          "-bit value: keep the weights as bf16 or f32"));
    }
  }
  int8_t integers[kMaxQuantizedGroup];
  const size_t output = static_cast<size_t>(row) % QuantizedCells::kUnitOutputs;
  uint8_t* cell =
      weights_ + row / QuantizedCells::kUnitOutputs * groups_ * Cells::kBytes;
  for (size_t g = 0; g < groups_;
       ++g, values += Cells::kGroup, cell += Cells::kBytes) {
    const uint16_t scale = ToBF16(QuantizeWeights(values, type_, integers));
    std::memcpy(cell + kSteps * Cells::kStepBytes + output * sizeof(scale),
                &scale, sizeof(scale));
    for (size_t k = 0; k < Cells::kGroup; ++k) {
      const size_t step = k / 4 % kSteps;
      const unsigned shift = k / 4 < kSteps ? 0 : 4;
      const unsigned value = static_cast<unsigned>(integers[k] + Cells::kOffset)
                             << shift;
      uint8_t& byte = cell[step * Cells::kStepBytes + output * 4 + k % 4];
      byte = static_cast<uint8_t>(byte | value);
    }
  }
  return absl::OkStatus();
}

size_t QuantizedMatrix::ActivationBytes(int rows) const {
  const size_t row_bytes =
      type_ == WeightType::kInt8 ? Int8Cells::kRowBytes : Int4Cells::kRowBytes;
  return rows * groups_ * row_bytes;
}

int QuantizedMatrix::num_tiles(int rows) const {
  return RowTiling(rows, kQuantizedTileRows).count;
}

int QuantizedMatrix::num_units() const {
  return (rows_ + QuantizedCells::kUnitOutputs - 1) /
         QuantizedCells::kUnitOutputs;
}

template <class Cells>
void QuantizedMatrix::PackRow(const float* values, int i, int tile_rows,
                              char* out) const {
  float padded[Cells::kGroup] = {};
  int8_t integers[Cells::kGroup];
  for (int k = 0; k < cols_;
       k += Cells::kGroup, out += tile_rows * Cells::kRowBytes) {
    const float* from = values + k;
    if (cols_ - k < Cells::kGroup) {
      std::memcpy(padded, from, (cols_ - k) * sizeof(float));
      from = padded;
    }
    const float scale = kernels_.quantize(from, Cells::kGroup, integers);
    int32_t sum = 0;
    for (const int8_t integer : integers) sum += integer;
    const int32_t correction = -Cells::kOffset * sum;
    char* quad = out + 4 * i;
    for (int j = 0; j < Cells::kGroup; j += 4, quad += 4 * tile_rows) {
      std::memcpy(quad, integers + j, 4);
    }
    char* const scales = out + tile_rows * Cells::kGroup;
    std::memcpy(scales + 4 * i, &scale, 4);
    std::memcpy(scales + 4 * (tile_rows + i), &correction, 4);
  }
}

void QuantizedMatrix::PackActivations(const float* x, int rows, int tile_begin,
                                      int tile_end, void* packed) const {
  const RowTiling tiling(rows, kQuantizedTileRows);
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    const int begin = tiling.begin(tile);
    char* const out = static_cast<char*>(packed) + ActivationBytes(begin);
    for (int i = 0; i < tiling.size(tile); ++i) {
      const float* values = x + static_cast<size_t>(begin + i) * cols_;
      if (type_ == WeightType::kInt8) {
        PackRow<Int8Cells>(values, i, tiling.size(tile), out);
      } else {
        PackRow<Int4Cells>(values, i, tiling.size(tile), out);
      }
    }
  }
}

void QuantizedMatrix::Multiply(const void* packed, int rows, int unit_begin,
                               int unit_end, float* y) const {
  GemmArgs args;
  args.weights = reinterpret_cast<const char*>(weights_);
  args.activations = static_cast<const char*>(packed);
  args.rows = rows;
  args.outputs = rows_;
  args.cells = groups_;
  args.y = y;
  if (type_ == WeightType::kInt8) {
    kernels_.multiply_int8(args, unit_begin, unit_end);
  } else {
    kernels_.multiply_int4(args, unit_begin, unit_end);
  }
}

}  // namespace nacre::kernels
