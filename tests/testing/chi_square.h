// Whether counts follow exact probabilities.

#ifndef TESTS_TESTING_CHI_SQUARE_H_
#define TESTS_TESTING_CHI_SQUARE_H_

#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace nacre::testing {

// How many standard deviations the chi-square statistic lies above its mean
// (Wilson and Hilferty); cells that expect fewer than 5 are merged into one.
inline double ChiSquareDeviation(const std::vector<double>& exact,
                                 const std::vector<int>& counts) {
  const double samples = std::accumulate(counts.begin(), counts.end(), 0.0);
  double statistic = 0;
  double rest_expected = 0;
  double rest_count = 0;
  int cells = 0;
  const auto add = [&](double expected, double count) {
    statistic += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t i = 0; i < exact.size(); ++i) {
    const double expected = exact[i] * samples;
    if (expected >= 5) {
      add(expected, counts[i]);
    } else {
      rest_expected += expected;
      rest_count += counts[i];
    }
  }
  if (rest_expected > 0) add(rest_expected, rest_count);
  // What cannot happen has happened.
  if (rest_expected <= 0 && rest_count > 0) return HUGE_VAL;
  const double k = cells - 1;
  if (k < 1) return 0;
  return (std::cbrt(statistic / k) - (1 - 2 / (9 * k))) /
         std::sqrt(2 / (9 * k));
}

// p > 1e-4 on the upper side.
inline constexpr double kCriticalDeviation = 3.719;

}  // namespace nacre::testing

#endif  // TESTS_TESTING_CHI_SQUARE_H_
