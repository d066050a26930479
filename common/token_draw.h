// The draw of exact match, token by token. It takes the token of the largest
// logit / temperature + Gumbel noise, at temperature 0 of the largest logit.
// Ties keep the lower id, -inf is never drawn. model::Sampler draws the same,
// where nothing comes before the temperature and nothing is filtered. It is one
// number a token, so a device may find the largest in any order. Only where a
// sound forward cannot have given the row, it says so instead.
//
// Thread-safe: pure functions. Free of Abseil: kernels of a GPU include it.

#ifndef COMMON_TOKEN_DRAW_H_
#define COMMON_TOKEN_DRAW_H_

#include <cstdint>
#include <limits>

#include "common/deterministic_math.h"
#include "common/host_device.h"

namespace nacre {

// How the token of one row of logits is drawn.
struct TokenDraw {
  uint64_t seed = 0;
  int32_t position = 0;      // the number of tokens before the one drawn
  float temperature = 0.0f;  // finite, >= 0; 0 is greedy
  int32_t vocab_limit = 0;   // >= 1; ids from here on are never drawn
  bool operator==(const TokenDraw&) const = default;
};

// Bits of a DrawKey that hold the id.
inline constexpr int kDrawIdBits = 31;
inline constexpr uint32_t kLargestDrawId = (1u << kDrawIdBits) - 1;

// The key of a token whose logit is a number, but whose score is -inf: it is
// below those of all others.
inline constexpr uint64_t kLeastDrawKey = 1;

// The key of a NaN: above those of all others, so that one in a row shows.
inline constexpr uint64_t kNanDrawKey = ~uint64_t{0};

// In place of the id drawn of a row that holds NaN or +inf, or nothing but
// -inf.
inline constexpr int32_t kUnsoundDraw = -1;

inline constexpr float kInfiniteScore = std::numeric_limits<float>::infinity();

// Rises with the float; -0 and 0 are equal. Not for NaN.
NACRE_HOST_DEVICE inline uint32_t OrderedBits(float value) {
  const uint32_t bits = BitsOfFloat(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The token of the largest key is drawn. 0: -inf. `noise` is that of
// the token (NoisePurpose::kSample); at temperature 0 it does not matter.
NACRE_HOST_DEVICE inline uint64_t DrawKey(float temperature, float logit,
                                          uint32_t noise, int32_t id) {
  if (logit != logit) return kNanDrawKey;
  float score = logit;
  uint64_t is_certain = 0;
  if (temperature > 0.0f) {
    score = logit / temperature;
    if (score < kInfiniteScore) {
      score += GumbelFromBits(noise);
    } else if (score == kInfiniteScore) {
      // A logit or a temperature at which there is nothing to draw: greedy in
      // the limit.
      is_certain = 1;
      score = logit;
    }
  }
  if (!(score > -kInfiniteScore)) {
    return logit > -kInfiniteScore ? kLeastDrawKey : 0;
  }
  return is_certain << 63 | uint64_t{OrderedBits(score)} << kDrawIdBits |
         (kLargestDrawId - static_cast<uint32_t>(id));
}

// The id that the largest of a row's keys stands for, 0 where all scores are
// -inf, or kUnsoundDraw.
NACRE_HOST_DEVICE inline int32_t DrawnId(uint64_t largest_key) {
  const auto score_bits = static_cast<uint32_t>(largest_key >> kDrawIdBits);
  if (largest_key == 0 || score_bits >= OrderedBits(kInfiniteScore)) {
    return kUnsoundDraw;
  }
  if (largest_key == kLeastDrawKey) return 0;
  return static_cast<int32_t>(
      kLargestDrawId - (static_cast<uint32_t>(largest_key) & kLargestDrawId));
}

}  // namespace nacre

#endif  // COMMON_TOKEN_DRAW_H_
