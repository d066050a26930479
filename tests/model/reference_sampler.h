// The sampler's meaning, written down step by step without any pruning: sort
// everything, cut, draw noise for everything that is left. The oracle for
// model/sampler.h.

#ifndef TESTS_MODEL_REFERENCE_SAMPLER_H_
#define TESTS_MODEL_REFERENCE_SAMPLER_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "common/deterministic_math.h"
#include "common/philox.h"
#include "model/sampler.h"

namespace nacre::model {

struct ReferenceCandidate {
  int32_t id = 0;
  float logit = 0;  // after penalties and temperature
};

inline std::vector<float> PenalizedLogits(const SamplingParams& params,
                                          absl::Span<const float> logits,
                                          int vocab_limit,
                                          absl::Span<const int32_t> tokens,
                                          int num_prompt_tokens) {
  std::vector<float> result(logits.begin(), logits.begin() + vocab_limit);
  for (int id = 0; id < vocab_limit; ++id) {
    int anywhere = 0;
    int generated = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] != id) continue;
      ++anywhere;
      if (static_cast<int>(i) >= num_prompt_tokens) ++generated;
    }
    float& logit = result[static_cast<size_t>(id)];
    if (anywhere > 0) {
      logit = logit > 0 ? logit / params.repetition_penalty
                        : logit * params.repetition_penalty;
    }
    if (generated > 0) {
      logit = logit - params.frequency_penalty * static_cast<float>(generated);
      logit = logit - params.presence_penalty;
    }
  }
  return result;
}

// What survives top-k, top-p and min-p, best first.
inline std::vector<ReferenceCandidate> FilteredCandidates(
    const SamplingParams& params, absl::Span<const float> penalized) {
  std::vector<ReferenceCandidate> candidates;
  for (size_t id = 0; id < penalized.size(); ++id) {
    const float logit = penalized[id] / params.temperature;
    if (std::isnan(logit)) continue;
    candidates.push_back({static_cast<int32_t>(id), logit});
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const ReferenceCandidate& a, const ReferenceCandidate& b) {
        return a.logit > b.logit;
      });
  if (params.top_k > 0 &&
      candidates.size() > static_cast<size_t>(params.top_k)) {
    candidates.resize(static_cast<size_t>(params.top_k));
  }
  if (candidates.empty()) return candidates;
  const float best = candidates[0].logit;
  const auto probability = [best](const ReferenceCandidate& candidate) {
    return DeterministicExp(candidate.logit - best);
  };
  if (params.top_p < 1.0f) {
    // Sums of multiples of 2^-30, exact in 64-bit integers.
    const auto fixed_point = [&](const ReferenceCandidate& candidate) {
      return static_cast<uint64_t>(std::ldexp(probability(candidate), 30));
    };
    uint64_t total = 0;
    for (const auto& candidate : candidates) total += fixed_point(candidate);
    uint64_t sum = 0;
    size_t kept = 0;
    while (kept < candidates.size()) {
      sum += fixed_point(candidates[kept++]);
      if (static_cast<double>(sum) >=
          static_cast<double>(params.top_p) * static_cast<double>(total)) {
        break;
      }
    }
    candidates.resize(kept);
  }
  std::vector<ReferenceCandidate> result;
  for (const auto& candidate : candidates) {
    if (probability(candidate) >= params.min_p) result.push_back(candidate);
  }
  return result;
}

// All tokens that may be drawn, best first, of equal scores the lower id.
inline std::vector<Candidate> ReferenceTop(const SamplingParams& params,
                                           absl::Span<const float> logits,
                                           int vocab_limit, int position,
                                           absl::Span<const int32_t> tokens,
                                           int num_prompt_tokens) {
  const std::vector<float> penalized =
      PenalizedLogits(params, logits, vocab_limit, tokens, num_prompt_tokens);
  std::vector<Candidate> top;
  if (params.temperature == 0.0f) {
    for (int id = 0; id < vocab_limit; ++id) {
      top.push_back({id, penalized[static_cast<size_t>(id)]});
    }
  } else {
    for (const auto& [id, logit] : FilteredCandidates(params, penalized)) {
      const PhiloxBlock noise =
          NoiseBlock(params.seed, static_cast<uint32_t>(position),
                     static_cast<uint32_t>(id / 4), NoisePurpose::kSample);
      top.push_back(
          {id, logit + GumbelFromBits(noise[static_cast<size_t>(id % 4)])});
    }
  }
  const float lowest = -std::numeric_limits<float>::infinity();
  const auto is_never_drawn = [lowest](const Candidate& candidate) {
    return !(candidate.score > lowest);
  };
  top.erase(std::remove_if(top.begin(), top.end(), is_never_drawn), top.end());
  std::sort(top.begin(), top.end(), [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score > b.score : a.id < b.id;
  });
  return top;
}

inline int32_t ReferenceSample(const SamplingParams& params,
                               absl::Span<const float> logits, int vocab_limit,
                               int position, absl::Span<const int32_t> tokens,
                               int num_prompt_tokens) {
  const std::vector<Candidate> top = ReferenceTop(
      params, logits, vocab_limit, position, tokens, num_prompt_tokens);
  return top.empty() ? 0 : top[0].id;
}

}  // namespace nacre::model

#endif  // TESTS_MODEL_REFERENCE_SAMPLER_H_
