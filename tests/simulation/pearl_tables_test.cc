// The shape of the tables 3, 5 and 6 of PEARL (arXiv:2408.11850): its optimal
// window is the cost ratio, and both its halves are worth having, post-verify
// more than pre-verify where the models agree well. docs/simulation.md has the
// numbers.

#include <vector>

#include "gtest/gtest.h"
#include "simulation/fleet.h"

namespace nacre::simulation {
namespace {

using speculation::Ablation;
using speculation::Method;

double Pearl(double alpha, int cost_ratio, int window,
             Ablation ablation = Ablation::kNone) {
  FleetOptions options;
  options.method = {Method::kPearl, window, ablation};
  options.alpha = alpha;
  options.output_tokens = 10'000;
  options.draft_step = StepTimes::Flat(1e6);
  options.target_step = StepTimes::Flat(cost_ratio * 1e6);
  const FleetResult result = SimulateFleet(options);
  EXPECT_TRUE(result.finished);
  return result.tokens_per_second() * cost_ratio * 1e-3;
}

// Tables 5 and 6: c 3 and 5, windows 2 to 7; it rises up to c and falls after.
TEST(PearlTables, TheOptimalWindowIsTheCostRatio) {
  for (const double alpha : {0.6, 0.8, 0.9, 0.95}) {
    for (const int c : {3, 5}) {
      for (int window = 2; window <= 7; ++window) {
        const double here = Pearl(alpha, c, window);
        const double before = Pearl(alpha, c, window - 1);
        if (window <= c) {
          EXPECT_GT(here, before) << alpha << " c " << c << " g " << window;
        } else {
          EXPECT_LT(here, before) << alpha << " c " << c << " g " << window;
        }
      }
    }
  }
}

// Table 3. The alphas are those at which the law gives its speed-ups of PEARL:
// 2.35 and 3.79 (CodeLlama 7B & 34B, c 3; 7B & 70B, c 5) and 2.87 (Llama 2 7B &
// 70B, c 5).
TEST(PearlTables, TheAblationsAreInTheOrderPublished) {
  struct Row {
    double alpha;
    int c;
    double published;
  };
  for (const Row& row :
       std::vector<Row>{{0.907, 3, 2.35}, {0.948, 5, 3.79}, {0.877, 5, 2.87}}) {
    const double whole = Pearl(row.alpha, row.c, row.c);
    const double no_pre =
        Pearl(row.alpha, row.c, row.c, Ablation::kNoPreVerify);
    const double no_post =
        Pearl(row.alpha, row.c, row.c, Ablation::kNoPostVerify);
    EXPECT_NEAR(whole / row.published, 1.0, 0.01);
    EXPECT_LT(no_pre, 0.995 * whole) << row.alpha;
    EXPECT_LT(no_post, 0.9 * no_pre) << row.alpha;
  }
}

// Per chunk of 5 at alpha a: without pre-verify a cycle between mismatches
// takes 2 + a^6 / (1 - a^5) steps; without post-verify a chunk takes 1 step
// when its first token is wrong, else 2.
TEST(PearlTables, TheAblationsTakeTheTimeOfTheirOwnLaws) {
  const double a = 0.8;
  const double a5 = a * a * a * a * a;
  EXPECT_NEAR(Pearl(a, 5, 5, Ablation::kNoPreVerify),
              1.0 / ((1 - a) * (2 + a5 * a / (1 - a5))), 0.015);
  EXPECT_NEAR(Pearl(a, 5, 5, Ablation::kNoPostVerify),
              ((1 - a) + a * (1 + (1 - a5) / (1 - a))) / (1 + a), 0.015);
}

// "The pre-verify strategy makes more contributions when the acceptance rate is
// relatively low, while the post-verify strategy makes more contributions when
// the two models are effectively aligned" (section 5.3).
TEST(PearlTables, EachHalfHasItsOwnGround) {
  EXPECT_LT(Pearl(0.5, 5, 5, Ablation::kNoPreVerify),
            Pearl(0.5, 5, 5, Ablation::kNoPostVerify));
  EXPECT_GT(Pearl(0.9, 5, 5, Ablation::kNoPreVerify),
            Pearl(0.9, 5, 5, Ablation::kNoPostVerify));
}

}  // namespace
}  // namespace nacre::simulation
