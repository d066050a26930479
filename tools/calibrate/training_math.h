// What the networks in training share. The same numbers on every machine but
// for the rounding of its exp and log.
//
// Pure functions.

#ifndef TOOLS_CALIBRATE_TRAINING_MATH_H_
#define TOOLS_CALIBRATE_TRAINING_MATH_H_

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "common/check.h"

namespace nacre::tools {

// All parameters of a network, or their gradient, one part after the other.
using Parameters = Eigen::VectorXd;
// How a matrix lies in them: row after row.
using RowMatrix =
    Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct WeightedLoss {
  double sum = 0.0;  // of weight * -ln of what was said of what happened, nats
  double weight = 0.0;

  void operator+=(const WeightedLoss& other) {
    sum += other.sum;
    weight += other.weight;
  }
  double mean() const { return sum / weight; }
};

// The weighted mean over one or more examples.
template <typename Network, typename Example>
double MeanLoss(Network& network, absl::Span<const Example> examples) {
  NACRE_CHECK(!examples.empty(), "the loss of no example");
  WeightedLoss total;
  for (const Example& example : examples) total += network.Loss(example);
  return total.mean();
}

// The root mean square of all numbers that were added; 1 where all are 0.
class RootMeanSquare {
 public:
  void Add(absl::Span<const float> values) {
    for (const float value : values) sum_ += static_cast<double>(value) * value;
    count_ += values.size();
  }
  double value() const {
    return sum_ > 0.0 ? std::sqrt(sum_ / static_cast<double>(count_)) : 1.0;
  }

 private:
  double sum_ = 0.0;
  size_t count_ = 0;
};

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

// Fills `values`, in order, with normal numbers of this variance.
inline void FillNormal(double variance, std::mt19937_64& random,
                       Eigen::Ref<Parameters> values) {
  const double spread = std::sqrt(variance);
  for (double& value : values) value = spread * Normal(random);
}

inline double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// ln(1 + e^x) - label * x, for any x without overflow.
inline double CrossEntropy(double x, bool label) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))) -
         (label ? x : 0.0);
}

// `values` times `factor`, as the weights of a policy.
inline std::vector<float> Floats(const Eigen::Ref<const Parameters>& values,
                                 double factor = 1.0) {
  std::vector<float> floats;
  floats.reserve(static_cast<size_t>(values.size()));
  for (const double value : values) {
    floats.push_back(static_cast<float>(value * factor));
  }
  return floats;
}

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_TRAINING_MATH_H_
