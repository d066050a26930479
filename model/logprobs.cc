#include "model/logprobs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "model/logit_row.h"
#include "model/probability_mass.h"

namespace nacre::model {
namespace {

// The best ids of those added in ascending order, best first.
class TopIds {
 public:
  TopIds(size_t size, std::vector<std::pair<int32_t, float>>* top)
      : size_(size), top_(*top) {
    top_.reserve(size);
  }

  bool is_full() const { return top_.size() == size_; }

  void Add(int32_t id, float logit) {
    if (is_full()) {
      if (size_ == 0 || !(logit > top_.back().second)) return;
      top_.pop_back();
    }
    const auto worse =
        std::find_if(top_.begin(), top_.end(),
                     [&](const auto& other) { return other.second < logit; });
    top_.insert(worse, {id, logit});
  }

 private:
  const size_t size_;
  std::vector<std::pair<int32_t, float>>& top_;
};

float OrMinusInfinity(float logit) {
  return std::isnan(logit) ? -kInfinity : logit;
}

// A logit that at least n tokens reach, and few more: the n-th largest of the
// groups' maxima. kLowest where there are not so many.
float LowestOfTop(const LogitRow& row, size_t n, SamplingScratch* scratch) {
  const int groups = NumGroups(row.count);
  if (static_cast<size_t>(groups) < n) return kLowest;
  float* const maxima = scratch->values.data();
  std::copy(row.maxima, row.maxima + groups, maxima);
  std::nth_element(maxima, maxima + (n - 1), maxima + groups,
                   std::greater<float>());
  return std::max(maxima[n - 1], kLowest);
}

// No logit is +inf.
void AddLikeliest(const LogitRow& row, size_t n, SamplingScratch* scratch,
                  TopIds* top) {
  const float lowest = LowestOfTop(row, n, scratch);
  const float* const values = scratch->values.data();
  const int32_t* const ids = scratch->masses.data();
  const bool is_known = lowest > kLowest;
  const int size = CollectScaled(
      row, is_known ? std::nextafter(lowest, kInfinity) : lowest, kInfinity, 0,
      scratch->values.data(), scratch->masses.data());
  for (int i = 0; i < size; ++i) top->Add(ids[i], values[i]);
  // What equals it can be any number of tokens.
  for (int i = 1; is_known && !top->is_full(); ++i) {
    top->Add(FindScaled(row, AllGroups(row), lowest, i), lowest);
  }
  for (int id = 0; !top->is_full(); ++id) {
    if (OrMinusInfinity(row.logits[id]) == -kInfinity) {
      top->Add(id, -kInfinity);
    }
  }
}

}  // namespace

TokenLogprobs ComputeLogprobs(absl::Span<const float> logits, int32_t token_id,
                              int num_top, SamplingScratch* scratch) {
  const int count = static_cast<int>(logits.size());
  scratch->Reserve(count);
  const LogitRow row = {logits.data(), scratch->maxima.data(), count};
  const double sum =
      FindMaximaAndEstimateSum(row.logits, count, 1.0f, scratch->maxima.data());
  const float best = Largest(row.maxima, NumGroups(count));
  const double total = best + std::log(sum);
  const auto logprob = [&](float logit) {
    return std::isfinite(best)
               ? static_cast<float>(OrMinusInfinity(logit) - total)
               : -kInfinity;
  };
  TokenLogprobs result;
  result.token_id = token_id;
  result.logprob = logprob(logits[static_cast<size_t>(token_id)]);
  const size_t size = std::min(static_cast<size_t>(num_top), logits.size());
  TopIds top(size, &result.top);
  if (size > 0 && best < kInfinity) {
    AddLikeliest(row, size, scratch, &top);
  } else {
    for (int id = 0; size > 0 && id < count; ++id) {
      top.Add(id, OrMinusInfinity(logits[static_cast<size_t>(id)]));
    }
  }
  for (auto& [id, value] : result.top) value = logprob(value);
  return result;
}

}  // namespace nacre::model
