#include "speculation/policies/beta_ts.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "simulation/random.h"
#include "tests/speculation/policies/policy_testing.h"

namespace nacre::speculation {
namespace {

// P(length = k) = m^(k-1) (1 - m), m = alpha / (alpha + beta).
TEST(BetaTsPolicy, LengthsAreGeometric) {
  constexpr int kChunks = 200'000;
  TurnTaker turns(MakeBetaTsPolicy({.alpha0 = 7.0, .beta0 = 3.0, .seed = 5}));
  std::vector<int> counts(12);
  for (int i = 0; i < kChunks; ++i) {
    const size_t length = static_cast<size_t>(turns.Draft());
    ++counts[std::min(length, counts.size()) - 1];
  }
  double chi_square = 0.0;
  double tail = 1.0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const bool last = i + 1 == counts.size();
    const double expected = kChunks * (last ? tail : tail * 0.3);
    tail *= 0.7;
    chi_square += std::pow(counts[i] - expected, 2) / expected;
  }
  EXPECT_LT(chi_square, 31.26);  // 11 degrees of freedom, 0.1 %
  // Drawing theta once a chunk instead would give 0.1907 here, not 0.21.
  EXPECT_NEAR(counts[1] / double{kChunks}, 0.21, 0.003);
}

// Acceptance as independent trials, like the published reading would see them.
double MeanLength(BetaUpdate update, double acceptance) {
  constexpr int kRounds = 20'000;
  TurnTaker turns(MakeBetaTsPolicy(
      {.alpha0 = 1.0, .beta0 = 1.0, .update = update, .seed = 3}));
  simulation::Random random(17);
  int64_t total = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int drafted = turns.Draft();
    int accepted = 0;
    while (accepted < drafted && random.Chance(acceptance)) ++accepted;
    turns.Verify(accepted);
    total += drafted;
  }
  return static_cast<double>(total) / kRounds;
}

TEST(BetaTsPolicy, TheReadableUpdatesConverge) {
  EXPECT_NEAR(MeanLength(BetaUpdate::kPaper, 0.5), 1.70, 0.05);
  EXPECT_NEAR(MeanLength(BetaUpdate::kPaper, 0.7), 2.45, 0.08);
  EXPECT_NEAR(MeanLength(BetaUpdate::kPaper, 0.9), 5.74, 0.25);
  EXPECT_NEAR(MeanLength(BetaUpdate::kBernoulli, 0.5), 1.98, 0.08);
  EXPECT_NEAR(MeanLength(BetaUpdate::kBernoulli, 0.7), 3.32, 0.12);
  EXPECT_NEAR(MeanLength(BetaUpdate::kBernoulli, 0.9), 9.80, 0.6);
}

// Algorithm 2 to the letter: |Qv| are the accepted draft tokens alone. Each
// chunk that was accepted whole then adds a failure, and the posterior ends at
// "never draft": why that reading is not offered.
TEST(BetaTsPolicy, TheLiteralUpdateCollapses) {
  double alpha = 1.0;
  double beta = 1.0;
  simulation::Random random(17);
  for (int round = 0; round < 20'000; ++round) {
    int drafted = 1;
    while (random.Chance(alpha / (alpha + beta))) ++drafted;
    int accepted = 0;
    while (accepted < drafted && random.Chance(0.9)) ++accepted;
    const int r = std::max(accepted - 1, 0);
    const int n = std::min(accepted + 1, drafted);
    alpha += r;
    beta += n - r;
  }
  EXPECT_LT(alpha / (alpha + beta), 0.15);  // where 0.9 is right
}

// One chunk of seven, whole but for one or two, decides between the updates.
TEST(BetaTsPolicy, CountsOneOrTwoFailures) {
  const auto mean_after = [](BetaUpdate update, int accepted) {
    double continued = 0.0;
    constexpr int kTrials = 20'000;
    for (int seed = 0; seed < kTrials; ++seed) {
      const auto policy = MakeBetaTsPolicy({.alpha0 = 1.0,
                                            .beta0 = 1.0,
                                            .update = update,
                                            .seed = uint64_t(seed)});
      const std::vector<ChunkOutcome> chunks = {{7, accepted}};
      policy->OnVerified({accepted, accepted < 7, accepted == 7, chunks});
      continued += policy->Decide({}) == LengthDecision::kContinue ? 1 : 0;
    }
    return continued / kTrials;
  };
  EXPECT_NEAR(mean_after(BetaUpdate::kPaper, 7), 8.0 / 9.0, 0.01);
  EXPECT_NEAR(mean_after(BetaUpdate::kPaper, 6), 7.0 / 9.0, 0.015);
  EXPECT_NEAR(mean_after(BetaUpdate::kPaper, 3), 4.0 / 7.0, 0.015);
  EXPECT_NEAR(mean_after(BetaUpdate::kBernoulli, 7), 8.0 / 9.0, 0.01);
  EXPECT_NEAR(mean_after(BetaUpdate::kBernoulli, 3), 4.0 / 6.0, 0.015);
}

TEST(BetaTsPolicy, ASeedDecidesEverything) {
  TurnTaker one(MakeBetaTsPolicy({.seed = 9}));
  TurnTaker same(MakeBetaTsPolicy({.seed = 9}));
  TurnTaker other(MakeBetaTsPolicy({.seed = 10}));
  int differences = 0;
  for (int i = 0; i < 100; ++i) {
    const int length = one.Draft();
    EXPECT_EQ(same.Draft(), length);
    differences += other.Draft() != length ? 1 : 0;
  }
  EXPECT_GT(differences, 20);
}

}  // namespace
}  // namespace nacre::speculation
