#include "kernels/cpu/coded_weights.h"

#include <algorithm>
#include <numeric>

namespace nacre::kernels {

void ChooseHighBytes(const uint16_t* weights, size_t steps, CodedUnit* unit) {
  // Those of neighbours are often equal: two counters, so that one does not
  // wait for the other.
  uint32_t counts[2][256] = {};
  const auto add = [&](size_t step) {
    const uint16_t* const from = weights + step * kCodedStepWeights;
    for (size_t i = 0; i < kCodedStepWeights; i += 2) {
      ++counts[0][from[i] >> 8];
      ++counts[1][from[i + 1] >> 8];
    }
  };
  for (size_t step = 0; step < steps; step += 7) add(step);
  add(steps - 1);  // which may be padding
  const auto count = [&](int h) { return counts[0][h] + counts[1][h]; };
  const auto both_signs = [&](int e) { return count(e) + count(0x80 | e); };
  int mode = 1;  // of what is not 0
  for (int e = 2; e < 0x80; ++e) {
    mode = both_signs(e) > both_signs(mode) ? e : mode;
  }
  // What these steps lack is likelier the nearer it is to the rest, below.
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
