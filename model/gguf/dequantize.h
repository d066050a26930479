// Blocks of small integers as GGUF files hold them, as floats: the arithmetic
// of ggml, bit for bit (gguf-py's `dequantize`).
//
// Pure functions.

#ifndef MODEL_GGUF_DEQUANTIZE_H_
#define MODEL_GGUF_DEQUANTIZE_H_

#include <functional>
#include <optional>

#include "absl/strings/string_view.h"
#include "common/gguf/tensor_type.h"
#include "kernels/dtype.h"

namespace nacre::model {

// How the elements of one type are read.
struct GgufElements {
  kernels::DType dtype;  // of what is read
  // Writes the floats of whole blocks; null: `blocks` are of `dtype` as they
  // are.
  void (*dequantize)(absl::string_view blocks, float* values);
};

// Nothing: not supported.
std::optional<GgufElements> ElementsOf(const gguf::TensorType& type);

// For messages.
inline constexpr char kGgufTypesRead[] =
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, "
    "Q6_K";

}  // namespace nacre::model

#endif  // MODEL_GGUF_DEQUANTIZE_H_
