#include "kernels/cpu/coded_weights.h"

#include <algorithm>
#include <numeric>

namespace nacre::kernels {

void ChooseHighBytes(const uint16_t* weights, size_t steps, CodedUnit* unit) {
  // Those of neighbours are often equal: counters of their own, so that one
  // does not wait for the other.
  constexpr size_t kCounters = 4;
  static_assert(kCodedStepWeights % kCounters == 0);
  uint32_t counts[kCounters][256] = {};
  for (size_t i = 0; i < steps * kCodedStepWeights; i += kCounters) {
    for (size_t j = 0; j < kCounters; ++j) ++counts[j][weights[i + j] >> 8];
  }
  const auto count = [&](int h) {
    return counts[0][h] + counts[1][h] + counts[2][h] + counts[3][h];
  };
  const auto both_signs = [&](int e) { return count(e) + count(0x80 | e); };
  int mode = 1;  // of what is not 0
  for (int e = 2; e < 0x80; ++e) {
    mode = both_signs(e) > both_signs(mode) ? e : mode;
  }
  // Of what the weights lack, what is nearest to the rest, below.
  const auto rank = [&](int h) {
    const int e = h & 0x7F;
    return e <= mode ? mode - e : 0x80 + e;
  };
  uint8_t bytes[256];
  std::iota(std::begin(bytes), std::end(bytes), uint8_t{0});
  std::partial_sort(std::begin(bytes), bytes + kHighBytes, std::end(bytes),
                    [&](int a, int b) {
                      if (count(a) != count(b)) return count(a) > count(b);
                      if (rank(a) != rank(b)) return rank(a) < rank(b);
                      return a < b;
                    });
  std::copy_n(bytes, kHighBytes, unit->high);
}

}  // namespace nacre::kernels
