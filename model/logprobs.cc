#include "model/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace nacre::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float OrMinusInfinity(float logit) {
  return std::isnan(logit) ? -kInfinity : logit;
}

// log(sum(exp(logits))); -inf for an empty sum.
double LogSumExp(absl::Span<const float> logits) {
  float best = -kInfinity;
  for (const float logit : logits)
    best = std::max(best, OrMinusInfinity(logit));
  if (!std::isfinite(best)) return best;
  double sum = 0.0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(OrMinusInfinity(logit)) - best);
  }
  return best + std::log(sum);
}

}  // namespace

TokenLogprobs ComputeLogprobs(absl::Span<const float> logits, int32_t token_id,
                              int num_top) {
  const double total = LogSumExp(logits);
  const auto logprob = [&](int32_t id) {
    const float logit = OrMinusInfinity(logits[static_cast<size_t>(id)]);
    return std::isfinite(total) ? static_cast<float>(logit - total)
                                : -kInfinity;
  };
  TokenLogprobs result;
  result.token_id = token_id;
  result.logprob = logprob(token_id);
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end =
      ids.begin() +
      std::min<ptrdiff_t>(num_top, static_cast<ptrdiff_t>(ids.size()));
  std::partial_sort(ids.begin(), end, ids.end(), [&](int32_t a, int32_t b) {
    const float x = OrMinusInfinity(logits[static_cast<size_t>(a)]);
    const float y = OrMinusInfinity(logits[static_cast<size_t>(b)]);
    return x > y || (x == y && a < b);
  });
  for (auto it = ids.begin(); it != end; ++it) {
    result.top.emplace_back(*it, logprob(*it));
  }
  return result;
}

}  // namespace nacre::model
