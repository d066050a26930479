// How a draft token is drawn where the target verifies by the ratio test. It is
// from an explicit distribution, small enough to be sent along, with numbers of
// its own (NoisePurpose::kDraft).
//
// The distribution is the draft's own after the request's penalties,
// temperature and filters, cut to its kMaxDistribution likeliest tokens. The
// test is exact for any; the cut costs acceptance only.
//
// Thread-compatible.

#ifndef DRAFT_WORKER_RATIO_DRAW_H_
#define DRAFT_WORKER_RATIO_DRAW_H_

#include <cstdint>

#include "absl/types/span.h"
#include "model/sampler.h"
#include "speculation/pipeline.h"

namespace nacre::draft_worker {

// The kMaxDistribution likeliest; of equal ones the lower ids.
speculation::DraftDistribution LikeliestTokens(
    const model::TokenWeights& weights);

class RatioDraw {
 public:
  explicit RatioDraw(uint64_t seed) : seed_(seed) {}

  // As model::Sampler::Sample, with `sampler`'s parameters; fills in what the
  // token was drawn from.
  int32_t Draw(model::Sampler& sampler, absl::Span<const float> logits,
               int position, const model::TokenHistory& history,
               speculation::DraftDistribution* distribution);

 private:
  const uint64_t seed_;
  model::TokenWeights weights_;  // scratch
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_RATIO_DRAW_H_
