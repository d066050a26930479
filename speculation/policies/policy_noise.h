// The random numbers of one session's policy: a stream of their own (purpose
// kPolicy), so that nothing that draws tokens shares one of them. Numbered by
// how many were drawn, not by position: a position that is drafted again
// decides anew.
//
// One owner, no threads.

#ifndef SPECULATION_POLICIES_POLICY_NOISE_H_
#define SPECULATION_POLICIES_POLICY_NOISE_H_

#include <cmath>
#include <cstdint>
#include <numbers>

#include "common/philox.h"

namespace nacre::speculation {

class PolicyNoise {
 public:
  explicit PolicyNoise(uint64_t seed) : seed_(seed) {}

  // In (0, 1).
  double Uniform() {
    const uint32_t index = drawn_++;
    if (index % 4 == 0) {
      block_ =
          NoiseBlock(seed_, /*position=*/0, index / 4, NoisePurpose::kPolicy);
    }
    return (block_[index % 4] + 0.5) * 0x1p-32;
  }

  // Standard normal (Box and Muller 1958).
  double Normal() {
    const double radius = std::sqrt(-2.0 * std::log(Uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * Uniform());
  }

 private:
  const uint64_t seed_;
  uint32_t drawn_ = 0;
  PhiloxBlock block_ = {};
};

}  // namespace nacre::speculation

#endif  // SPECULATION_POLICIES_POLICY_NOISE_H_
