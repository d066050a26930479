#include "model/distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"

namespace nacre::model {

Distribution::Distribution(absl::Span<const float> logits)
    : logits_(logits),
      sums_(kernels::ComputeSoftmaxSums(logits.data(), logits.size())),
      is_uniform_(!std::isfinite(sums_.best)) {
  NACRE_CHECK(!logits.empty(), "a distribution over nothing");
}

double Distribution::entropy() const {
  if (is_uniform_) return std::log(static_cast<double>(logits_.size()));
  // -sum p log p with log p = x - best - log(total). Rounding may go below 0.
  return std::max(0.0, std::log(sums_.total) - sums_.weighted / sums_.total);
}

double Distribution::Probability(int32_t token_id) const {
  if (is_uniform_) return 1.0 / static_cast<double>(logits_.size());
  const double logit = logits_[static_cast<size_t>(token_id)];
  return std::isnan(logit) ? 0.0 : std::exp(logit - sums_.best) / sums_.total;
}

void Distribution::FillTop(absl::Span<float> top) const {
  const size_t count = std::min(top.size(), logits_.size());
  std::fill(top.begin(), top.end(), 0.0f);
  if (is_uniform_) {
    std::fill_n(top.begin(), count,
                static_cast<float>(1.0 / static_cast<double>(logits_.size())));
    return;
  }
  if (count == 0) return;
  // The largest logits so far, descending.
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::fill(top.begin(), top.end(), kNone);
  for (const float logit : logits_) {
    if (!(logit > top.back())) continue;
    const auto place = std::upper_bound(top.begin(), top.end(), logit,
                                        [](float a, float b) { return a > b; });
    std::copy_backward(place, top.end() - 1, top.end());
    *place = logit;
  }
  for (float& value : top) {
    value = value == kNone
                ? 0.0f
                : static_cast<float>(
                      std::exp(static_cast<double>(value) - sums_.best) /
                      sums_.total);
  }
}

}  // namespace nacre::model
