// Numbers, texts and ids drawn at random: bounds come up often.

#ifndef TESTS_WIRE_GENERATED_VALUES_H_
#define TESTS_WIRE_GENERATED_VALUES_H_

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace nacre::wire {

class ValueMaker {
 protected:
  explicit ValueMaker(uint64_t seed) : random_(seed) {}

  // At most `most`, which it often is, as it is 0.
  int64_t UpTo(int64_t most) {
    const uint64_t way = random_() % 4;
    if (way == 0) return 0;
    if (way == 1) return most;
    return static_cast<int64_t>(random_() % (static_cast<uint64_t>(most) + 1));
  }
  int Below(int limit) { return static_cast<int>(UpTo(limit - 1)); }
  int Few() { return static_cast<int>(random_() % 3); }
  int Int() { return static_cast<int>(UpTo(std::numeric_limits<int>::max())); }
  uint64_t Id() { return random_(); }
  uint32_t Word() { return static_cast<uint32_t>(random_()); }
  bool Coin() { return random_() % 2 == 0; }
  float Real() {
    return std::uniform_real_distribution<float>(-100.0f, 100.0f)(random_);
  }
  std::string Text(size_t most) {
    return std::string(static_cast<size_t>(UpTo(static_cast<int64_t>(most))),
                       static_cast<char>('a' + random_() % 26));
  }
  std::vector<uint64_t> Ids() {
    std::vector<uint64_t> ids(static_cast<size_t>(Few()));
    for (uint64_t& id : ids) id = Id();
    return ids;
  }
  // At least one.
  std::vector<int32_t> Tokens(int most) {
    std::vector<int32_t> ids(static_cast<size_t>(1 + Below(most)));
    for (int32_t& id : ids) id = Int();
    return ids;
  }

  std::mt19937_64 random_;
};

}  // namespace nacre::wire

#endif  // TESTS_WIRE_GENERATED_VALUES_H_
