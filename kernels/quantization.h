// Weights and activations as small integers in groups: the definition that
// every backend follows, in plain scalar code.
//
// A row of K values is cut into groups of consecutive inputs, the last padded
// with zeros. Each group has one scale:
//   int8  64 inputs, integers in [-127, 127], scale = largest magnitude / 127
//   int4  32 inputs, integers in [-8, 7], scale = (value of the largest
//         magnitude) / -8, so that this value is met exactly
// Scales of weights are rounded to bf16. Activations are quantized when they
// are multiplied, as int8 in groups of the size that the weights have, with
// scales in float32. A product is then, with q the integers,
//   y = sum over groups g of  scale_w[g] scale_x[g] sum_k q_w[k] q_x[k]
// where the inner sum is exact.
//
// Pure functions.

#ifndef KERNELS_QUANTIZATION_H_
#define KERNELS_QUANTIZATION_H_

#include <cstdint>

#include "kernels/weight_type.h"

namespace nacre::kernels {

inline constexpr int kMaxQuantizedGroup = 64;

// Below this largest magnitude a group of activations counts as zeros: the
// inverse of a smaller scale would not be finite.
inline constexpr float kSmallestActivation = 0x1p-100f;

// Inputs of a group; 0 when weights of this type are not quantized.
int QuantizedGroupSize(WeightType type);

// Quantizes one group of weights, all finite.   values, out
// [QuantizedGroupSize] Returns the scale, a bf16 value; it may be negative.
float QuantizeWeights(const float* values, WeightType type, int8_t* out);

// Quantizes one group of activations to int8, nearest, ties to even; returns
// the scale. A value that is not finite makes the scale NaN, and with it every
// product of the row.                                       values, out [count]
float QuantizeActivations(const float* values, int count, int8_t* out);

}  // namespace nacre::kernels

#endif  // KERNELS_QUANTIZATION_H_
