// The sampler's loops over a whole vocabulary, written so that compilers turn
// them into vector code; on x86 also compiled for AVX2 with FMA and chosen when
// the processor has them. Every build computes the same bits: integers, and the
// explicit fused multiply-adds of common/deterministic_math.h.
//
// Thread-safe: pure functions.

#ifndef MODEL_SAMPLING_MATH_H_
#define MODEL_SAMPLING_MATH_H_

#include <bit>
#include <cstdint>

namespace nacre::model {

inline constexpr int kTokensPerNoiseBlock = 4;

// Token ids that one call of NoiseBits covers.
inline constexpr int kNoiseChunk = 64;

// bits[i] = the kSample noise of token id first_id + i, for kNoiseChunk ids;
// `first_id` is a multiple of kTokensPerNoiseBlock.
void NoiseBits(uint64_t seed, int position, int first_id, uint32_t* bits);

// An upper bound on GumbelFromBits(bits), 0.07 above -ln(1 - u) at most (but
// for the last few numbers) and so close for the large values that win: -ln(-ln
// u) <= -ln(1 - u), and log2 of a float is at least its bits read as a
// fixed-point number.
inline float GumbelUpperBound(uint32_t bits) {
  // (1 - u) * 2^31, rounded down.
  const float y = static_cast<float>(static_cast<int32_t>(~bits >> 1)) + 0.25f;
  const float log2_fixed_point =
      static_cast<float>(std::bit_cast<int32_t>(y));  // (log2 y + 127) * 2^23
  // ln 2 * (31 + 127 - log2_fixed_point / 2^23), and a margin for rounding.
  return 109.5183f - 8.2629635e-8f * log2_fixed_point;
}

// Whether scaled + GumbelUpperBound(bits[i]) reaches `best` for any of the
// kNoiseChunk tokens, scaled = logits[i] / temperature. NaN never does.
bool AnyMayReach(const float* logits, const uint32_t* bits, float temperature,
                 float best);

// Probability masses are relative to the best token's and fixed-point: sums do
// not depend on the order. Below kNegligibleDifference a mass is 0.
inline constexpr float kMassOne = 0x1p30f;
inline constexpr float kNegligibleDifference = -21.0f;

// differences[i] = logits[i] / temperature - best, and
// masses[i] = trunc(DeterministicExp(differences[i]) * kMassOne), 0 for NaN.
void ProbabilityMasses(const float* logits, int count, float temperature,
                       float best, float* differences, int32_t* masses);

// The sum of the masses whose difference is at least `threshold`.
int64_t MassAbove(const float* differences, const int32_t* masses, int count,
                  float threshold);

}  // namespace nacre::model

#endif  // MODEL_SAMPLING_MATH_H_
