#include "simulation/match_source.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/check.h"

namespace nacre::simulation {
namespace {

class Independent : public MatchSource {
 public:
  Independent(double alpha, uint64_t seed) : alpha_(alpha), random_(seed) {}

  bool At(int64_t index) override {
    while (mismatches_.empty() || mismatches_.back() < index) AddStrata();
    return !std::binary_search(mismatches_.begin(), mismatches_.end(), index);
  }

 private:
  static constexpr int kStrata = 1000;

  // The length of a run of matches at quantile `unit` in (0, 1].
  int64_t RunLength(double unit) const {
    if (alpha_ <= 0.0) return 0;
    if (alpha_ >= 1.0) return kForever;
    return static_cast<int64_t>(std::min(std::log(unit) / std::log(alpha_),
                                         static_cast<double>(kForever)));
  }

  void AddStrata() {
    std::vector<int> order(kStrata);
    for (int i = 0; i < kStrata; ++i) {
      const int other = static_cast<int>(random_.Between(0, i));
      order[i] = order[other];
      order[other] = i;
    }
    int64_t last = mismatches_.empty() ? -1 : mismatches_.back();
    for (const int stratum : order) {
      const double unit = (stratum + 1.0 - random_.Unit()) / kStrata;
      last += RunLength(unit) + 1;
      mismatches_.push_back(last);
    }
  }

  // Sums of a thousand and more stay far from overflow.
  static constexpr int64_t kForever = int64_t{1} << 40;

  const double alpha_;
  Random random_;
  std::vector<int64_t> mismatches_;  // rising
};

class Recorded : public MatchSource {
 public:
  Recorded(std::shared_ptr<const MatchTrace> trace, size_t first)
      : trace_(std::move(trace)), first_(first) {
    NACRE_CHECK(!trace_->empty(), "a match trace has at least one entry");
  }

  bool At(int64_t index) override {
    return (*trace_)[(first_ + static_cast<size_t>(index)) % trace_->size()];
  }

 private:
  const std::shared_ptr<const MatchTrace> trace_;
  const size_t first_;
};

}  // namespace

std::unique_ptr<MatchSource> IndependentMatches(double alpha, uint64_t seed) {
  return std::make_unique<Independent>(alpha, seed);
}

std::unique_ptr<MatchSource> RecordedMatches(
    std::shared_ptr<const MatchTrace> trace, size_t first) {
  return std::make_unique<Recorded>(std::move(trace), first);
}

}  // namespace nacre::simulation
