#include "model/quantized/quantized_weights.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "common/status_macros.h"
#include "model/safetensors.h"

namespace nacre::model {
namespace {

using kernels::DType;

constexpr int kWordBits = 32;
constexpr char kZerosOfElements[] = "weight_zero_point";
constexpr char kColumnsOfElements[] = "weight_g_idx";

// "a.weight" and "b" give "a.b".
std::string Sibling(const std::string& weight, absl::string_view name) {
  return absl::StrCat(absl::StripSuffix(weight, "weight"), name);
}

int CeilDiv(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

absl::optional<DType> FloatType(absl::string_view dtype) {
  if (dtype == "F16") return DType::kF16;
  if (dtype == "BF16") return DType::kBF16;
  if (dtype == "F32") return DType::kF32;
  return absl::nullopt;
}

absl::Status BadShape(const std::string& name,
                      const std::vector<int64_t>& found,
                      const std::vector<int64_t>& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", name, " has shape ", ShapeString(found),
                   ", the config implies ", ShapeString(expected)));
}

absl::Status BadType(const std::string& name, absl::string_view found,
                     absl::string_view supported) {
  return absl::UnimplementedError(
      absl::StrCat("tensor ", name, ": dtype ", found,
                   " is not supported; supported: ", supported));
}

}  // namespace

const char* QuantizedWeights::CodesName() const {
  switch (quantization_.format) {
    case QuantizedFormat::kElements:
      return "weight";
    case QuantizedFormat::kPacked:
      return "weight_packed";
    case QuantizedFormat::kAwq:
    case QuantizedFormat::kGptq:
      break;
  }
  return "qweight";
}

const char* QuantizedWeights::ScalesName() const {
  switch (quantization_.format) {
    case QuantizedFormat::kElements:
      return quantization_.has_inverse_name ? "weight_scale_inv"
                                            : "weight_scale";
    case QuantizedFormat::kPacked:
      return "weight_scale";
    case QuantizedFormat::kAwq:
    case QuantizedFormat::kGptq:
      break;
  }
  return "scales";
}

absl::StatusOr<bool> QuantizedWeights::Has(const std::string& weight) const {
  if (quantization_.format == QuantizedFormat::kElements) {
    NACRE_ASSIGN_OR_RETURN(const RawTensor tensor, checkpoint_.FindRaw(weight));
    const bool is_float = FloatType(tensor.dtype).has_value();
    const std::string scales = Sibling(weight, ScalesName());
    if (is_float && checkpoint_.Contains(scales)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", weight, " has dtype ", tensor.dtype,
                       ", but there is ", scales, ", too"));
    }
    return !is_float;
  }
  const std::string codes = Sibling(weight, CodesName());
  const bool is_quantized = checkpoint_.Contains(codes);
  if (is_quantized && checkpoint_.Contains(weight)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", weight, " is in the checkpoint twice: as ", codes, ", too"));
  }
  if (!is_quantized && !checkpoint_.Contains(weight)) {
    return absl::NotFoundError(absl::StrCat("neither tensor ", weight, " nor ",
                                            codes, " is in the checkpoint"));
  }
  return is_quantized;
}

absl::StatusOr<DType> QuantizedWeights::TypeOf(
    const std::string& weight) const {
  const std::string name = Sibling(weight, ScalesName());
  NACRE_ASSIGN_OR_RETURN(const RawTensor scales, checkpoint_.FindRaw(name));
  const absl::optional<DType> type = FloatType(scales.dtype);
  if (!type.has_value()) return BadType(name, scales.dtype, "BF16, F16, F32");
  return *type;
}

absl::StatusOr<RawTensor> QuantizedWeights::Find(
    const std::string& weight, const char* name, absl::string_view dtype,
    const std::vector<int64_t>& shape) const {
  const std::string sibling = Sibling(weight, name);
  NACRE_ASSIGN_OR_RETURN(RawTensor tensor, checkpoint_.FindRaw(sibling));
  if (tensor.dtype != dtype) return BadType(sibling, tensor.dtype, dtype);
  if (tensor.shape != shape) return BadShape(sibling, tensor.shape, shape);
  return tensor;
}

// Rows and columns that are no whole words or groups.
absl::Status QuantizedWeights::CheckShape(const std::string& weight,
                                          const QuantizedMatrix& matrix) const {
  const int per_word = kWordBits / quantization_.bits;
  const bool is_awq = quantization_.format == QuantizedFormat::kAwq;
  const bool is_gptq = quantization_.format == QuantizedFormat::kGptq;
  const auto check = [&](const char* what, int count, int unit) {
    if (count % unit == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", weight, " has ", count, " ", what,
                     ", which are no whole groups of ", unit));
  };
  if (is_awq || is_gptq) {
    NACRE_RETURN_IF_ERROR(check("rows", matrix.rows, per_word));
  }
  if (is_gptq) return check("columns", matrix.cols, per_word);
  const bool has_groups = quantization_.block_rows == 1;
  return has_groups ? check("columns", matrix.cols, matrix.block_cols)
                    : absl::OkStatus();
}

absl::Status QuantizedWeights::SetCodes(const std::string& weight,
                                        QuantizedMatrix* matrix) const {
  const int64_t rows = matrix->rows;
  const int64_t cols = matrix->cols;
  const int64_t per_word = kWordBits / quantization_.bits;
  PackedCodes& codes = matrix->codes;
  codes.bits = quantization_.bits;
  const char* dtype = "I32";
  std::vector<int64_t> shape;
  switch (quantization_.format) {
    case QuantizedFormat::kElements:
      codes.word_bytes = 1;
      dtype = quantization_.is_float ? "F8_E4M3" : "I8";
      matrix->values = quantization_.is_float ? Float8Values() : SignedValues();
      shape = {rows, cols};
      break;
    case QuantizedFormat::kPacked: {
      matrix->values = OffsetValues(codes.bits);
      shape = {rows, CeilDiv(cols, per_word)};
      const std::string name = Sibling(weight, "weight_shape");
      NACRE_ASSIGN_OR_RETURN(const std::vector<int64_t> stored,
                             checkpoint_.Integers(name));
      if (stored != std::vector<int64_t>{rows, cols}) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor ", name, " is ", ShapeString(stored),
                         ", the config implies ", ShapeString({rows, cols})));
      }
      break;
    }
    case QuantizedFormat::kAwq:
      codes.is_transposed = true;
      codes.has_awq_order = true;
      matrix->values = UnsignedValues();
      shape = {cols, rows / per_word};
      break;
    case QuantizedFormat::kGptq:
      codes.is_transposed = true;
      codes.packs_columns = true;
      matrix->values = UnsignedValues();
      shape = {cols / per_word, rows};
      break;
  }
  NACRE_ASSIGN_OR_RETURN(const RawTensor tensor,
                         Find(weight, CodesName(), dtype, shape));
  codes.data = tensor.bytes.data();
  codes.stride = shape[1];
  return absl::OkStatus();
}

absl::Status QuantizedWeights::SetScales(const std::string& weight,
                                         QuantizedMatrix* matrix) const {
  NACRE_ASSIGN_OR_RETURN(matrix->scale_type, TypeOf(weight));
  const std::string name = Sibling(weight, ScalesName());
  NACRE_ASSIGN_OR_RETURN(const RawTensor scales, checkpoint_.FindRaw(name));
  matrix->scales = scales.bytes.data();
  matrix->has_transposed_scales =
      quantization_.format == QuantizedFormat::kAwq ||
      quantization_.format == QuantizedFormat::kGptq;
  std::vector<int64_t> shape = {matrix->scale_rows, matrix->scale_cols};
  if (matrix->has_transposed_scales) std::swap(shape[0], shape[1]);
  // One for all may have fewer dimensions.
  const bool is_one =
      quantization_.block_rows == 0 &&
      (scales.shape.empty() || scales.shape == std::vector<int64_t>{1});
  if (scales.shape == shape || is_one) return absl::OkStatus();
  return BadShape(name, scales.shape, shape);
}

absl::Status QuantizedWeights::SetZeros(const std::string& weight,
                                        QuantizedMatrix* matrix) const {
  const QuantizedFormat format = quantization_.format;
  const bool is_compressed = format == QuantizedFormat::kElements ||
                             format == QuantizedFormat::kPacked;
  if (!quantization_.has_zeros) {
    const std::string name = Sibling(weight, kZerosOfElements);
    if (!is_compressed || !checkpoint_.Contains(name)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", name,
                     " is in the checkpoint, but quantization_config says "
                     "that weights are symmetric"));
  }
  PackedCodes& zeros = matrix->zeros;
  zeros.bits = quantization_.bits;
  const int64_t per_word = kWordBits / quantization_.bits;
  const int64_t rows = matrix->scale_rows;
  const int64_t cols = matrix->scale_cols;
  const char* name = is_compressed ? kZerosOfElements : "qzeros";
  std::vector<int64_t> shape = {cols, rows / per_word};
  if (format == QuantizedFormat::kElements) {
    zeros.word_bytes = 1;
    shape = {rows, cols};
    // As the scales.
    const std::string scales = Sibling(weight, ScalesName());
    NACRE_ASSIGN_OR_RETURN(const RawTensor like, checkpoint_.FindRaw(scales));
    NACRE_ASSIGN_OR_RETURN(const RawTensor tensor,
                           Find(weight, name, "I8", like.shape));
    zeros.data = tensor.bytes.data();
    zeros.stride = cols;
    return absl::OkStatus();
  }
  if (format == QuantizedFormat::kPacked) {
    zeros.packs_columns = true;
    shape = {CeilDiv(rows, per_word), cols};
  } else {
    zeros.is_transposed = true;
    zeros.has_awq_order = format == QuantizedFormat::kAwq;
  }
  if (quantization_.zeros_lack_one) {
    zeros.added = zeros.bits == 4 ? 0x11111111u : 0x01010101u;
  }
  NACRE_ASSIGN_OR_RETURN(const RawTensor tensor,
                         Find(weight, name, "I32", shape));
  zeros.data = tensor.bytes.data();
  zeros.stride = shape[1];
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> QuantizedWeights::ColumnBlocks(
    const std::string& weight, const QuantizedMatrix& matrix) const {
  const bool is_gptq = quantization_.format == QuantizedFormat::kGptq;
  const std::string name =
      Sibling(weight, is_gptq ? "g_idx" : kColumnsOfElements);
  if (!quantization_.orders_columns) {
    if (!checkpoint_.Contains(name)) return std::vector<int64_t>();
    if (!is_gptq) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", name,
                       " is in the checkpoint, but quantization_config says "
                       "that groups are of neighbours"));
    }
  }
  NACRE_ASSIGN_OR_RETURN(std::vector<int64_t> blocks,
                         checkpoint_.Integers(name));
  const auto size = static_cast<int64_t>(blocks.size());
  if (size != matrix.cols) return BadShape(name, {size}, {matrix.cols});
  // So compressed-tensors says that order is none.
  if (!is_gptq && std::count(blocks.begin(), blocks.end(), -1) == size) {
    return std::vector<int64_t>();
  }
  std::vector<int> counts(static_cast<size_t>(matrix.scale_cols));
  bool is_plain = true;
  for (int64_t col = 0; col < size; ++col) {
    const int64_t block = blocks[static_cast<size_t>(col)];
    if (block < 0 || block >= matrix.scale_cols) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", name, " has group ", block, " at ", col,
                       ", expected 0 to ", matrix.scale_cols - 1));
    }
    is_plain = is_plain && block == col / matrix.block_cols;
    ++counts[static_cast<size_t>(block)];
  }
  // It sorts columns by their numbers and cuts them into whole groups, which
  // are those of the numbers if each has as many columns.
  for (size_t block = 0; !is_gptq && block < counts.size(); ++block) {
    if (counts[block] == matrix.block_cols) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", name, " has ", counts[block], " columns of group ", block,
        ", expected ", matrix.block_cols));
  }
  if (is_plain) blocks.clear();
  return blocks;
}

absl::Status QuantizedWeights::CheckNoBiases(const std::string& weight,
                                             int rows) const {
  const std::string name = Sibling(weight, "bias");
  if (!checkpoint_.Contains(name)) return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(const std::vector<float> biases,
                         checkpoint_.Vector(name, rows));
  for (size_t i = 0; i < biases.size(); ++i) {
    if (biases[i] == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", name, " has ", biases[i], " at ", i,
        ", but by the config this product has no biases (all 0 are passed "
        "over)"));
  }
  return absl::OkStatus();
}

absl::Status QuantizedWeights::CheckNoActivationScales(
    absl::string_view weight) const {
  // "h.0.mlp.c_fc.weight" stands beside "h.0.mlp.act.scales".
  absl::string_view block = absl::StripSuffix(weight, ".weight");
  block = block.substr(0, block.rfind('.'));
  const std::string name = absl::StrCat(block, ".act.scales");
  if (!checkpoint_.Contains(name)) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("tensor ", name,
                   " divides the outputs of an activation, which is not "
                   "supported: quantize without it"));
}

absl::StatusOr<QuantizedWeights::Values> QuantizedWeights::Read(
    const std::string& weight, int rows, int cols) const {
  QuantizedMatrix matrix;
  matrix.rows = rows;
  matrix.cols = cols;
  const auto part_of = [](int block, int all) {
    return block == 0 ? all : block;
  };
  matrix.block_rows = part_of(quantization_.block_rows, rows);
  matrix.block_cols = part_of(quantization_.block_cols, cols);
  matrix.scale_rows = CeilDiv(rows, matrix.block_rows);
  matrix.scale_cols = CeilDiv(cols, matrix.block_cols);
  NACRE_RETURN_IF_ERROR(CheckShape(weight, matrix));
  NACRE_RETURN_IF_ERROR(SetCodes(weight, &matrix));
  NACRE_RETURN_IF_ERROR(SetScales(weight, &matrix));
  NACRE_RETURN_IF_ERROR(SetZeros(weight, &matrix));
  NACRE_ASSIGN_OR_RETURN(const std::vector<int64_t> blocks,
                         ColumnBlocks(weight, matrix));
  matrix.column_blocks = blocks;
  Values values;
  values.dtype = matrix.scale_type;
  values.bytes = Dequantize(matrix);
  for (const char* name :
       {"weight", "weight_packed", "weight_scale", "weight_scale_inv",
        kZerosOfElements, kColumnsOfElements, "qweight", "scales", "qzeros",
        "g_idx"}) {
    const auto tensor = checkpoint_.FindRaw(Sibling(weight, name));
    if (!tensor.ok()) continue;
    values.stored_bytes += static_cast<int64_t>(tensor->bytes.size());
  }
  return values;
}

}  // namespace nacre::model
