// Length policies in a simulated fleet: what they cost and yield with each
// method, against the closed laws and against no policy.

#include <string>

#include "gtest/gtest.h"
#include "simulation/fleet.h"
#include "speculation/law.h"

namespace nacre::simulation {
namespace {

using speculation::Method;

struct Outcome {
  double speedup = 0.0;     // over one target step a token
  double draft_busy = 0.0;  // share of the time
  double drafted = 0.0;     // tokens sent, a committed token
};

// Constant step times, no latency, draft tokens of 1 ms.
Outcome Measure(const FleetMethod& method, double alpha, double cost_ratio,
                const std::string& policy) {
  FleetOptions options;
  options.method = method;
  options.policy = *speculation::ParsePolicySpec(policy);
  options.alpha = alpha;
  options.output_tokens = 4'000;
  options.draft_step = StepTimes::Flat(1e6);
  options.target_step = StepTimes::Flat(cost_ratio * 1e6);
  const FleetResult result = SimulateFleet(options);
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.failed_requests, 0) << result.first_failure;
  EXPECT_EQ(result.output_tokens, options.output_tokens);
  const double tokens = static_cast<double>(result.stats.committed);
  return {.speedup = result.tokens_per_second() * cost_ratio * 1e-3,
          .draft_busy = static_cast<double>(result.draft.busy_ns) /
                        static_cast<double>(result.virtual_ns),
          .drafted = static_cast<double>(result.stats.drafted) / tokens};
}

TEST(PolicyTime, AConstantLengthIsAWindowOfSd) {
  for (const int n : {1, 4, 9}) {
    const Outcome outcome =
        Measure({Method::kSd}, 0.8, 5.0, "constant:n=" + std::to_string(n));
    EXPECT_NEAR(outcome.speedup / speculation::SdSpeedup(0.8, 5.0, n), 1.0,
                0.01)
        << n;
  }
}

// A round drafts L tokens that match and one that it does not send, and yields
// L + 1, which is 1 / (1 - alpha) on average.
TEST(PolicyTime, TheOracleTakesTheTimeOfItsLawInSd) {
  for (const double alpha : {0.5, 0.8, 0.9}) {
    const double tokens = 1.0 / (1.0 - alpha);
    const double law = tokens * 5.0 / (tokens + 5.0);
    const Outcome outcome = Measure({Method::kSd}, alpha, 5.0, "oracle");
    EXPECT_NEAR(outcome.speedup / law, 1.0, 0.01) << alpha;
    for (const char* other :
         {"constant:n=2", "constant:n=4", "constant:n=8", "heuristic",
          "beta-ts", "beta-ts:update=bernoulli", "cali-ts"}) {
      EXPECT_GT(outcome.speedup,
                Measure({Method::kSd}, alpha, 5.0, other).speedup)
          << other << " alpha " << alpha;
    }
  }
}

TEST(PolicyTime, TheOracleWastesNothing) {
  for (const Method method : {Method::kSd, Method::kPearl, Method::kAsync}) {
    const Outcome outcome = Measure({method}, 0.7, 5.0, "oracle");
    EXPECT_LE(outcome.drafted, 0.71) << speculation::MethodName(method);
    EXPECT_GT(outcome.drafted, 0.5) << speculation::MethodName(method);
  }
}

// Under overlap a policy that ends every chunk at once never makes the draft
// wait: it is as busy as without.
TEST(PolicyTime, UnderOverlapNoPolicyIdlesTheDraft) {
  for (const Method method : {Method::kPearl, Method::kAsync}) {
    for (const double alpha : {0.5, 0.9}) {
      const Outcome without = Measure({method}, alpha, 5.0, "");
      const Outcome with = Measure({method}, alpha, 5.0, "constant:n=1");
      EXPECT_GT(with.draft_busy, 0.97 * without.draft_busy)
          << speculation::MethodName(method) << " alpha " << alpha;
      EXPECT_GT(with.speedup, 0.97 * without.speedup)
          << speculation::MethodName(method) << " alpha " << alpha;
    }
  }
}

// Where the target would wait for a full chunk, the end of a shorter one lets
// it begin.
TEST(PolicyTime, AChunksEndSavesTheTargetItsWait) {
  const Outcome without = Measure({Method::kPearl, 12}, 0.7, 4.0, "");
  const Outcome with = Measure({Method::kPearl, 12}, 0.7, 4.0, "constant:n=4");
  EXPECT_GT(with.speedup, 1.05 * without.speedup);
}

}  // namespace
}  // namespace nacre::simulation
