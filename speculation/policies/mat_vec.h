// Small dense layers of the learned policies. Sixteen partial sums let the
// compiler use vector instructions; the order of the sum is fixed.
//
// Pure functions.

#ifndef SPECULATION_POLICIES_MAT_VEC_H_
#define SPECULATION_POLICIES_MAT_VEC_H_

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/types/span.h"
#include "common/check.h"

namespace nacre::speculation {

inline constexpr size_t kDotLanes = 16;

inline float Dot(absl::Span<const float> a, absl::Span<const float> b) {
  NACRE_CHECK(a.size() == b.size(), "vectors of different lengths");
  float lanes[kDotLanes] = {};
  size_t i = 0;
  for (; i + kDotLanes <= a.size(); i += kDotLanes) {
    for (size_t j = 0; j < kDotLanes; ++j) lanes[j] += a[i + j] * b[i + j];
  }
  float sum = 0.0f;
  for (; i < a.size(); ++i) sum += a[i] * b[i];
  for (const float lane : lanes) sum += lane;
  return sum;
}

inline bool AllFinite(absl::Span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

// Row `row` of a [rows, cols] matrix.
inline absl::Span<const float> MatrixRow(absl::Span<const float> matrix,
                                         size_t row, size_t cols) {
  return matrix.subspan(row * cols, cols);
}

}  // namespace nacre::speculation

#endif  // SPECULATION_POLICIES_MAT_VEC_H_
