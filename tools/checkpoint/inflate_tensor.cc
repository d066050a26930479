#include "tools/checkpoint/inflate_tensor.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/string_view.h"
#include "common/philox.h"
#include "common/status_macros.h"

namespace nacre::tools {
namespace {

using kernels::DType;

// Exponent bias and fraction bits of a type.
struct Layout {
  uint32_t bias;
  int fraction_bits;
};

Layout LayoutOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return {127, 7};
    case DType::kF16:
      return {15, 10};
    case DType::kF32:
    case DType::kInt8:  // of no checkpoint
      break;
  }
  return {127, 23};
}

// The bits of 1.0.
uint32_t OneBits(DType dtype) {
  const Layout layout = LayoutOf(dtype);
  return layout.bias << layout.fraction_bits;
}

// The bits of a number with magnitude in [2^-6, 2^-5).
uint32_t RandomBits(DType dtype, uint32_t noise) {
  const Layout layout = LayoutOf(dtype);
  const uint32_t fraction = (noise >> 1) & ((1u << layout.fraction_bits) - 1);
  const int sign_shift = static_cast<int>(8 * kernels::SizeOf(dtype)) - 1;
  return (noise & 1u) << sign_shift |
         (layout.bias - 6) << layout.fraction_bits | fraction;
}

// Rows and columns; a vector is one row.
size_t Rows(const std::vector<int64_t>& shape) {
  return shape.size() == 2 ? static_cast<size_t>(shape[0]) : 1;
}
size_t Cols(const std::vector<int64_t>& shape) {
  return static_cast<size_t>(shape.back());
}

}  // namespace

absl::Status InflatedTensorWriter::Write(const InflatedTensor& tensor) {
  const size_t element = kernels::SizeOf(tensor.spec.dtype);
  const size_t cols = Cols(tensor.spec.shape);
  const bool has_source = !tensor.source.bytes.empty();
  const size_t source_rows = has_source ? Rows(tensor.source.shape) : 0;
  const size_t source_cols = has_source ? Cols(tensor.source.shape) : 0;
  const size_t source_bytes = source_cols * element;
  for (size_t row = 0; row < Rows(tensor.spec.shape); ++row) {
    row_.assign(cols * element, '\0');
    size_t begin = 0;
    if (row < source_rows) {
      std::memcpy(row_.data(), tensor.source.bytes.data() + row * source_bytes,
                  source_bytes);
      begin = source_cols;
    }
    FillColumns(tensor, row, begin, cols);
    NACRE_RETURN_IF_ERROR(writer_->Append(row_.data(), row_.size()));
  }
  ++tensor_index_;
  return absl::OkStatus();
}

void InflatedTensorWriter::FillColumns(const InflatedTensor& tensor, size_t row,
                                       size_t begin, size_t end) {
  if (tensor.fill == Fill::kZero) return;
  const DType dtype = tensor.spec.dtype;
  const size_t element = kernels::SizeOf(dtype);
  PhiloxBlock noise = {};
  for (size_t col = begin; col < end; ++col) {
    uint32_t bits = OneBits(dtype);
    if (tensor.fill == Fill::kRandom) {
      if (col == begin || col % 4 == 0) {
        noise = Philox4x32({static_cast<uint32_t>(col / 4),
                            static_cast<uint32_t>(row), tensor_index_, 0},
                           key_);
      }
      bits = RandomBits(dtype, noise[col % 4]);
    }
    // Little-endian: the low bytes come first, whatever the element's size.
    std::memcpy(&row_[col * element], &bits, element);
  }
}

}  // namespace nacre::tools
