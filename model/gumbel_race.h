// The race of exact match: which token has the largest scaled value
// (model/logit_row.h) + Gumbel noise, and which tokens come next. A draft ranks
// its candidates so, since its target draws by the same noise. The noise of a
// token is a pure function of (seed, position, token id). Most of it is never
// drawn, and of what is drawn almost all loses without its logarithm being
// taken. That is exact: rounded sums are monotone, so a token loses where a
// bound of its noise does.
//
// Every SIMD target gives the same winner.

#ifndef MODEL_GUMBEL_RACE_H_
#define MODEL_GUMBEL_RACE_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/types/span.h"
#include "model/logit_row.h"

namespace nacre::model {

inline constexpr int kTokensPerNoiseBlock = 4;

// An upper bound on GumbelFromBits(bits). It is 0.07 above -ln(1 - u) at most
// (but for the last few numbers), so it is close for the large values that win.
// -ln(-ln u) <= -ln(1 - u), and log2 of a float is at least its bits read as a
// fixed-point number.
inline float GumbelUpperBound(uint32_t bits) {
  // (1 - u) * 2^31, rounded down.
  const float y = static_cast<float>(static_cast<int32_t>(~bits >> 1)) + 0.25f;
  const float log2_fixed_point =
      static_cast<float>(std::bit_cast<int32_t>(y));  // (log2 y + 127) * 2^23
  // ln 2 * (31 + 127 - log2_fixed_point / 2^23), and a margin for rounding.
  return 109.5183f - 8.2629635e-8f * log2_fixed_point;
}

// Tokens of one group that may win.
struct Contenders {
  int group = 0;
  uint64_t tokens = 0;          // bit i: token id 64 * group + i
  uint32_t bits[kGroupTokens];  // the noise of all of them
};

// A token and its score: scaled value + noise, at temperature 0 its logit. NaN:
// drawn where its logits are, and not known here.
struct ScoredToken {
  int32_t token_id = 0;
  float score = -std::numeric_limits<float>::infinity();
  bool operator==(const ScoredToken&) const = default;
};
// Most of a position that are looked for.
inline constexpr int kMaxCandidates = 8;

// The best `places` of all that are entered: larger scores first, of equal ones
// the lower id. Each token once, however often it is entered. -inf gets no
// place.
class TopCandidates {
 public:
  explicit TopCandidates(int places);  // 1 to kMaxCandidates

  // What a score must reach, or as a lower id equal, to get a place.
  float bar() const { return bar_; }
  void Add(int32_t id, float score);
  absl::Span<const ScoredToken> all() const {
    return {candidates_.data(), static_cast<size_t>(count_)};
  }

 private:
  int places_;
  int count_ = 0;
  float bar_ = -std::numeric_limits<float>::infinity();
  std::array<ScoredToken, kMaxCandidates> candidates_;
};

class GumbelRace {
 public:
  GumbelRace(uint64_t seed, int position, int places = 1)
      : seed_(seed), position_(position), top_(places) {}

  // What has been entered so far.
  const TopCandidates& top() const { return top_; }
  // The score of the last place; -inf while there are free ones.
  float bar() const { return top_.bar(); }

  // Whether a token of this scaled value and noise may get a place. NaN does
  // not.
  bool MayWin(float scaled, uint32_t bits) const {
    return scaled + GumbelUpperBound(bits) >= bar();
  }

  // Enters a token. Ties keep the lower id.
  void Add(float scaled, int32_t id);  // draws its noise
  void Add(float scaled, int32_t id, uint32_t bits);

  // Finds the first of the groups with tokens that may win. Their scaled value
  // is at least `lowest`, and with the bound of their noise at least bar().
  // False: there is none.
  bool NextContenders(const LogitRow& row, GroupRange groups, float lowest,
                      Contenders* contenders) const;

 private:
  uint64_t seed_;
  int position_;
  TopCandidates top_;
};

}  // namespace nacre::model

#endif  // MODEL_GUMBEL_RACE_H_
