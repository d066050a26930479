#include "kernels/cpu/quantized_matrix.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cpu/row_tiling.h"
#include "kernels/quantization.h"

namespace nacre::kernels {
namespace {

// Where the three parts of packed activations begin. Each is a multiple of 64
// bytes.
struct ActivationLayout {
  ActivationLayout(int rows, size_t groups, int group)
      : scales(static_cast<size_t>(rows) * groups * group),
        corrections(scales + RoundUp(rows * groups * sizeof(float))),
        bytes(corrections + RoundUp(rows * groups * sizeof(int32_t))) {}
  static size_t RoundUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

  size_t scales;
  size_t corrections;
  size_t bytes;
};

}  // namespace

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
  const size_t bytes =
      matrix->num_units() * matrix->groups_ *
      (is_int8 ? kCellBytes<Int8Cells> : kCellBytes<Int4Cells>);
  NACRE_ASSIGN_OR_RETURN(matrix->memory_,
                         AllocateHostBuffer(bytes + kQuantizedPrefetchBytes));
  matrix->weights_ = static_cast<uint8_t*>(matrix->memory_->data());

  std::vector<float> values(matrix->groups_ * matrix->group_);  // zeros at end
  int out_row = 0;
  for (size_t part = 0; part < parts.size(); ++part) {
    for (int row = 0; row < parts[part].rows; ++row, ++out_row) {
      LoadRow(parts[part], row, values.data());
      NACRE_RETURN_IF_ERROR(
          is_int8
              ? matrix->PackRow<Int8Cells>(values.data(), part, row, out_row)
              : matrix->PackRow<Int4Cells>(values.data(), part, row, out_row));
    }
  }
  return matrix;
}

// values [groups * group]
template <class Cells>
absl::Status QuantizedMatrix::PackRow(const float* values, size_t part,
                                      int part_row, int row) {
  constexpr size_t kSteps = Cells::kSteps;
  for (int k = 0; k < cols_; ++k) {
    if (!std::isfinite(values[k])) {
      return absl::InvalidArgumentError(absl::StrCat(
          "weight [", part_row, ", ", k, "] of matrix ", part, " is ",
          values[k], ", which has no ", 8 / Cells::kQuadsPerStep,
          "-bit value: keep the weights as bf16 or f32"));
    }
  }
  int8_t integers[kMaxQuantizedGroup];
  const size_t output = static_cast<size_t>(row) % kUnitOutputs;
  uint8_t* cell = weights_ + row / kUnitOutputs * groups_ * kCellBytes<Cells>;
  for (size_t g = 0; g < groups_;
       ++g, values += Cells::kGroup, cell += kCellBytes<Cells>) {
    const uint16_t scale = ToBF16(QuantizeWeights(values, type_, integers));
    std::memcpy(cell + kSteps * kStepBytes + output * sizeof(scale), &scale,
                sizeof(scale));
    for (size_t k = 0; k < Cells::kGroup; ++k) {
      const size_t step = k / 4 % kSteps;
      const unsigned shift = k / 4 < kSteps ? 0 : 4;
      const unsigned value = static_cast<unsigned>(integers[k] + Cells::kOffset)
                             << shift;
      uint8_t& byte = cell[step * kStepBytes + output * 4 + k % 4];
      byte = static_cast<uint8_t>(byte | value);
    }
  }
  return absl::OkStatus();
}

size_t QuantizedMatrix::ActivationBytes(int rows) const {
  return ActivationLayout(rows, groups_, group_).bytes;
}

int QuantizedMatrix::num_tiles(int rows) const {
  return RowTiling(rows, kQuantizedTileRows).count;
}

int QuantizedMatrix::num_units() const {
  return (rows_ + kUnitOutputs - 1) / kUnitOutputs;
}

void QuantizedMatrix::PackActivations(const float* x, int rows, int tile_begin,
                                      int tile_end, void* packed) const {
  const ActivationLayout layout(rows, groups_, group_);
  const RowTiling tiling(rows, kQuantizedTileRows);
  const int offset =
      type_ == WeightType::kInt8 ? Int8Cells::kOffset : Int4Cells::kOffset;
  char* const base = static_cast<char*>(packed);
  float padded[kMaxQuantizedGroup] = {};
  int8_t integers[kMaxQuantizedGroup];
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    for (int i = 0; i < tiling.size(tile); ++i) {
      const int row = tiling.begin(tile) + i;
      const float* values = x + static_cast<size_t>(row) * cols_;
      // [tile][group][row of the tile]
      size_t index = tiling.begin(tile) * groups_ + i;
      for (size_t g = 0; g < groups_;
           ++g, values += group_, index += tiling.size(tile)) {
        const int left = cols_ - static_cast<int>(g) * group_;
        const float* from = values;
        if (left < group_) {
          std::memcpy(padded, values, left * sizeof(float));
          from = padded;
        }
        const float scale = kernels_.quantize(from, group_, integers);
        int32_t sum = 0;
        for (int k = 0; k < group_; ++k) sum += integers[k];
        // [4 inputs][row of the tile][input 4]
        char* out = base + (index - i) * group_ + 4 * i;
        for (int k = 0; k < group_; k += 4, out += 4 * tiling.size(tile)) {
          std::memcpy(out, integers + k, 4);
        }
        reinterpret_cast<float*>(base + layout.scales)[index] = scale;
        reinterpret_cast<int32_t*>(base + layout.corrections)[index] =
            -offset * sum;
      }
    }
  }
}

void QuantizedMatrix::Multiply(const void* packed, int rows, int unit_begin,
                               int unit_end, float* y) const {
  const ActivationLayout layout(rows, groups_, group_);
  const char* const base = static_cast<const char*>(packed);
  QuantizedGemmArgs args;
  args.weights = weights_;
  args.activations = reinterpret_cast<const int8_t*>(base);
  args.scales = reinterpret_cast<const float*>(base + layout.scales);
  args.corrections =
      reinterpret_cast<const int32_t*>(base + layout.corrections);
  args.rows = rows;
  args.outputs = rows_;
  args.groups = groups_;
  args.y = y;
  if (type_ == WeightType::kInt8) {
    kernels_.multiply_int8(args, unit_begin, unit_end);
  } else {
    kernels_.multiply_int4(args, unit_begin, unit_end);
  }
}

}  // namespace nacre::kernels
