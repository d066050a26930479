#include "draft_worker/ratio_draw.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "common/philox.h"
#include "speculation/ratio_test.h"

namespace nacre::draft_worker {

speculation::DraftDistribution LikeliestTokens(
    const model::TokenWeights& weights) {
  std::vector<size_t> order(weights.token_ids.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t count =
      std::min(order.size(), size_t{speculation::kMaxDistribution});
  std::partial_sort(order.begin(),
                    order.begin() + static_cast<ptrdiff_t>(count), order.end(),
                    [&weights](size_t a, size_t b) {
                      if (weights.weights[a] != weights.weights[b]) {
                        return weights.weights[a] > weights.weights[b];
                      }
                      return a < b;  // ids ascend
                    });
  speculation::DraftDistribution distribution;
  for (size_t i = 0; i < count; ++i) {
    distribution.token_ids.push_back(weights.token_ids[order[i]]);
    distribution.weights.push_back(weights.weights[order[i]]);
  }
  return distribution;
}

int32_t RatioDraw::Draw(model::Sampler& sampler, absl::Span<const float> logits,
                        int position, const model::TokenHistory& history,
                        speculation::DraftDistribution* distribution) {
  sampler.FillWeights(logits, position, history, &weights_);
  *distribution = LikeliestTokens(weights_);
  return speculation::DrawToken(speculation::Weighted(*distribution), seed_,
                                position, NoisePurpose::kDraft);
}

}  // namespace nacre::draft_worker
