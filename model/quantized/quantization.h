// How a published checkpoint holds quantized weights: what quantization_config
// of its config.json says, as far as it decides what their bytes mean.
//
// Pure functions and values.

#ifndef MODEL_QUANTIZED_QUANTIZATION_H_
#define MODEL_QUANTIZED_QUANTIZATION_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/json_fields.h"

namespace nacre::model {

enum class QuantizedFormat {
  kElements,  // `weight` has one number an element: compressed-tensors, fp8
  kPacked,    // compressed-tensors' `weight_packed`
  kAwq,
  kGptq,
};

// What a linear layer's weight [rows, cols] is made of.
struct Quantization {
  QuantizedFormat format = QuantizedFormat::kElements;
  int bits = 8;           // of a number: 4 or 8
  bool is_float = false;  // numbers are F8_E4M3, else whole
  // Rows and columns that share a scale; 0: all of them.
  int block_rows = 1;
  int block_cols = 0;
  bool has_zeros = false;  // numbers count from zero points
  // GPTQ's desc_act and compressed-tensors' actorder "group": a tensor says of
  // each column which scale it has.
  bool orders_columns = false;
  bool zeros_lack_one = false;    // as the first format of GPTQ stores them
  bool has_inverse_name = false;  // scales are called `weight_scale_inv`
};

// Of a config.json's object; none where it has no quantization_config.
// UNIMPLEMENTED or INVALID_ARGUMENT with the field and what is supported.
absl::StatusOr<std::optional<Quantization>> ParseQuantization(
    const Json& config);
// The same of its text.
absl::StatusOr<std::optional<Quantization>> ReadQuantization(
    absl::string_view config_json);

}  // namespace nacre::model

#endif  // MODEL_QUANTIZED_QUANTIZATION_H_
