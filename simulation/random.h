// A seeded random source whose results are the same on every machine: the
// standard distributions differ between libraries, this does not. No threads.

#ifndef SIMULATION_RANDOM_H_
#define SIMULATION_RANDOM_H_

#include <cstdint>
#include <initializer_list>

namespace nacre::simulation {

inline uint64_t MixBits(uint64_t x) {  // splitmix64's finalizer
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

inline double UnitFromBits(uint64_t bits) {  // in [0, 1)
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(MixBits(seed)) {}

  uint64_t Bits() { return MixBits(state_ += 0x9e3779b97f4a7c15); }
  double Unit() { return UnitFromBits(Bits()); }
  bool Chance(double probability) { return Unit() < probability; }
  int64_t Between(int64_t low, int64_t high) {  // both included
    return low +
           static_cast<int64_t>(Bits() % static_cast<uint64_t>(high - low + 1));
  }
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

 private:
  uint64_t state_;
};

}  // namespace nacre::simulation

#endif  // SIMULATION_RANDOM_H_
