#include "common/deterministic_math.h"

namespace nacre {

float DeterministicExp(float x) {
  if (!(x >= -87.0f)) return 0.0f;
  const float n = std::nearbyint(x * 1.44269504f);
  float r = std::fma(-n, kLn2High, x);
  r = std::fma(-n, kLn2Low, r);
  // Minimax polynomial on [-ln2/2, ln2/2] (coefficients of Cephes expf).
  float p = 1.9875691500e-4f;
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  p = std::fma(p, r * r, r) + 1.0f;
  const uint32_t scale = static_cast<uint32_t>(static_cast<int>(n) + 127) << 23;
  return p * FloatOfBits(scale);
}

}  // namespace nacre
