#include "model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/check.h"
#include "common/deterministic_math.h"
#include "common/philox.h"
#include "model/sampling_math.h"

namespace nacre::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
using Candidate = std::pair<float, int32_t>;  // logit / T, token id

int32_t Mass(float difference_to_best) {
  return static_cast<int32_t>(DeterministicExp(difference_to_best) * kMassOne);
}

// Descending logit; ties: the lower id first.
bool Before(const Candidate& a, const Candidate& b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

// Gumbel noise of one request and position, token by token, and the best sum of
// logit and noise so far. Skips what cannot win without computing its
// logarithm: rounded sums are monotone, so comparing with a bound of the noise
// is exact.
class GumbelRace {
 public:
  GumbelRace(uint64_t seed, int position) : seed_(seed), position_(position) {}

  int32_t winner() const { return winner_; }
  float best_score() const { return best_score_; }

  // Whether a token of this logit / T loses whatever its noise is.
  bool CannotWin(float scaled) const {
    return scaled + kMaxGumbel < best_score_;
  }

  void Add(float scaled, int32_t id) {
    if (CannotWin(scaled)) return;
    const int32_t block = id / kTokensPerNoiseBlock;
    if (block != block_index_) {
      noise_ = NoiseBlock(seed_, static_cast<uint32_t>(position_),
                          static_cast<uint32_t>(block), NoisePurpose::kSample);
      block_index_ = block;
    }
    Add(scaled, id, noise_[static_cast<size_t>(id % kTokensPerNoiseBlock)]);
  }

  // Whether a token of this logit / T and noise may win. NaN does not.
  bool MayWin(float scaled, uint32_t bits) const {
    return scaled + GumbelUpperBound(bits) >= best_score_;
  }

  void Add(float scaled, int32_t id, uint32_t bits) {
    if (!MayWin(scaled, bits)) return;
    const float score = scaled + GumbelFromBits(bits);
    if (score > best_score_ || (score == best_score_ && id < winner_)) {
      best_score_ = score;
      winner_ = id;
    }
  }

 private:
  uint64_t seed_;
  int position_;
  float best_score_ = -kInfinity;
  int32_t winner_ = 0;
  int32_t block_index_ = -1;
  PhiloxBlock noise_ = {};
};

// The largest value, NaN aside; -inf if there is none. Lanes let the compiler
// use vector instructions without reordering anything that matters.
float Maximum(const float* values, int count) {
  constexpr int kLanes = 16;
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -kInfinity);
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
    }
  }
  float best = -kInfinity;
  for (; i < count; ++i) best = values[i] > best ? values[i] : best;
  for (const float lane : lanes) best = lane > best ? lane : best;
  return best;
}

// The lowest id with the largest value; 0 if all are NaN or -inf.
int32_t ArgMax(const float* values, int count) {
  const float best = Maximum(values, count);
  if (best == -kInfinity) return 0;
  return static_cast<int32_t>(std::find(values, values + count, best) - values);
}

void ApplyPenalties(const SamplingParams& params, const TokenHistory& history,
                    int vocab_limit, float* logits) {
  for (const auto& [id, counts] : history.counts()) {
    if (id < 0 || id >= vocab_limit) continue;
    float logit = logits[id];
    logit = logit > 0 ? logit / params.repetition_penalty
                      : logit * params.repetition_penalty;
    if (counts.generated > 0) {
      logit -= params.frequency_penalty * static_cast<float>(counts.generated);
      logit -= params.presence_penalty;
    }
    logits[id] = logit;
  }
}

// Fills `candidates` with the first `k` in the order of Before, in any order.
// A buffer of a few times k is cut back to k whenever it is full; a later token
// that only equals the k-th loses to it, its id being higher.
void SelectTopK(const float* logits, int count, float temperature, int k,
                std::vector<Candidate>* candidates) {
  const size_t kept = static_cast<size_t>(k);
  const size_t buffer = std::max<size_t>(4 * kept, 1024);
  const auto cut = [&] {
    if (candidates->size() <= kept) return;
    std::nth_element(candidates->begin(), candidates->begin() + (k - 1),
                     candidates->end(), Before);
    candidates->resize(kept);
  };
  candidates->clear();
  float threshold = -kInfinity;
  for (int id = 0; id < count; ++id) {
    const float scaled = logits[id] / temperature;
    if (!(scaled > threshold)) continue;
    candidates->emplace_back(scaled, id);
    if (candidates->size() == buffer) {
      cut();
      threshold = candidates->back().first;
    }
  }
  cut();
}

// Keeps the shortest prefix in the order of Before whose mass reaches `wanted`.
// Sorts only as much as it needs.
void SelectTopP(double wanted, float best, std::vector<Candidate>* candidates) {
  const auto all = candidates->begin();
  const size_t size = candidates->size();
  int64_t sum = 0;
  size_t begin = 0;
  for (size_t chunk = 64; begin < size; chunk *= 4) {
    const size_t end = std::min(size, begin + chunk);
    if (end < size) {
      std::nth_element(all + begin, all + end, candidates->end(), Before);
    }
    std::sort(all + begin, all + end, Before);
    for (; begin < end; ++begin) {
      sum += Mass((*candidates)[begin].first - best);
      if (static_cast<double>(sum) >= wanted) {
        candidates->resize(begin + 1);
        return;
      }
    }
  }
}

double WantedMass(float top_p, int64_t total) {
  return static_cast<double>(top_p) * static_cast<double>(total);
}

// Fills `candidates` with a superset of the top-p set of the whole vocabulary,
// as small as a threshold on the logits can make it in steps of 2^-5.
//   differences, masses [count]; `wanted`: the mass that top-p must reach
void CollectTopP(const float* differences, const int32_t* masses, int count,
                 double wanted, const float* logits, float temperature,
                 std::vector<Candidate>* candidates) {
  // The highest threshold, in steps, above which there is enough. All of the
  // mass lies above kNegligibleDifference.
  constexpr int kStepsPerUnit = 32;
  int enough = static_cast<int>(kNegligibleDifference) * kStepsPerUnit;
  int too_little = 1;
  while (too_little - enough > 1) {
    const int middle = enough + (too_little - enough) / 2;
    const float threshold = static_cast<float>(middle) / kStepsPerUnit;
    const int64_t mass = MassAbove(differences, masses, count, threshold);
    (static_cast<double>(mass) >= wanted ? enough : too_little) = middle;
  }
  const float threshold = static_cast<float>(enough) / kStepsPerUnit;
  candidates->clear();
  for (int id = 0; id < count; ++id) {
    if (differences[id] >= threshold) {
      candidates->emplace_back(logits[id] / temperature, id);
    }
  }
}

bool PassesMinP(const SamplingParams& params, float difference_to_best) {
  return params.min_p == 0.0f ||
         DeterministicExp(difference_to_best) >= params.min_p;
}

// Races the whole vocabulary, but for min-p. `best`: the best logit / T.
void RaceAll(const SamplingParams& params, const float* logits, int count,
             float best, int position, GumbelRace* race) {
  uint32_t bits[kNoiseChunk];
  int32_t id = 0;
  for (; id + kNoiseChunk <= count; id += kNoiseChunk) {
    NoiseBits(params.seed, position, id, bits);
    if (!AnyMayReach(logits + id, bits, params.temperature,
                     race->best_score())) {
      continue;
    }
    for (int i = 0; i < kNoiseChunk; ++i) {
      const float scaled = logits[id + i] / params.temperature;
      if (race->MayWin(scaled, bits[i]) && PassesMinP(params, scaled - best)) {
        race->Add(scaled, id + i, bits[i]);
      }
    }
  }
  for (; id < count; ++id) {
    const float scaled = logits[id] / params.temperature;
    if (!race->CannotWin(scaled) && PassesMinP(params, scaled - best)) {
      race->Add(scaled, id);
    }
  }
}

}  // namespace

void TokenHistory::Push(int32_t token_id) {
  Counts& counts = counts_[token_id];
  ++(length() < num_prompt_tokens_ ? counts.prompt : counts.generated);
  tokens_.push_back(token_id);
}

void TokenHistory::Truncate(int length) {
  NACRE_CHECK(length >= 0, "truncation to a negative length");
  while (this->length() > length) {
    const auto it = counts_.find(tokens_.back());
    tokens_.pop_back();
    Counts& counts = it->second;
    --(this->length() < num_prompt_tokens_ ? counts.prompt : counts.generated);
    if (counts.prompt == 0 && counts.generated == 0) counts_.erase(it);
  }
}

Sampler::Sampler(const SamplingParams& params, int vocab_limit,
                 EndRule end_rule)
    : params_(params),
      vocab_limit_(vocab_limit),
      end_rule_(std::move(end_rule)),
      has_penalties_(params.repetition_penalty != 1.0f ||
                     params.frequency_penalty != 0.0f ||
                     params.presence_penalty != 0.0f) {
  NACRE_CHECK(vocab_limit > 0, "an empty vocabulary");
}

void Sampler::Adjust(const float* values, bool forbids_end,
                     const TokenHistory& history) {
  logits_.assign(values, values + vocab_limit_);
  for (const auto& [id, bias] : params_.logit_bias) {
    if (id >= 0 && id < vocab_limit_) logits_[id] += bias;
  }
  if (forbids_end) {
    for (const int32_t id : end_rule_.token_ids) {
      if (id >= 0 && id < vocab_limit_) logits_[id] = -kInfinity;
    }
  }
  if (has_penalties_) {
    ApplyPenalties(params_, history, vocab_limit_, logits_.data());
  }
}

int32_t Sampler::Sample(absl::Span<const float> logits, int position,
                        const TokenHistory& history) {
  NACRE_CHECK(logits.size() >= static_cast<size_t>(vocab_limit_),
              "fewer logits than the vocabulary");
  const float* values = logits.data();
  const bool forbids_end =
      position < end_rule_.min_position && !end_rule_.token_ids.empty();
  if (has_penalties_ || forbids_end || !params_.logit_bias.empty()) {
    Adjust(values, forbids_end, history);
    values = logits_.data();
  }
  const int32_t greedy = ArgMax(values, vocab_limit_);
  const float temperature = params_.temperature;
  if (temperature == 0.0f) return greedy;
  const float best = values[greedy] / temperature;
  // No finite best: nothing to draw from, or a temperature so small that the
  // division overflows. Both are greedy in the limit.
  if (!std::isfinite(best)) return greedy;

  GumbelRace race(params_.seed, position);
  const bool has_top_k = params_.top_k > 0 && params_.top_k < vocab_limit_;
  const bool has_top_p = params_.top_p < 1.0f;
  if (!has_top_k && !has_top_p) {
    race.Add(best, greedy);  // first, so that it prunes the others
    RaceAll(params_, values, vocab_limit_, best, position, &race);
    return race.winner();
  }
  if (has_top_k) {
    SelectTopK(values, vocab_limit_, temperature, params_.top_k, &candidates_);
    if (has_top_p) {
      int64_t total = 0;
      for (const Candidate& candidate : candidates_) {
        total += Mass(candidate.first - best);
      }
      SelectTopP(WantedMass(params_.top_p, total), best, &candidates_);
    }
  } else {
    differences_.resize(static_cast<size_t>(vocab_limit_));
    masses_.resize(static_cast<size_t>(vocab_limit_));
    ProbabilityMasses(values, vocab_limit_, temperature, best,
                      differences_.data(), masses_.data());
    const double wanted = WantedMass(
        params_.top_p, MassAbove(differences_.data(), masses_.data(),
                                 vocab_limit_, kNegligibleDifference));
    CollectTopP(differences_.data(), masses_.data(), vocab_limit_, wanted,
                values, temperature, &candidates_);
    SelectTopP(wanted, best, &candidates_);
  }
  for (const auto& [scaled, id] : candidates_) {
    if (PassesMinP(params_, scaled - best)) race.Add(scaled, id);
  }
  return race.winner();
}

}  // namespace nacre::model
