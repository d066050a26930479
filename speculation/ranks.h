// Which of a draft's candidates the target takes. A draft ranks its candidates
// for a position by perturbed score (model::Candidate: logit / temperature +
// the noise that both sides share). The target's token has a rank among them.
// What ranks were seen tells how likely each candidate is, how many tokens a
// chain gains, and how much a branch to the second, third, ... is worth.
//
// Count ranks only where all tokens before were the target's own, so of each
// verdict up to its first mismatch. Below a wrong token nothing is learned.
//
// Pure; one owner each, no threads.

#ifndef SPECULATION_RANKS_H_
#define SPECULATION_RANKS_H_

#include <array>

#include "absl/types/span.h"

namespace nacre::speculation {

// Ranks 1 to kRanks are told apart; kBeyond stands for all others.
inline constexpr int kRanks = 8;
inline constexpr int kBeyond = kRanks + 1;

// Most ranks that one report of a draft tells; more go into several.
inline constexpr int kMaxRankReport = 65;

// Given a mismatch, the share of ranks 2 to kRanks and of those beyond.
using MismatchShares = std::array<double, kBeyond - 1>;
// Measured: 100 GSM8K prompts of the bundled pair, temperatures 0, 0.8 and 1
// together.
inline constexpr MismatchShares kMismatchShares = {0.43, 0.17, 0.09, 0.06,
                                                   0.05, 0.03, 0.03, 0.14};

// How often the target's token had each rank, with a memory of the last ~64
// positions, so that a text that changes is followed.
class RankHistogram {
 public:
  // The prior counts as 4 positions, `prior_alpha` of them of rank 1. `shares`
  // divides the others among the ranks above 1. Its default was measured on a
  // distilled pair, where a second place is the likeliest mismatch.
  explicit RankHistogram(double prior_alpha = 0.7,
                         const MismatchShares& shares = kMismatchShares);

  void Add(int rank);  // 1 to kBeyond; others count as kBeyond

  // P(rank <= k), k in [0, kRanks], in [0, 1).
  double Within(int k) const;
  // The acceptance of a chain, in (0, 1).
  double alpha() const { return Within(1); }
  // P(rank <= 1 + branches | rank > 1): how often branches to that many other
  // candidates catch a mismatch. In [0, 1).
  double CaughtBy(int branches) const;
  // Given a mismatch, how likely each rank is: the prior of another histogram.
  MismatchShares shares() const;

 private:
  std::array<double, kBeyond> weights_;  // of rank i + 1
  double total_;
};

// Kinds of temperatures that are told apart, from 0.
inline constexpr int kTemperatureKinds = 3;
inline int TemperatureKind(float temperature) {
  return temperature == 0 ? 0 : temperature < 0.9f ? 1 : 2;
}

// The probabilities that scores stand for. Of the `count` best candidates
// P(candidate i is the target's) = within * softmax(score / tau)_i. tau and
// `within` are estimated while running. tau moves by Newton's steps on the log
// likelihood of the ranks seen. Each step is divided by the curvature summed so
// far.
//
// One for each pair and kind of temperature: tau differs (about 0.6 at
// temperature 0, 0.9 at 0.8, 0.7 at 1).
class ScoreCalibration {
 public:
  static constexpr double kPriorTau = 0.8;
  static constexpr double kPriorWithin = 0.95;
  static constexpr double kMinTau = 0.05;
  static constexpr double kMaxTau = 20;

  ScoreCalibration();

  // log2 of each candidate's probability, each <= 0. `scores` fall, the first
  // is finite; at most kRanks.               log2_probabilities [as many]
  void Apply(absl::Span<const float> scores,
             absl::Span<float> log2_probabilities) const;
  // The target's token had this rank among candidates of these scores.
  void Add(absl::Span<const float> scores, int rank);

  double tau() const { return 1 / inverse_tau_; }
  double within() const { return seen_within_ / seen_; }

 private:
  double inverse_tau_;
  double curvature_;  // of the log likelihood so far, > 0
  double seen_;
  double seen_within_;
};

}  // namespace nacre::speculation

#endif  // SPECULATION_RANKS_H_
