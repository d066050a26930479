// What the networks in training share. The same numbers on every machine but
// for the rounding of its exp and log.
//
// Pure functions.

#ifndef TOOLS_CALIBRATE_TRAINING_MATH_H_
#define TOOLS_CALIBRATE_TRAINING_MATH_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>

namespace nacre::tools {

// Uniform in (0, 1).
inline double Uniform(std::mt19937_64& random) {
  return (static_cast<double>(random() >> 11) + 0.5) / 9007199254740992.0;
}

// Box and Muller's.
inline double Normal(std::mt19937_64& random) {
  constexpr double pi = 3.14159265358979323846;
  const double radius = std::sqrt(-2.0 * std::log(Uniform(random)));
  return radius * std::cos(2.0 * pi * Uniform(random));
}

inline double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// ln(1 + e^x) - label * x, for any x without overflow.
inline double CrossEntropy(double x, bool label) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))) -
         (label ? x : 0.0);
}

// Four partial sums: the compiler may use vectors, the order is fixed.
inline double DotOf(const double* a, const double* b, size_t size) {
  double lanes[4] = {};
  size_t i = 0;
  for (; i + 4 <= size; i += 4) {
    for (size_t j = 0; j < 4; ++j) lanes[j] += a[i + j] * b[i + j];
  }
  double sum = lanes[0] + lanes[1] + lanes[2] + lanes[3];
  for (; i < size; ++i) sum += a[i] * b[i];
  return sum;
}

// out += factor * values
inline void AddScaled(double factor, const double* values, size_t size,
                      double* out) {
  for (size_t i = 0; i < size; ++i) out[i] += factor * values[i];
}

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_TRAINING_MATH_H_
