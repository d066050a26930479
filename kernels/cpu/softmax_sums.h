// Sums over the softmax of one row of logits: what its probabilities and its
// entropy are made of. For decisions about speed: no token depends on the bits.
//
// Pure functions; host memory.

#ifndef KERNELS_CPU_SOFTMAX_SUMS_H_
#define KERNELS_CPU_SOFTMAX_SUMS_H_

#include <cstddef>

namespace nacre::kernels {

// NaN counts as -inf. Where `best` is not finite the sums are 0.
struct SoftmaxSums {
  float best = 0.0f;      // the largest value
  double total = 0.0;     // sum_i e^(x_i - best)
  double weighted = 0.0;  // sum_i e^(x_i - best) * (x_i - best)
};

// Of values [count], count >= 1, on the best SIMD target of this CPU.
SoftmaxSums ComputeSoftmaxSums(const float* values, size_t count);

// The same in double, one after the other: the truth.
SoftmaxSums ReferenceSoftmaxSums(const float* values, size_t count);

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_SOFTMAX_SUMS_H_
