// Logits to one token: bias and forbidden ends, penalties, temperature, top-k,
// top-p, min-p. Then the argmax of logit / T + Gumbel noise (the plain argmax
// at T = 0). The noise is a pure function of (seed, position, token id), shared
// by draft and target. So the token is a pure function of the logits, the
// parameters and the position.
//
// Ties keep the lower id, everywhere. How a large vocabulary is drawn from
// without looking at most of it: logit_row.h, sampling_cut.h, gumbel_race.h.
//
// Thread-compatible: the scratch memory is a sampler's only state, so equal
// samplers draw equal tokens.

#ifndef MODEL_SAMPLER_H_
#define MODEL_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "common/sampling_params.h"
#include "common/token_draw.h"
#include "model/gumbel_race.h"
#include "model/logit_row.h"
#include "model/sampling_cut.h"
#include "model/sampling_scratch.h"

namespace nacre::model {

using ::nacre::SamplingParams;
using ::nacre::ValidateSamplingParams;

// The tokens before a position, as penalties see them. Push and Pop make it
// cheap to look at committed + tail and step back.
class TokenHistory {
 public:
  // The first `num_prompt_tokens` pushed tokens are prompt, the rest generated.
  explicit TokenHistory(int num_prompt_tokens)
      : num_prompt_tokens_(num_prompt_tokens) {}

  // Makes room for so many tokens: up to them nothing allocates.
  void Reserve(int length);

  void Push(int32_t token_id);
  void Truncate(int length);  // pops down to `length` tokens
  int length() const { return static_cast<int>(tokens_.size()); }

  struct Counts {
    int prompt = 0;
    int generated = 0;
  };
  const absl::flat_hash_map<int32_t, Counts>& counts() const { return counts_; }

 private:
  int num_prompt_tokens_;
  std::vector<int32_t> tokens_;
  absl::flat_hash_map<int32_t, Counts> counts_;
};

// `token_ids` are not drawn for positions below `min_position`: a request that
// must not end yet.
struct EndRule {
  int min_position = 0;
  std::vector<int32_t> token_ids;
};

// The law that a sampler draws a token by: token_ids[i] with probability
// weights[i] over the sum of all.
struct TokenWeights {
  std::vector<int32_t> token_ids;  // ascending, at least one
  std::vector<float> weights;      // e^(scaled - best), finite and > 0
};

// For a row that is looked at and not sampled, of a model that draws tokens.
inline TokenDraw DrawToLookAt(int vocab_size) {
  TokenDraw draw;
  draw.vocab_limit = vocab_size;
  return draw;
}

class Sampler {
 public:
  // Ids >= vocab_limit are never drawn: padded heads, or ids the target lacks.
  // `scratch`, of this thread, outlives the sampler; null: it has its own.
  Sampler(const SamplingParams& params, int vocab_limit, EndRule end_rule = {},
          SamplingScratch* scratch = nullptr);

  // Draws the token for absolute `position` (the number of tokens before it).
  //   logits [vocab_size >= vocab_limit]; `history` holds the tokens before.
  // NaN logits are never drawn; if all are NaN or -inf, returns id 0 (also
  // where it is a forbidden end: there is nothing else). Allocates nothing.
  int32_t Sample(absl::Span<const float> logits, int position,
                 const TokenHistory& history);

  // Fills `best` (at most kMaxCandidates) with the tokens of the largest scores
  // that Sample draws from, the largest first; returns how many there are. The
  // first is Sample's; beside an infinite value, or where all tokens are
  // impossible, it is the only one. Allocates nothing.
  int Rank(absl::Span<const float> logits, int position,
           const TokenHistory& history, absl::Span<ScoredToken> best);

  // How a device draws the token for `position` from the same logits, the same
  // token (common/token_draw.h). Absent where it cannot: something comes before
  // the temperature, or filters what is drawn from.
  absl::optional<TokenDraw> DeviceDraw(int position) const;

  // Fills in what Sample draws by, where other code draws: one token where
  // Sample has no choice. Unlike Sample it looks at every token.
  void FillWeights(absl::Span<const float> logits, int position,
                   const TokenHistory& history, TokenWeights* weights);

 private:
  bool ForbidsEnd(int position) const {
    return position < end_rule_.min_position && !end_rule_.token_ids.empty();
  }
  // Whether anything comes before the temperature.
  bool Adjusts(int position) const {
    return has_penalties_ || ForbidsEnd(position) ||
           !params_.logit_bias.empty();
  }
  // The row with what comes before the temperature.
  const float* BeforeTemperature(absl::Span<const float> logits, int position,
                                 const TokenHistory& history);
  bool has_filters() const {
    return (params_.top_k > 0 && params_.top_k < vocab_limit_) ||
           params_.top_p < 1.0f || params_.min_p > 0.0f;
  }
  // A copy with what the parameters change before the temperature.
  //                                         all values: [vocab_limit]
  const float* Adjusted(const float* values, bool forbids_end,
                        const TokenHistory& history);
  TopCandidates Top(const float* values, int position, int places);
  TopCandidates Greedy(const float* values, int places);
  // Draws at a temperature, from all tokens or after a filter.
  TopCandidates DrawFromAll(const float* values, int position, int places);
  TopCandidates DrawFromTop(const float* values, int position, int places);
  // Enters what may win of some groups. `best`: the row's largest scaled value.
  void Race(const LogitRow& row, GroupRange groups, const SamplingCut& cut,
            float best, GumbelRace* race) const;

  SamplingParams params_;
  int vocab_limit_;
  EndRule end_rule_;
  bool has_penalties_;
  std::unique_ptr<SamplingScratch> own_scratch_;
  SamplingScratch* scratch_;
};

}  // namespace nacre::model

#endif  // MODEL_SAMPLER_H_
