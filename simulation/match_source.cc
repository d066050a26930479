#include "simulation/match_source.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/check.h"

namespace nacre::simulation {
namespace {

using speculation::kBeyond;
using speculation::kRanks;

// Of candidates with these probabilities. They fall, also where alpha is so low
// that a second candidate would be likelier than the first.
std::vector<float> ScoresOf(double alpha,
                            const speculation::MismatchShares& shares) {
  constexpr double kLeast = 1e-6;
  std::vector<float> scores = {0};
  double last = std::max(alpha, kLeast);
  for (int rank = 2; rank <= kRanks; ++rank) {
    const double share = shares[static_cast<size_t>(rank - 2)];
    const double probability =
        std::min(last, std::max((1.0 - alpha) * share, kLeast));
    scores.push_back(
        scores.back() +
        static_cast<float>(speculation::ScoreCalibration::kPriorTau *
                           std::log(probability / last)));
    last = probability;
  }
  return scores;
}

class Independent : public MatchSource {
 public:
  Independent(double alpha, uint64_t seed,
              const speculation::MismatchShares& shares)
      : alpha_(alpha),
        shares_(shares),
        random_(seed),
        ranks_random_(MixBits(seed) ^ 0x72616e6b73) {
    const std::vector<float> scores = ScoresOf(alpha, shares);
    for (int rank = 1; rank <= kBeyond; ++rank) {
      guesses_.emplace_back(rank, scores);
    }
  }

  const Guess& GuessAt(int64_t index) override {
    while (mismatches_.empty() || mismatches_.back() < index) AddStrata();
    const auto it =
        std::lower_bound(mismatches_.begin(), mismatches_.end(), index);
    const int rank = *it == index
                         ? ranks_[static_cast<size_t>(it - mismatches_.begin())]
                         : 1;
    return guesses_[static_cast<size_t>(rank - 1)];
  }

  const Guess& GuessElsewhere(uint64_t) override { return guesses_[0]; }

 private:
  static constexpr int kStrata = 1000;

  // The length of a run of matches at quantile `unit` in (0, 1].
  int64_t RunLength(double unit) const {
    if (alpha_ <= 0.0) return 0;
    if (alpha_ >= 1.0) return kForever;
    return static_cast<int64_t>(std::min(std::log(unit) / std::log(alpha_),
                                         static_cast<double>(kForever)));
  }

  // The rank of a mismatch at quantile `unit` in (0, 1].
  int8_t RankAt(double unit) const {
    int rank = 2;
    for (double left = unit; rank < kBeyond; ++rank) {
      left -= shares_[static_cast<size_t>(rank - 2)];
      if (left <= 0.0) break;
    }
    return static_cast<int8_t>(rank);
  }

  static std::vector<int> Shuffled(Random* random) {
    std::vector<int> order(kStrata);
    for (int i = 0; i < kStrata; ++i) {
      const int other = static_cast<int>(random->Between(0, i));
      order[i] = order[other];
      order[other] = i;
    }
    return order;
  }

  void AddStrata() {
    int64_t last = mismatches_.empty() ? -1 : mismatches_.back();
    for (const int stratum : Shuffled(&random_)) {
      const double unit = (stratum + 1.0 - random_.Unit()) / kStrata;
      last += RunLength(unit) + 1;
      mismatches_.push_back(last);
    }
    for (const int stratum : Shuffled(&ranks_random_)) {
      ranks_.push_back(RankAt((stratum + 0.5) / kStrata));
    }
  }

  // Sums of a thousand and more stay far from overflow.
  static constexpr int64_t kForever = int64_t{1} << 40;

  const double alpha_;
  const speculation::MismatchShares shares_;
  Random random_;
  Random ranks_random_;
  std::vector<Guess> guesses_;       // by rank
  std::vector<int64_t> mismatches_;  // rising
  std::vector<int8_t> ranks_;        // theirs
};

class Recorded : public MatchSource {
 public:
  Recorded(std::shared_ptr<const MatchTrace> trace, size_t first)
      : trace_(std::move(trace)), first_(first) {
    NACRE_CHECK(!trace_->empty(), "a match trace has at least one entry");
  }

  const Guess& GuessAt(int64_t index) override {
    return (*trace_)[(first_ + static_cast<size_t>(index)) % trace_->size()];
  }

  const Guess& GuessElsewhere(uint64_t bits) override {
    return (*trace_)[static_cast<size_t>(bits % trace_->size())];
  }

 private:
  const std::shared_ptr<const MatchTrace> trace_;
  const size_t first_;
};

}  // namespace

void FillScores(MatchTrace* trace) {
  double matched = 0.0;
  speculation::MismatchShares shares = {};
  for (const Guess& guess : *trace) {
    guess.matches() ? matched += 1.0
                    : shares[static_cast<size_t>(guess.rank - 2)] += 1.0;
  }
  const double mismatched = static_cast<double>(trace->size()) - matched;
  for (double& share : shares) share /= std::max(1.0, mismatched);
  const std::vector<float> scores =
      ScoresOf(matched / static_cast<double>(trace->size()), shares);
  for (Guess& guess : *trace) guess.scores = scores;
}

std::unique_ptr<MatchSource> IndependentMatches(
    double alpha, uint64_t seed, const speculation::MismatchShares& shares) {
  return std::make_unique<Independent>(alpha, seed, shares);
}

std::unique_ptr<MatchSource> RecordedMatches(
    std::shared_ptr<const MatchTrace> trace, size_t first) {
  return std::make_unique<Recorded>(std::move(trace), first);
}

}  // namespace nacre::simulation
