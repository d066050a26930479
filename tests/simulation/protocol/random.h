// The one source of chance of a schedule: everything that a seed decides is
// drawn from it.

#ifndef TESTS_SIMULATION_PROTOCOL_RANDOM_H_
#define TESTS_SIMULATION_PROTOCOL_RANDOM_H_

#include <cstdint>
#include <initializer_list>

#include "simulation/random.h"

namespace nacre::protocol {

class Random : public simulation::Random {
 public:
  using simulation::Random::Random;

  // In [0, limit); limit >= 1.
  int Below(int limit) {
    return static_cast<int>((Bits() >> 32) * static_cast<uint64_t>(limit) >>
                            32);
  }
  bool Percent(int percent) { return Below(100) < percent; }
  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return values.begin()[Below(static_cast<int>(values.size()))];
  }
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_RANDOM_H_
