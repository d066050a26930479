// The pipeline in virtual time: how long the methods take, against the closed
// laws and against each other; and that the simulator's checks find bugs.

#include <algorithm>
#include <string>

#include "gtest/gtest.h"
#include "speculation/law.h"
#include "tests/speculation/pipeline_simulator.h"

namespace nacre::speculation {
namespace {

using Mutation = SimulatorOptions::Mutation;

// Constant step times, no latency, draft tokens of 1 ms.
SimulatorOptions Ideal(Method method, double alpha, double cost_ratio) {
  SimulatorOptions options;
  options.method = method;
  options.alpha = alpha;
  options.prior_alpha = alpha;
  options.max_tokens = 1200;
  options.has_eos = false;
  options.vocabulary = 1000;
  options.draft_step_ns = 1e6;
  options.target_step_ns = cost_ratio * 1e6;
  return options;
}

struct Outcome {
  double speedup = 0.0;  // over one target step a token
  double alpha = 0.0;    // accepted / verified
};

Outcome Measure(SimulatorOptions options, int runs) {
  double tokens = 0.0;
  double steps = 0.0;
  double verified = 0.0;
  double accepted = 0.0;
  for (int run = 0; run < runs; ++run) {
    options.seed = 100 + run;
    const SimulatorResult result = Simulate(options);
    EXPECT_EQ(result.failure, "") << Describe(options);
    tokens += static_cast<double>(result.stats.committed);
    steps += static_cast<double>(result.virtual_ns) / options.target_step_ns;
    verified += static_cast<double>(result.stats.verified);
    accepted += static_cast<double>(result.stats.accepted);
  }
  return {tokens / steps, accepted / verified};
}

class Laws : public testing::TestWithParam<double> {};

TEST_P(Laws, PearlTakesTheTimeOfItsLaw) {
  for (const int c : {2, 3, 5, 10}) {
    SimulatorOptions options = Ideal(Method::kPearl, GetParam(), c);
    options.window = c;
    const Outcome outcome = Measure(options, 10);
    EXPECT_NEAR(outcome.speedup / PearlSpeedup(GetParam(), c, c), 1.0, 0.03)
        << "c " << c;
    EXPECT_NEAR(outcome.alpha, GetParam(), 0.02);
  }
}

TEST_P(Laws, SdTakesTheTimeOfItsLaw) {
  for (const double c : {2.0, 5.5, 10.0}) {
    for (const int window : {1, 4, 9}) {
      SimulatorOptions options = Ideal(Method::kSd, GetParam(), c);
      options.window = window;
      const Outcome outcome = Measure(options, 10);
      EXPECT_NEAR(outcome.speedup / SdSpeedup(GetParam(), c, window), 1.0, 0.03)
          << "c " << c << " window " << window;
      EXPECT_NEAR(outcome.alpha, GetParam(), 0.02);
    }
  }
}

TEST_P(Laws, AsyncTakesTheTimeOfItsLaw) {
  for (const int c : {2, 5, 10, 20}) {
    const Outcome outcome = Measure(Ideal(Method::kAsync, GetParam(), c), 10);
    const double law = AsyncSpeedup(GetParam(), c, BestGate(GetParam(), c, 32));
    EXPECT_NEAR(outcome.speedup / law, 1.0, 0.03) << "c " << c;
    EXPECT_NEAR(outcome.alpha, GetParam(), 0.02);
  }
}

TEST_P(Laws, AsyncHoldsUpAgainstSdAndPearlAtTheirBestWindow) {
  for (const double c : {1.0, 1.5, 2.5, 4.0, 5.5, 7.3, 10.0, 16.0}) {
    double best = 0.0;
    const auto consider = [&](Method method, int window) {
      SimulatorOptions options = Ideal(method, GetParam(), c);
      options.window = window;
      best = std::max(best, Measure(options, 2).speedup);
    };
    for (const int window : {1, 2, 3, 5, 8, 12}) {
      consider(Method::kSd, window);
    }
    for (int window = PearlWindow(c - 1, 16); window <= c + 1; ++window) {
      consider(Method::kPearl, window);
    }
    const Outcome async = Measure(Ideal(Method::kAsync, GetParam(), c), 2);
    EXPECT_GE(async.speedup, 0.97 * best) << "c " << c;
  }
}

INSTANTIATE_TEST_SUITE_P(Alpha, Laws, testing::Values(0.3, 0.5, 0.7, 0.9));

int64_t VirtualNs(const SimulatorOptions& options) {
  const SimulatorResult result = Simulate(options);
  EXPECT_EQ(result.failure, "");
  return result.virtual_ns;
}

// 1 % of latency on each link.
SimulatorOptions Realistic(Method method, double alpha) {
  SimulatorOptions options = Ideal(method, alpha, 5.0);
  options.max_tokens = 200;
  options.prior_alpha = 0.7;
  options.target_row_ns = 0.02 * options.target_step_ns;
  for (LinkDelay* delay :
       {&options.draft_to_coordinator, &options.coordinator_to_target,
        &options.target_to_coordinator, &options.coordinator_to_draft}) {
    *delay = {50'000, 50'000};
  }
  return options;
}

TEST(WorthlessDraft, AHungOneCostsAsyncAtMostFivePercent) {
  const int64_t ar_ns = VirtualNs(Realistic(Method::kAr, 0.8));
  for (const int64_t hangs_at_ns : {0, 3'000'000, 40'000'000}) {
    SimulatorOptions options = Realistic(Method::kAsync, 0.8);
    options.draft_hangs_at_ns = hangs_at_ns;
    EXPECT_LE(VirtualNs(options), ar_ns * 1.05) << hangs_at_ns;
  }
}

TEST(WorthlessDraft, AUselessOneCostsAsyncAtMostFivePercent) {
  const int64_t ar_ns = VirtualNs(Realistic(Method::kAr, 0.0));
  EXPECT_LE(VirtualNs(Realistic(Method::kAsync, 0.0)), ar_ns * 1.05);
  SimulatorOptions costly = Realistic(Method::kAsync, 0.0);
  SimulatorOptions costly_ar = Realistic(Method::kAr, 0.0);
  for (SimulatorOptions* options : {&costly, &costly_ar}) {
    options->target_row_ns = 0.5 * options->target_step_ns;
  }
  EXPECT_LE(VirtualNs(costly), VirtualNs(costly_ar) * 1.05);
}

TEST(WorthlessDraft, ASlowOneCostsAsyncAtMostFivePercent) {
  SimulatorOptions options = Realistic(Method::kAsync, 0.8);
  options.draft_step_ns = 20e6;  // slower than the target
  EXPECT_LE(VirtualNs(options), VirtualNs(Realistic(Method::kAr, 0.8)) * 1.05);
}

TEST(WorthlessDraft, ADraftThatDiesCostsAsyncAtMostFivePercent) {
  SimulatorOptions options = Realistic(Method::kAsync, 0.8);
  options.draft_death = 1.0;  // each dies with its first message
  options.reattach = {5'000'000, 50'000'000};
  EXPECT_LE(VirtualNs(options), VirtualNs(Realistic(Method::kAr, 0.8)) * 1.05);
}

TEST(Simulator, OneSeedDecidesEverything) {
  for (uint64_t seed = 1; seed < 50; ++seed) {
    const SimulatorResult first = Simulate(RandomOptions(seed));
    const SimulatorResult second = Simulate(RandomOptions(seed));
    EXPECT_EQ(first.virtual_ns, second.virtual_ns);
    EXPECT_EQ(first.events, second.events);
    EXPECT_EQ(first.stats.verified, second.stats.verified);
  }
}

TEST(Simulator, SessionsShareSteps) {
  SimulatorOptions options = Ideal(Method::kAsync, 0.8, 5.0);
  options.max_tokens = 200;
  const SimulatorResult alone = Simulate(options);
  options.num_sessions = 4;
  const SimulatorResult shared = Simulate(options);
  EXPECT_EQ(shared.failure, "");
  EXPECT_LT(shared.virtual_ns, 2 * alone.virtual_ns);
  EXPECT_EQ(shared.stats.committed, 4 * alone.stats.committed);
}

// Whether some of the first schedules notices the bug.
std::string FirstFailure(Mutation mutation) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SimulatorOptions options = RandomOptions(seed);
    options.mutation = mutation;
    if (mutation == Mutation::kDropStopNotices) {
      options.gate_timeout_ns = int64_t{1} << 50;  // or the timer helps
    }
    const std::string failure = Simulate(options).failure;
    if (!failure.empty()) return failure;
  }
  return "";
}

TEST(Simulator, NoticesWhenStaleTailsAreApplied) {
  EXPECT_NE(FirstFailure(Mutation::kRewriteBase), "");
}

TEST(Simulator, NoticesSwappedTokens) {
  EXPECT_NE(
      FirstFailure(Mutation::kSwapVerdictTokens).find("autoregressive stream"),
      std::string::npos);
}

TEST(Simulator, NoticesStopMarksThatNeverCome) {
  EXPECT_NE(FirstFailure(Mutation::kDropStopNotices).find("no end in sight"),
            std::string::npos);
}

TEST(Simulator, NoticesALostCommit) {
  EXPECT_NE(FirstFailure(Mutation::kLoseCommit).find("gap"), std::string::npos);
}

TEST(Simulator, NoticesKvThatIsNotRolledBack) {
  EXPECT_NE(FirstFailure(Mutation::kKeepTargetKv).find("KV"),
            std::string::npos);
}

}  // namespace
}  // namespace nacre::speculation
