#include "model/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "common/check.h"
#include "common/deterministic_math.h"
#include "model/gumbel_race.h"
#include "model/logit_row.h"
#include "model/probability_mass.h"
#include "model/sampling_cut.h"

namespace nacre::model {
namespace {

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

bool PassesMinP(float min_p, float difference_to_best) {
  return min_p == 0.0f || DeterministicExp(difference_to_best) >= min_p;
}

// No scaled value below it passes min-p; one a little above may not either.
float LowestOfMinP(float min_p, float best) {
  if (min_p == 0.0f) return -kInfinity;
  const float margin = 1e-3f + std::abs(best) * 0x1p-20f;  // for rounding
  return best + std::max(std::log(min_p), -88.0f) - margin;
}

}  // namespace

void TokenHistory::Reserve(int length) {
  const size_t size = static_cast<size_t>(length);
  tokens_.reserve(size);
  // A quarter more: what is truncated leaves marks, which the map cleans up in
  // place only while it is not nearly full.
  counts_.reserve(size + size / 4);
}

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
                 EndRule end_rule, SamplingScratch* scratch)
    : params_(params),
      vocab_limit_(vocab_limit),
      end_rule_(std::move(end_rule)),
      has_penalties_(params.repetition_penalty != 1.0f ||
                     params.frequency_penalty != 0.0f ||
                     params.presence_penalty != 0.0f),
      scratch_(scratch) {
  NACRE_CHECK(vocab_limit > 0, "an empty vocabulary");
  if (scratch_ == nullptr) {
    own_scratch_ = std::make_unique<SamplingScratch>();
    scratch_ = own_scratch_.get();
  }
  scratch_->Reserve(vocab_limit);
}

const float* Sampler::Adjusted(const float* values, bool forbids_end,
                               const TokenHistory& history) {
  float* const logits = scratch_->logits.data();
  std::copy(values, values + vocab_limit_, logits);
  for (const auto& [id, bias] : params_.logit_bias) {
    if (id >= 0 && id < vocab_limit_) logits[id] += bias;
  }
  if (forbids_end) {
    for (const int32_t id : end_rule_.token_ids) {
      if (id >= 0 && id < vocab_limit_) logits[id] = -kInfinity;
    }
  }
  if (has_penalties_) {
    ApplyPenalties(params_, history, vocab_limit_, logits);
  }
  return logits;
}

const float* Sampler::BeforeTemperature(absl::Span<const float> logits,
                                        int position,
                                        const TokenHistory& history) {
  NACRE_CHECK(logits.size() >= static_cast<size_t>(vocab_limit_),
              "fewer logits than the vocabulary");
  return Adjusts(position)
             ? Adjusted(logits.data(), ForbidsEnd(position), history)
             : logits.data();
}

int32_t Sampler::Sample(absl::Span<const float> logits, int position,
                        const TokenHistory& history) {
  const TopCandidates top =
      Top(BeforeTemperature(logits, position, history), position, 1);
  return top.all().empty() ? 0 : top.all()[0].token_id;
}

int Sampler::Rank(absl::Span<const float> logits, int position,
                  const TokenHistory& history, absl::Span<ScoredToken> best) {
  if (best.empty()) return 0;
  const TopCandidates top = Top(BeforeTemperature(logits, position, history),
                                position, static_cast<int>(best.size()));
  if (top.all().empty()) {
    best[0] = ScoredToken();
    return 1;
  }
  std::copy(top.all().begin(), top.all().end(), best.begin());
  return static_cast<int>(top.all().size());
}

TopCandidates Sampler::Top(const float* values, int position, int places) {
  if (params_.temperature == 0.0f) return Greedy(values, places);
  return has_filters() ? DrawFromTop(values, position, places)
                       : DrawFromAll(values, position, places);
}

absl::optional<TokenDraw> Sampler::DeviceDraw(int position) const {
  const bool is_greedy = params_.temperature == 0.0f;
  if (Adjusts(position) || (has_filters() && !is_greedy)) return absl::nullopt;
  return TokenDraw{params_.seed, position, params_.temperature, vocab_limit_};
}

void Sampler::FillWeights(absl::Span<const float> logits, int position,
                          const TokenHistory& history, TokenWeights* weights) {
  const float* values = BeforeTemperature(logits, position, history);
  weights->token_ids.clear();
  weights->weights.clear();
  float* const maxima = scratch_->maxima.data();
  const LogitRow row = {values, maxima, vocab_limit_, params_.temperature};
  const GroupRange groups = AllGroups(row);
  float best = kInfinity;
  if (params_.temperature > 0.0f) {
    FindMaxima(values, vocab_limit_, groups, maxima);
    ScaleMaxima(row.temperature, groups, maxima);
    best = Largest(maxima, groups.end);
  }
  if (!std::isfinite(best)) {
    const TopCandidates top = Greedy(values, 1);
    weights->token_ids.push_back(top.all().empty() ? 0 : top.all()[0].token_id);
    weights->weights.push_back(1.0f);
    return;
  }
  SamplingCut cut;
  if (has_filters()) cut = FindCut(params_, row, best, 0.0, scratch_);
  float* const scaled = scratch_->values.data();
  int32_t* const ids = scratch_->spare_masses.data();
  const float lowest = std::max(cut.value, LowestOfMinP(params_.min_p, best));
  const int count = CollectScaled(row, lowest, kInfinity, 0, scaled, ids);
  for (int i = 0; i < count; ++i) {
    const float difference = scaled[i] - best;
    if (!cut.Keeps(scaled[i], ids[i]) ||
        !PassesMinP(params_.min_p, difference)) {
      continue;
    }
    const float weight = DeterministicExp(difference);
    if (weight <= 0.0f) continue;
    weights->token_ids.push_back(ids[i]);
    weights->weights.push_back(weight);
  }
}

TopCandidates Sampler::Greedy(const float* values, int places) {
  const LogitRow row = {values, scratch_->maxima.data(), vocab_limit_};
  const GroupRange groups = AllGroups(row);
  FindMaxima(values, vocab_limit_, groups, scratch_->maxima.data());
  TopCandidates top(places);
  const float best = Largest(row.maxima, groups.end);
  if (best == -kInfinity) return top;
  top.Add(FindScaled(row, groups, best), best);
  if (places == 1 || best == kInfinity) return top;
  // The best lie in as many groups, those of the largest maxima. Each of these
  // has a token that beats all of any other group: of equal maxima the group of
  // the lower ids is taken.
  TopCandidates best_groups(places);
  for (int group = 0; group < groups.end; ++group) {
    best_groups.Add(group, row.maxima[group]);
  }
  for (const ScoredToken& group : best_groups.all()) {
    const int first = group.token_id * kGroupTokens;
    const int end = std::min(first + kGroupTokens, vocab_limit_);
    for (int32_t id = first; id < end; ++id) {
      if (values[id] >= top.bar()) top.Add(id, values[id]);
    }
  }
  return top;
}

TopCandidates Sampler::DrawFromAll(const float* values, int position,
                                   int places) {
  // While a block's noise is looked at, the next one comes from memory.
  constexpr int kBlock = 32;
  float* const maxima = scratch_->maxima.data();
  const LogitRow row = {values, maxima, vocab_limit_, params_.temperature};
  GumbelRace race(params_.seed, position, places);
  float best = -kInfinity;
  for (int begin = 0; begin < NumGroups(vocab_limit_); begin += kBlock) {
    const GroupRange block = {
        begin, std::min(begin + kBlock, NumGroups(vocab_limit_))};
    FindMaxima(values, vocab_limit_, block, maxima);
    ScaleMaxima(row.temperature, block, maxima);
    const float largest = Largest(maxima + begin, block.end - begin);
    if (largest > best) {
      // A logit or a temperature at which there is nothing to draw: greedy in
      // the limit.
      if (!std::isfinite(largest)) return Greedy(values, 1);
      best = largest;
      race.Add(best, FindScaled(row, block, best));  // it prunes the others
    }
    Race(row, block, SamplingCut(), best, &race);
  }
  return race.top();
}

TopCandidates Sampler::DrawFromTop(const float* values, int position,
                                   int places) {
  float* const maxima = scratch_->maxima.data();
  LogitRow row = {values, maxima, vocab_limit_, params_.temperature};
  const GroupRange groups = AllGroups(row);
  double sum = 0;
  if (params_.top_k == 0 && params_.top_p < 1.0f) {
    sum =
        FindMaximaAndEstimateSum(values, vocab_limit_, row.temperature, maxima);
  } else {
    FindMaxima(values, vocab_limit_, groups, maxima);
  }
  ScaleMaxima(row.temperature, groups, maxima);
  const float best = Largest(maxima, groups.end);
  if (!std::isfinite(best)) return Greedy(values, 1);
  SamplingCut cut = FindCut(params_, row, best, sum, scratch_);
  GumbelRace race(params_.seed, position, places);
  race.Add(best, FindScaled(row, groups, best));
  // After the last of those that equal the cut, only larger values are left.
  const int middle = std::min(cut.last_id / kGroupTokens + 1, groups.end);
  Race(row, {0, middle}, cut, best, &race);
  cut = {std::nextafter(cut.value, kInfinity)};
  Race(row, {middle, groups.end}, cut, best, &race);
  return race.top();
}

void Sampler::Race(const LogitRow& row, GroupRange groups,
                   const SamplingCut& cut, float best, GumbelRace* race) const {
  const float lowest = std::max(cut.value, LowestOfMinP(params_.min_p, best));
  Contenders contenders;
  while (race->NextContenders(row, groups, lowest, &contenders)) {
    groups.begin = contenders.group + 1;
    for (uint64_t left = contenders.tokens; left != 0; left &= left - 1) {
      const int i = std::countr_zero(left);
      const int32_t id = contenders.group * kGroupTokens + i;
      const float scaled = row.logits[id] / row.temperature;
      if (race->MayWin(scaled, contenders.bits[i]) && cut.Keeps(scaled, id) &&
          PassesMinP(params_.min_p, scaled - best)) {
        race->Add(scaled, id, contenders.bits[i]);
      }
    }
  }
}

}  // namespace nacre::model
