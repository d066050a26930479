// Probabilities of scaled values (model/logit_row.h), relative to the best
// token's: e^(value - best), in the fixed steps of DeterministicExp. Every SIMD
// target computes the same bits.
//
// Thread-safe: pure functions.

#ifndef MODEL_PROBABILITY_MASS_H_
#define MODEL_PROBABILITY_MASS_H_

#include <cmath>
#include <cstdint>

#include "model/logit_row.h"

namespace nacre::model {

// A mass is trunc(e^(value - best) * kMassOne), so that sums do not depend on
// their order. Where value - best is below kNegligibleDifference it is 0.
inline constexpr float kMassOne = 0x1p30f;
inline constexpr float kNegligibleDifference = -21.0f;

// The sum of the masses of all tokens.
int64_t TotalMass(const LogitRow& row, float best);

// masses[i] = that of the scaled values[i]; returns their sum.
//                                 values [count + kSlack], none NaN; masses too
int64_t Masses(const float* values, int count, float best, int32_t* masses);

// Finds the maxima of a row, not scaled, and on the way estimates the sum of
// e^(scaled - best) over all tokens. 0 where no logit is finite. The bits
// depend on the target.                       maxima [NumGroups(count) +
// kSlack]
double FindMaximaAndEstimateSum(const float* logits, int count,
                                float temperature, float* maxima);

// Between them lies TotalMass.
struct MassBounds {
  double lower = 0.0;
  double upper = 0.0;
};
inline MassBounds BoundsOfTotalMass(double estimated_sum, float best,
                                    int count) {
  // The estimate's own error, 128 roundings of sums the most of it, and that of
  // differences of rounded values.
  const double error = 1.6e-5 + std::abs(static_cast<double>(best)) * 0x1p-22;
  const double mass = estimated_sum * static_cast<double>(kMassOne);
  // Each token's mass is rounded down.
  return {mass * (1.0 - error) - count, mass * (1.0 + error)};
}

}  // namespace nacre::model

#endif  // MODEL_PROBABILITY_MASS_H_
