#include "draft_worker/likeliest_children.h"

#include <algorithm>
#include <cmath>

#include "model/distribution.h"

namespace nacre::draft_worker {
namespace {

constexpr double kLeastLog2 = -1000;  // finite: sums of them are compared

}  // namespace

void LikeliestChildren::Find(absl::Span<const float> logits) {
  count_ = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > -INFINITY)) continue;
    size_t place = count_;
    while (place > 0 &&
           logits[static_cast<size_t>(token_ids_[place - 1])] < logits[i]) {
      --place;
    }
    if (place == token_ids_.size()) continue;
    count_ = std::min(count_ + 1, token_ids_.size());
    std::copy_backward(token_ids_.begin() + place,
                       token_ids_.begin() + count_ - 1,
                       token_ids_.begin() + count_);
    token_ids_[place] = static_cast<int32_t>(i);
  }
  if (count_ == 0) token_ids_[count_++] = 0;
  const model::Distribution distribution(logits);
  for (size_t i = 0; i < count_; ++i) {
    log2s_[i] = static_cast<float>(std::clamp(
        std::log2(distribution.Probability(token_ids_[i])), kLeastLog2, 0.0));
  }
}

}  // namespace nacre::draft_worker
