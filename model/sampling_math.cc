#include "model/sampling_math.h"

#include "common/philox.h"

// Defines `name` as a function that runs name##Body, compiled for the baseline
// and for AVX2 with FMA. The bodies are inlined into both; nothing compiled for
// AVX2 is visible outside this file.
#if defined(__x86_64__)
#define NACRE_FOR_EACH_TARGET(result, name, parameters, arguments)          \
  __attribute__((target("avx2,fma"))) static result name##Avx2 parameters { \
    return name##Body arguments;                                            \
  }                                                                         \
  result name parameters {                                                  \
    if (HasAvx2()) return name##Avx2 arguments;                             \
    return name##Body arguments;                                            \
  }
#else
#define NACRE_FOR_EACH_TARGET(result, name, parameters, arguments) \
  result name parameters { return name##Body arguments; }
#endif

#define NACRE_BODY __attribute__((always_inline)) static inline

namespace nacre::model {

#if defined(__x86_64__)
static bool HasAvx2() {
  static const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has_avx2;
}
#endif

// Philox of common/philox.h on several counters side by side.
NACRE_BODY void NoiseBitsBody(uint64_t seed, int position, int first_id,
                              uint32_t* bits) {
  constexpr int kBlocks = kNoiseChunk / kTokensPerNoiseBlock;
  uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (int j = 0; j < kBlocks; ++j) {
    c0[j] = static_cast<uint32_t>(position);
    c1[j] = static_cast<uint32_t>(first_id / kTokensPerNoiseBlock + j);
    c2[j] = static_cast<uint32_t>(NoisePurpose::kSample);
    c3[j] = 0;
  }
  uint32_t key0 = static_cast<uint32_t>(seed);
  uint32_t key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int j = 0; j < kBlocks; ++j) {
      const uint64_t product0 = uint64_t{0xD2511F53} * c0[j];
      const uint64_t product1 = uint64_t{0xCD9E8D57} * c2[j];
      c0[j] = static_cast<uint32_t>(product1 >> 32) ^ c1[j] ^ key0;
      c1[j] = static_cast<uint32_t>(product1);
      c2[j] = static_cast<uint32_t>(product0 >> 32) ^ c3[j] ^ key1;
      c3[j] = static_cast<uint32_t>(product0);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  for (int j = 0; j < kBlocks; ++j) {
    bits[4 * j] = c0[j];
    bits[4 * j + 1] = c1[j];
    bits[4 * j + 2] = c2[j];
    bits[4 * j + 3] = c3[j];
  }
}

NACRE_BODY bool AnyMayReachBody(const float* logits, const uint32_t* bits,
                                float temperature, float best) {
  int any = 0;
  for (int i = 0; i < kNoiseChunk; ++i) {
    any |= logits[i] / temperature + GumbelUpperBound(bits[i]) >= best ? 1 : 0;
  }
  return any != 0;
}

// DeterministicExp for x <= 0, without a branch: rounding to an integer by
// adding and subtracting 1.5 * 2^23 is what nearbyint does.
NACRE_BODY float ExpOf(float x) {
  const float clamped = x >= -87.0f ? x : -87.0f;  // NaN too
  const float n = (clamped * 1.44269504f + 12582912.0f) - 12582912.0f;
  float r = __builtin_fmaf(-n, 0.693359375f, clamped);
  r = __builtin_fmaf(-n, -2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = __builtin_fmaf(p, r, 1.3981999507e-3f);
  p = __builtin_fmaf(p, r, 8.3334519073e-3f);
  p = __builtin_fmaf(p, r, 4.1665795894e-2f);
  p = __builtin_fmaf(p, r, 1.6666665459e-1f);
  p = __builtin_fmaf(p, r, 5.0000001201e-1f);
  p = __builtin_fmaf(p, r * r, r) + 1.0f;
  const int32_t scale = (static_cast<int32_t>(n) + 127) << 23;
  return x >= -87.0f ? p * std::bit_cast<float>(scale) : 0.0f;
}

NACRE_BODY void ProbabilityMassesBody(const float* logits, int count,
                                      float temperature, float best,
                                      float* differences, int32_t* masses) {
  for (int i = 0; i < count; ++i) {
    const float difference = logits[i] / temperature - best;
    differences[i] = difference;
    masses[i] = static_cast<int32_t>(ExpOf(difference) * kMassOne);
  }
}

NACRE_BODY int64_t MassAboveBody(const float* differences,
                                 const int32_t* masses, int count,
                                 float threshold) {
  int64_t sum = 0;
  for (int i = 0; i < count; ++i) {
    sum += differences[i] >= threshold ? masses[i] : 0;
  }
  return sum;
}

NACRE_FOR_EACH_TARGET(void, NoiseBits,
                      (uint64_t seed, int position, int first_id,
                       uint32_t* bits),
                      (seed, position, first_id, bits))
NACRE_FOR_EACH_TARGET(bool, AnyMayReach,
                      (const float* logits, const uint32_t* bits,
                       float temperature, float best),
                      (logits, bits, temperature, best))
NACRE_FOR_EACH_TARGET(void, ProbabilityMasses,
                      (const float* logits, int count, float temperature,
                       float best, float* differences, int32_t* masses),
                      (logits, count, temperature, best, differences, masses))
NACRE_FOR_EACH_TARGET(int64_t, MassAbove,
                      (const float* differences, const int32_t* masses,
                       int count, float threshold),
                      (differences, masses, count, threshold))

}  // namespace nacre::model
