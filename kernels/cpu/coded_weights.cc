#include "kernels/cpu/coded_weights.h"

#include <algorithm>
#include <numeric>

namespace nacre::kernels {

void ChooseExponents(const uint16_t* weights, size_t steps, CodedUnit* unit) {
  // Those of neighbours are often equal: two counters, so that one does not
  // wait for the other.
  uint32_t counts[2][256] = {};
  const auto add = [&](size_t step) {
    const uint16_t* const from = weights + step * kCodedStepWeights;
    for (size_t i = 0; i < kCodedStepWeights; i += 2) {
      ++counts[0][from[i] >> 7 & 0xFF];
      ++counts[1][from[i + 1] >> 7 & 0xFF];
    }
  };
  for (size_t step = 0; step < steps; step += 7) add(step);
  add(steps - 1);  // which may be padding
  const auto count = [&](int e) { return counts[0][e] + counts[1][e]; };
  int mode = 1;  // of what is not 0
  for (int e = 2; e < 256; ++e) mode = count(e) > count(mode) ? e : mode;
  // What these steps lack is likelier the nearer it is to the rest, below.
  const auto rank = [&](int e) { return e <= mode ? mode - e : 256 + e; };
  uint8_t exponents[256];
  std::iota(std::begin(exponents), std::end(exponents), uint8_t{0});
  std::partial_sort(std::begin(exponents), exponents + kExponentCodes,
                    std::end(exponents), [&](int a, int b) {
                      if (count(a) != count(b)) return count(a) > count(b);
                      return rank(a) < rank(b);
                    });
  for (int code = 0; code < kExponentCodes; ++code) {
    unit->low[code] = static_cast<uint8_t>(exponents[code] << 7);
    unit->high[code] = static_cast<uint8_t>(exponents[code] >> 1);
  }
}

}  // namespace nacre::kernels
