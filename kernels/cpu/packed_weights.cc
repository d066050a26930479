#include "kernels/cpu/packed_weights.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/status_macros.h"
#include "kernels/cpu/gemm.h"

namespace nacre::kernels {

absl::StatusOr<std::unique_ptr<PackedWeights>> PackedWeights::Create(
    absl::Span<const HostMatrix> parts, WeightType type, int lanes) {
  std::unique_ptr<PackedWeights> packed(new PackedWeights());
  packed->rows_ = CheckedTotalRows(parts);
  packed->cols_ = parts[0].cols;
  packed->is_bf16_ =
      type == WeightType::kBF16 ||
      (type == WeightType::kAuto &&
       std::all_of(parts.begin(), parts.end(), [](const HostMatrix& part) {
         return part.dtype == DType::kBF16;
       }));
  const size_t block = 2 * static_cast<size_t>(lanes);
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
      packed->PackRow(values.data(), out_row, lanes);
    }
  }
  return packed;
}

// values [blocks * 2 * lanes]
void PackedWeights::PackRow(const float* values, int row, int lanes) {
  const size_t width = static_cast<size_t>(lanes);
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

}  // namespace nacre::kernels
