// A simulated fleet takes the time that the closed laws say, within 1 %, where
// what they assume is so; and no law is quoted where it is not.

#include <algorithm>
#include <string>

#include "gtest/gtest.h"
#include "simulation/closed_law.h"
#include "simulation/fleet.h"
#include "speculation/law.h"

namespace nacre::simulation {
namespace {

using speculation::Ablation;
using speculation::Method;

FleetOptions Ideal(Method method, double alpha, double cost_ratio) {
  FleetOptions options;
  options.method.method = method;
  options.alpha = alpha;
  // About a thousand mismatches: a whole round of the stratified sampling.
  options.output_tokens = std::max(4000, static_cast<int>(1000 / (1 - alpha)));
  options.draft_step = StepTimes::Flat(1e6);
  options.target_step = StepTimes::Flat(cost_ratio * 1e6);
  return options;
}

double Speedup(const FleetOptions& options) {
  const FleetResult result = SimulateFleet(options);
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.output_tokens, options.output_tokens);
  // Of trees, other branches are accepted, too.
  if (options.method.method != Method::kAr && options.draft_rows == 1) {
    EXPECT_NEAR(result.acceptance_rate(), options.alpha, 0.02);
  }
  return result.tokens_per_second() * options.target_step.At(1) * 1e-9;
}

// Simulated over predicted.
double OverLaw(const FleetOptions& options) {
  const absl::optional<double> law = ClosedLaw(options);
  if (!law.has_value()) {
    ADD_FAILURE() << "no law";
    return 0.0;
  }
  return Speedup(options) / *law;
}

class FleetLaw : public testing::TestWithParam<double> {
 protected:
  static constexpr double kCostRatios[] = {1, 2, 3, 5, 10, 20};
};

TEST_P(FleetLaw, ArTakesAStepAToken) {
  EXPECT_NEAR(OverLaw(Ideal(Method::kAr, GetParam(), 5)), 1.0, 1e-9);
}

TEST_P(FleetLaw, SdAtAnyWindow) {
  for (const double c : {1.5, 4.0, 7.3, 20.0}) {
    for (const int window : {1, 4, 9}) {
      FleetOptions options = Ideal(Method::kSd, GetParam(), c);
      options.method.window = window;
      EXPECT_NEAR(OverLaw(options), 1.0, 0.01) << "c " << c << " g " << window;
    }
  }
}

TEST_P(FleetLaw, PearlUpToItsOptimum) {
  for (const double c : {1.0, 2.5, 5.0, 9.7}) {
    for (const int window : {1, 2, static_cast<int>(c)}) {
      if (window > c) continue;
      FleetOptions options = Ideal(Method::kPearl, GetParam(), c);
      options.method.window = window;
      EXPECT_NEAR(OverLaw(options), 1.0, 0.01) << "c " << c << " g " << window;
    }
  }
}

TEST_P(FleetLaw, EachMethodAtTheBestWindowKnown) {
  for (const Method method : {Method::kSd, Method::kPearl, Method::kAsync}) {
    for (const double c : kCostRatios) {
      FleetOptions options = Ideal(method, GetParam(), c);
      options.fixed_plan = LawPlan(options);
      EXPECT_NEAR(OverLaw(options), 1.0, 0.01)
          << speculation::MethodName(method) << " c " << c;
    }
  }
}

// What it costs to estimate alpha from the last 64 comparisons, and to prefer
// smaller windows where the law is flat.
TEST_P(FleetLaw, EstimatingCostsLessThanTwoPercent) {
  for (const Method method : {Method::kSd, Method::kPearl, Method::kAsync}) {
    for (const double c : kCostRatios) {
      const FleetOptions options = Ideal(method, GetParam(), c);
      EXPECT_NEAR(OverLaw(options), 0.995, 0.015)
          << speculation::MethodName(method) << " c " << c;
    }
  }
}

// Also where c is no whole number, which no law knows.
class FleetWindows : public testing::TestWithParam<double> {};

TEST_P(FleetWindows, AsyncHoldsUpAgainstSdAndPearlAtTheirBest) {
  for (const double c : {1.0, 1.5, 2.5, 4.0, 5.5, 7.3, 10.0, 16.0}) {
    const auto speedup = [c](const FleetMethod& method) {
      FleetOptions options = Ideal(method.method, GetParam(), c);
      options.method = method;
      options.output_tokens = 1200;
      return Speedup(options);
    };
    double best = 0.0;
    for (const int window : {1, 2, 3, 5, 8, 12}) {
      best = std::max(best, speedup({Method::kSd, window}));
    }
    for (int window = speculation::PearlWindow(c - 1, 16); window <= c + 1;
         ++window) {
      best = std::max(best, speedup({Method::kPearl, window}));
    }
    EXPECT_GE(speedup({Method::kAsync}), 0.97 * best) << "c " << c;
  }
}

INSTANTIATE_TEST_SUITE_P(Alpha, FleetWindows,
                         testing::Values(0.3, 0.5, 0.7, 0.9));

INSTANTIATE_TEST_SUITE_P(Alpha, FleetLaw,
                         testing::Values(0.3, 0.5, 0.7, 0.8, 0.9, 0.95));

// Without a candidate that was right instead, trees give what chains do.
TEST_P(FleetLaw, TreesWithoutARightBranchAreChains) {
  for (const double c : {5, 10}) {
    FleetOptions options = Ideal(Method::kAsync, GetParam(), c);
    const double law = *ClosedLaw(options);
    options.rank_shares = {0, 0, 0, 0, 0, 0, 0, 1};
    options.draft_rows = 8;
    EXPECT_NEAR(Speedup(options) / law, 0.995, 0.025) << c;
  }
}

TEST(ClosedLaw, IsTheOneOfTheMethod) {
  FleetOptions options = Ideal(Method::kSd, 0.8, 5);
  options.method.window = 3;
  EXPECT_DOUBLE_EQ(*ClosedLaw(options), speculation::SdSpeedup(0.8, 5, 3));
  options.method.method = Method::kPearl;
  EXPECT_DOUBLE_EQ(*ClosedLaw(options), speculation::PearlSpeedup(0.8, 5, 3));
  options.method = {Method::kPearl};
  EXPECT_DOUBLE_EQ(*ClosedLaw(options), speculation::PearlSpeedup(0.8, 5, 5));
  options.method = {Method::kAsync};
  EXPECT_DOUBLE_EQ(*ClosedLaw(options), speculation::AsyncSpeedup(0.8, 5, 1));
}

TEST(ClosedLaw, IsNotQuotedWhereItsAssumptionsFail) {
  const auto has_law = [](auto change) {
    FleetOptions options = Ideal(Method::kAsync, 0.8, 5);
    change(options);
    return ClosedLaw(options).has_value();
  };
  using O = FleetOptions&;
  EXPECT_TRUE(has_law([](O) {}));
  EXPECT_FALSE(has_law([](O o) { o.alpha = 1.0; }));
  EXPECT_FALSE(has_law([](O o) { o.alpha = 0.0; }));
  EXPECT_FALSE(has_law([](O o) { o.streams = 2; }));
  EXPECT_FALSE(has_law([](O o) { o.drafts = 0; }));
  EXPECT_FALSE(has_law([](O o) { o.output_tokens = 999; }));
  EXPECT_FALSE(has_law([](O o) { o.prompt_tokens = 2; }));
  EXPECT_FALSE(has_law([](O o) { o.target_hop = {1, 1}; }));
  EXPECT_FALSE(has_law([](O o) { o.draft_hop = {0, 1}; }));
  EXPECT_FALSE(has_law([](O o) { o.failures.emplace_back(); }));
  EXPECT_FALSE(has_law([](O o) {
    o.target_step = StepTimes({{1, 5e6}, {8, 6e6}});
  }));
  EXPECT_FALSE(has_law([](O o) {
    o.draft_step = StepTimes({{1, 1e6}, {8, 2e6}});
  }));
  EXPECT_FALSE(has_law([](O o) {
    o.recorded = {std::make_shared<MatchTrace>(MatchTrace{true})};
  }));
  EXPECT_FALSE(has_law([](O o) {
    o.replay = {{1, 1000, std::make_shared<MatchTrace>(MatchTrace{true})}};
  }));
  // Of async: a fraction of a token, a window.
  EXPECT_FALSE(has_law([](O o) { o.target_step = StepTimes::Flat(5.5e6); }));
  EXPECT_FALSE(has_law([](O o) { o.target_step = StepTimes::Flat(33e6); }));
  EXPECT_FALSE(has_law([](O o) { o.target_step = StepTimes::Flat(0.5e6); }));
  EXPECT_FALSE(has_law([](O o) { o.method.window = 8; }));
  EXPECT_FALSE(has_law([](O o) { o.draft_rows = 2; }));
  // Of pearl: windows beyond c; of sd: beyond the acknowledgement.
  EXPECT_TRUE(has_law([](O o) { o.method = {Method::kPearl, 5}; }));
  EXPECT_FALSE(has_law([](O o) { o.method = {Method::kPearl, 6}; }));
  EXPECT_FALSE(has_law([](O o) {
    o.method = {Method::kPearl, 5, Ablation::kNoPreVerify};
  }));
  EXPECT_TRUE(has_law([](O o) { o.method = {Method::kSd, 48}; }));
  EXPECT_FALSE(has_law([](O o) { o.method = {Method::kSd, 49}; }));
}

// It would be wrong there, or the rule would be too strict.
TEST(ClosedLaw, WouldBeWrongBeyondItsAssumptions) {
  FleetOptions wide = Ideal(Method::kPearl, 0.8, 5);
  wide.method.window = 7;
  EXPECT_GT(Speedup(wide) / speculation::PearlSpeedup(0.8, 5, 7), 1.05);
  const FleetOptions fraction = Ideal(Method::kAsync, 0.8, 5.5);
  EXPECT_LT(Speedup(fraction) / speculation::AsyncSpeedup(0.8, 5.5, 1), 0.98);
}

}  // namespace
}  // namespace nacre::simulation
