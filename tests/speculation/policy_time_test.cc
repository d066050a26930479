// Length policies in virtual time: what they cost and yield with each method,
// against the closed laws and against no policy.

#include <algorithm>
#include <string>

#include "gtest/gtest.h"
#include "speculation/law.h"
#include "tests/speculation/pipeline_simulator.h"

namespace nacre::speculation {
namespace {

struct Outcome {
  double speedup = 0.0;     // over one target step a token
  double draft_busy = 0.0;  // share of the time
  double drafted = 0.0;     // tokens sent, a committed token
};

// Constant step times, no latency, draft tokens of 1 ms.
Outcome Measure(Method method, double alpha, double cost_ratio,
                const std::string& policy, int window = 0, int runs = 10) {
  SimulatorOptions options;
  options.method = method;
  options.policy = policy;
  if (window > 0) options.window = window;
  options.alpha = alpha;
  options.prior_alpha = alpha;
  options.max_tokens = 1200;
  options.has_eos = false;
  options.vocabulary = 1000;
  options.draft_step_ns = 1e6;
  options.target_step_ns = cost_ratio * 1e6;
  Outcome sum;
  for (int run = 0; run < runs; ++run) {
    options.seed = 100 + run;
    const SimulatorResult result = Simulate(options);
    EXPECT_EQ(result.failure, "") << Describe(options);
    const double virtual_ns = static_cast<double>(result.virtual_ns) * runs;
    const double tokens = static_cast<double>(result.stats.committed);
    sum.speedup += tokens * options.target_step_ns / virtual_ns;
    sum.draft_busy += static_cast<double>(result.draft_busy_ns) / virtual_ns;
    sum.drafted += static_cast<double>(result.stats.drafted) / tokens / runs;
  }
  return sum;
}

TEST(PolicyTime, AConstantLengthIsAWindowOfSd) {
  for (const int n : {1, 4, 9}) {
    const Outcome outcome =
        Measure(Method::kSd, 0.8, 5.0, "constant:n=" + std::to_string(n));
    EXPECT_NEAR(outcome.speedup / SdSpeedup(0.8, 5.0, n), 1.0, 0.03) << n;
  }
}

// A round drafts L tokens that match and one that it does not send, and yields
// L + 1, which is 1 / (1 - alpha) on average.
TEST(PolicyTime, TheOracleTakesTheTimeOfItsLawInSd) {
  for (const double alpha : {0.5, 0.8, 0.9}) {
    const double tokens = 1.0 / (1.0 - alpha);
    const double law = tokens * 5.0 / (tokens + 5.0);
    const Outcome outcome = Measure(Method::kSd, alpha, 5.0, "oracle");
    EXPECT_NEAR(outcome.speedup / law, 1.0, 0.03) << alpha;
    for (const char* other :
         {"constant:n=2", "constant:n=4", "constant:n=8", "heuristic",
          "beta-ts", "beta-ts:update=bernoulli", "cali-ts"}) {
      EXPECT_GT(outcome.speedup,
                Measure(Method::kSd, alpha, 5.0, other).speedup)
          << other << " alpha " << alpha;
    }
  }
}

TEST(PolicyTime, TheOracleWastesNothing) {
  for (const Method method : {Method::kSd, Method::kPearl, Method::kAsync}) {
    const Outcome outcome = Measure(method, 0.7, 5.0, "oracle");
    EXPECT_LE(outcome.drafted, 0.71) << static_cast<int>(method);
    EXPECT_GT(outcome.drafted, 0.5) << static_cast<int>(method);
  }
}

// Under overlap a policy that ends every chunk at once never makes the draft
// wait: it is as busy as without.
TEST(PolicyTime, UnderOverlapNoPolicyIdlesTheDraft) {
  for (const Method method : {Method::kPearl, Method::kAsync}) {
    for (const double alpha : {0.5, 0.9}) {
      const Outcome without = Measure(method, alpha, 5.0, "", 0, 2);
      const Outcome with = Measure(method, alpha, 5.0, "constant:n=1", 0, 2);
      EXPECT_GT(with.draft_busy, 0.97 * without.draft_busy)
          << static_cast<int>(method) << " alpha " << alpha;
      EXPECT_GT(with.speedup, 0.97 * without.speedup)
          << static_cast<int>(method) << " alpha " << alpha;
    }
  }
}

// Where the target would wait for a full chunk, the end of a shorter one lets
// it begin.
TEST(PolicyTime, AChunksEndSavesTheTargetItsWait) {
  const Outcome without = Measure(Method::kPearl, 0.7, 4.0, "", 12, 2);
  const Outcome with = Measure(Method::kPearl, 0.7, 4.0, "constant:n=4", 12, 2);
  EXPECT_GT(with.speedup, 1.05 * without.speedup);
}

}  // namespace
}  // namespace nacre::speculation
