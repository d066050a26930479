// The types of GGUF's tensors, and what their blocks of small integers say: the
// arithmetic of ggml, bit for bit (gguf-py's `dequantize`).
//
// Pure functions.

#ifndef MODEL_GGUF_DEQUANTIZE_H_
#define MODEL_GGUF_DEQUANTIZE_H_

#include <optional>

#include "common/gguf/tensor_type.h"
#include "kernels/dtype.h"
#include "kernels/weight_groups.h"

namespace nacre::model {

// How the elements of one type are read.
struct GgufElements {
  kernels::DType dtype;  // of what is read
  // How blocks are read; null: they are elements of `dtype` as they are.
  const kernels::WeightGroups* groups;
};

// Nothing: not supported.
std::optional<GgufElements> ElementsOf(const gguf::TensorType& type);

// For messages.
inline constexpr char kGgufTypesRead[] =
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, "
    "Q6_K";

}  // namespace nacre::model

#endif  // MODEL_GGUF_DEQUANTIZE_H_
