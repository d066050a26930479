#include "speculation/plan.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "speculation/gates.h"
#include "speculation/law.h"

namespace nacre::speculation {
namespace {

class PlanTest : public testing::Test {
 protected:
  // A flat target curve of `target_ns`, a draft of 1 ms, no latency.
  PlanInputs Inputs(Method method, double target_ns, double alpha) {
    curve_ = StepTimeCurve();
    for (int rows = 1; rows <= StepTimeCurve::kMaxRows; ++rows) {
      curve_.Add(rows, static_cast<int64_t>(target_ns));
    }
    PlanInputs inputs;
    inputs.method = method;
    inputs.alpha = alpha;
    inputs.costs.target = &curve_;
    inputs.costs.draft_token_ns = 1e6;
    inputs.costs.hop_ns = 0.0;
    return inputs;
  }

  StepTimeCurve curve_;
};

TEST_F(PlanTest, ArIsAllZeroes) {
  EXPECT_EQ(MakePlan(Inputs(Method::kAr, 5e6, 0.8)), PipelinePlan());
}

TEST_F(PlanTest, SdWaitsForItsWindowAlways) {
  PlanInputs inputs = Inputs(Method::kSd, 5e6, 0.8);
  inputs.window = 6;
  const PipelinePlan plan = MakePlan(inputs);
  EXPECT_EQ(plan.window, 6);
  EXPECT_EQ(plan.draft, (DraftPlan{6, 6, /*waits_at_stop=*/true}));
  EXPECT_EQ(plan.target, (TargetPlan{6, 6, 6, 14'000'000}));
}

TEST_F(PlanTest, PearlPreVerifiesThenWaitsForAChunk) {
  PlanInputs inputs = Inputs(Method::kPearl, 5e6, 0.8);
  inputs.window = 4;
  const PipelinePlan plan = MakePlan(inputs);
  EXPECT_EQ(plan.window, 4);
  EXPECT_EQ(plan.draft, (DraftPlan{4, 7}));
  EXPECT_EQ(plan.target, (TargetPlan{0, 3, 3, 8'000'000}));
  inputs.window = 1;
  EXPECT_EQ(MakePlan(inputs).draft, (DraftPlan{1, 1}));
  EXPECT_EQ(MakePlan(inputs).target.window, 0);
}

TEST_F(PlanTest, PearlWithoutPreVerifyWaitsForAWholeChunk) {
  PlanInputs inputs = Inputs(Method::kPearl, 5e6, 0.8);
  inputs.window = 4;
  inputs.ablation = Ablation::kNoPreVerify;
  const PipelinePlan plan = MakePlan(inputs);
  EXPECT_EQ(plan.window, 4);
  EXPECT_EQ(plan.draft, (DraftPlan{8, 8}));
  EXPECT_EQ(plan.target.gate_after_mismatch, 4);
  EXPECT_EQ(plan.target.gate_in_flow, 3);
  EXPECT_EQ(plan.target.window, 4);
  EXPECT_FALSE(plan.target.ends_chunks);
}

TEST_F(PlanTest, PearlWithoutPostVerifyDraftsNoChunkBesideAnother) {
  PlanInputs inputs = Inputs(Method::kPearl, 5e6, 0.8);
  inputs.window = 4;
  inputs.ablation = Ablation::kNoPostVerify;
  const PipelinePlan plan = MakePlan(inputs);
  EXPECT_EQ(plan.window, 4);
  EXPECT_EQ(plan.draft, (DraftPlan{4, 4}));
  EXPECT_EQ(plan.target.gate_after_mismatch, 0);
  EXPECT_EQ(plan.target.gate_in_flow, 3);
  EXPECT_EQ(plan.target.window, 3);
  EXPECT_TRUE(plan.target.ends_chunks);
}

TEST_F(PlanTest, ChoosesTheLawsWindowWhenTheUserDoesNot) {
  EXPECT_EQ(MakePlan(Inputs(Method::kSd, 5e6, 0.8)).window,
            BestSdWindow(0.8, 5, 16));
  EXPECT_EQ(MakePlan(Inputs(Method::kPearl, 5e6, 0.8)).window, 5);
}

TEST_F(PlanTest, AsyncTakesTheGateOfTheLawAndTheWindowOfTheCurve) {
  const PipelinePlan plan = MakePlan(Inputs(Method::kAsync, 10e6, 0.9));
  // The curve is flat: the best window is 32, a smaller one nearly as good.
  EXPECT_LT(plan.window, 32);
  EXPECT_GE(ExpectedCommitted(0.9, plan.window),
            0.99 * ExpectedCommitted(0.9, 32));
  EXPECT_LT(ExpectedCommitted(0.9, plan.window - 1),
            0.99 * ExpectedCommitted(0.9, 32));
  EXPECT_EQ(plan.target.window, plan.window);
  EXPECT_EQ(plan.target.gate_after_mismatch, BestGate(0.9, 10, 32));
  EXPECT_EQ(plan.target.gate_in_flow, 0);
  // Ten whole tokens a step: those of this one, and a tail for the next.
  EXPECT_EQ(plan.draft.lead_in_flow, 2 * 10 - 1);
}

TEST_F(PlanTest, AsyncWaitsOnlyWhereWaitingGains) {
  bool waits = false;
  for (double alpha = 0.9; alpha > 0.5; alpha -= 0.005) {
    for (const double cost_ratio : {2.0, 5.0, 8.0}) {
      const PipelinePlan plan =
          MakePlan(Inputs(Method::kAsync, cost_ratio * 1e6, alpha));
      const int gate = plan.target.gate_after_mismatch;
      if (gate == 0) continue;
      waits = true;
      const GateInputs inputs = {alpha, cost_ratio, plan.window,
                                 0.25 / cost_ratio};
      EXPECT_GE(GatedSpeedup(inputs, {gate, 0}),
                1.004 * GatedSpeedup(inputs, Gates()))
          << alpha << " " << cost_ratio;
    }
  }
  EXPECT_TRUE(waits);
}

TEST_F(PlanTest, TheUsersWindowBoundsAsync) {
  PlanInputs inputs = Inputs(Method::kAsync, 50e6, 0.8);
  inputs.window = 3;
  const PipelinePlan plan = MakePlan(inputs);
  EXPECT_EQ(plan.window, 3);
  EXPECT_EQ(plan.target.gate_after_mismatch, 3);
  EXPECT_EQ(plan.draft.lead_in_flow, 7);
}

TEST_F(PlanTest, AnAsyncDraftStopsBeforeATokenThatIsLikelyAWaste) {
  // c = 5.3, no gate: the verdict comes 0.3 into the token after the fifth.
  const PipelinePlan low = MakePlan(Inputs(Method::kAsync, 5.3e6, 0.3));
  EXPECT_EQ(low.target.gate_after_mismatch, 0);
  EXPECT_EQ(low.draft.lead_after_mismatch, 5);
  EXPECT_GT(low.draft.lead_in_flow, 5);
  EXPECT_EQ(low.draft.lead_in_flow, 2 * low.window + 1);
}

TEST_F(PlanTest, AnAsyncDraftThatAbandonsATokenNeedNotStopBeforeIt) {
  PlanInputs inputs = Inputs(Method::kAsync, 5.3e6, 0.3);
  inputs.costs.abandons_steps = true;
  const PipelinePlan plan = MakePlan(inputs);
  const int lead = 2 * plan.window + 1;
  EXPECT_EQ(plan.draft, (DraftPlan{lead, lead}));
  // Else nothing changes.
  inputs.costs.abandons_steps = false;
  EXPECT_EQ(MakePlan(inputs).target, plan.target);
  inputs.method = Method::kPearl;
  const PipelinePlan pearl = MakePlan(inputs);
  inputs.costs.abandons_steps = true;
  EXPECT_EQ(MakePlan(inputs), pearl);
}

TEST_F(PlanTest, AnAsyncDraftStreamsOnWhereAMatchIsLikely) {
  const PipelinePlan high = MakePlan(Inputs(Method::kAsync, 5.5e6, 0.95));
  const int lead = 2 * high.window + 1;
  EXPECT_EQ(high.draft, (DraftPlan{lead, lead}));
}

TEST_F(PlanTest, AnAsyncDraftAlwaysMayGiveTheTargetAToken) {
  // So that acceptance is still measured where no window pays.
  const PipelinePlan plan = MakePlan(Inputs(Method::kAsync, 0.2e6, 0.01));
  EXPECT_GE(plan.draft.lead_after_mismatch, 1);
  EXPECT_GE(plan.draft.lead_in_flow, 1);
}

TEST_F(PlanTest, RowsOfOtherSessionsCountInTheStep) {
  PlanInputs inputs = Inputs(Method::kAsync, 5e6, 0.9);
  StepTimeCurve knee;  // flat up to 16 rows, then steep
  knee.Add(1, 10'000'000);
  knee.Add(16, 10'000'000);
  knee.Add(128, 1'000'000'000);
  inputs.costs.target = &knee;
  const int alone = MakePlan(inputs).window;
  inputs.costs.other_rows = inputs.costs.other_sessions = 12;
  const int shared = MakePlan(inputs).window;
  EXPECT_GE(alone, 15);
  EXPECT_LT(shared, 8);
  EXPECT_DOUBLE_EQ(inputs.costs.CostRatio(), 10.0);
  inputs.costs.other_rows = 100;
  EXPECT_GT(inputs.costs.CostRatio(), 100.0);
}

// A row that this session adds makes the tokens of all others later as well.
TEST_F(PlanTest, AWindowIsTheBestOneIfAllTakeIt) {
  PlanInputs inputs = Inputs(Method::kAsync, 5e6, 0.7);
  StepTimeCurve curve;  // 10 ms and 0.5 ms a row
  for (int rows = 1; rows <= StepTimeCurve::kMaxRows; ++rows) {
    curve.Add(rows, 10'000'000 + 500'000 * rows);
  }
  inputs.costs.target = &curve;
  const auto window_among = [&](int others, int async) {
    inputs.costs.other_rows = inputs.costs.other_sessions = others;
    inputs.costs.other_async_sessions = async;
    return MakePlan(inputs).window;
  };
  const int alone = window_among(0, 0);
  EXPECT_GE(alone, 4);
  EXPECT_EQ(window_among(64, 64), 0);
  const int few = window_among(4, 4);
  EXPECT_GT(few, 0);
  EXPECT_LT(few, alone);
  // What the others have in the steps of the moment is theirs to change.
  inputs.costs.other_rows = 20;
  EXPECT_EQ(MakePlan(inputs).window, few);
  // Others that keep their rows leave more room than others that take more.
  EXPECT_GE(window_among(16, 0), window_among(16, 16));
  EXPECT_GE(window_among(8, 0), 1);
}

TEST_F(PlanTest, RowsOfFixedWindowsAreNotMistakenForThoseOfAsync) {
  PlanInputs inputs = Inputs(Method::kAsync, 5e6, 0.8);
  StepTimeCurve knee;  // flat up to 32 rows, then steep
  knee.Add(1, 10'000'000);
  knee.Add(32, 10'000'000);
  knee.Add(64, 100'000'000);
  inputs.costs.target = &knee;
  inputs.costs.other_sessions = 4;
  inputs.costs.other_async_sessions = 2;
  inputs.costs.own_rows = 3.0;
  inputs.costs.other_rows = 8;  // two of 1 and two of 3
  const int room = MakePlan(inputs).window;
  inputs.costs.other_rows = 32;  // two of 13 and two of 3
  EXPECT_LT(MakePlan(inputs).window, room);
  EXPECT_GT(room, 4);
}

// Each of them has a row at least, whatever the averages say.
TEST_F(PlanTest, SessionsOfFixedWindowsHaveARowEach) {
  PlanInputs inputs = Inputs(Method::kAsync, 5e6, 0.8);
  StepTimeCurve knee;  // flat up to 32 rows, then steep
  knee.Add(1, 10'000'000);
  knee.Add(32, 10'000'000);
  knee.Add(64, 100'000'000);
  inputs.costs.target = &knee;
  inputs.costs.other_sessions = 20;
  inputs.costs.other_async_sessions = 2;
  inputs.costs.own_rows = 6.0;
  const auto window_with = [&inputs](int other_rows) {
    inputs.costs.other_rows = other_rows;
    return MakePlan(inputs).window;
  };
  const int window = window_with(2 * 6 + 18);
  EXPECT_GT(window, 0);
  EXPECT_LT(window_with(2 * 6 + 26), window);
  EXPECT_EQ(window_with(20), window);
  EXPECT_EQ(window_with(1), window);  // less than those that follow the load
}

TEST_F(PlanTest, TheDraftRestsWhereOthersFillTheStep) {
  PlanInputs inputs = Inputs(Method::kAsync, 5e6, 0.7);
  StepTimeCurve steep;
  for (int rows = 1; rows <= 128; ++rows) steep.Add(rows, 1'000'000 * rows);
  inputs.costs.target = &steep;
  EXPECT_EQ(MakePlan(inputs).window, 0);
  EXPECT_FALSE(MakePlan(inputs).draft.rests());  // alone it may go on trying
  inputs.costs.other_rows = inputs.costs.other_sessions =
      inputs.costs.other_async_sessions = 3;
  EXPECT_FALSE(MakePlan(inputs).draft.rests());  // not allowed to
  inputs.pair_alpha = 0.7;
  const PipelinePlan plan = MakePlan(inputs);
  EXPECT_TRUE(plan.draft.rests());
  EXPECT_EQ(plan.target.gate_after_mismatch, 0);
  EXPECT_EQ(plan.target.window, 0);
  // A session in a bad stretch, where others of its pair draft with profit.
  StepTimeCurve mild;
  for (int rows = 1; rows <= 128; ++rows) {
    mild.Add(rows, 10'000'000 + 1'000'000 * rows);
  }
  inputs.costs.target = &mild;
  inputs.alpha = 0.05;
  EXPECT_EQ(MakePlan(inputs).window, 0);
  EXPECT_FALSE(MakePlan(inputs).draft.rests());
  inputs.pair_alpha = 0.05;
  EXPECT_TRUE(MakePlan(inputs).draft.rests());
}

TEST_F(PlanTest, AUselessDraftRestsBesideALoneSession) {
  PlanInputs inputs = Inputs(Method::kAsync, 5e6, 0.02);
  EXPECT_FALSE(MakePlan(inputs).draft.rests());  // not allowed to
  inputs.pair_alpha = 0.02;
  const PipelinePlan plan = MakePlan(inputs);
  EXPECT_TRUE(plan.draft.rests());
  EXPECT_EQ(plan.window, 0);
  EXPECT_EQ(plan.target.gate_after_mismatch, 0);
  // A bad stretch of a pair that is worth it, and a good session of one that
  // mostly is not.
  inputs.pair_alpha = 0.5;
  EXPECT_FALSE(MakePlan(inputs).draft.rests());
  inputs.alpha = 0.5;
  inputs.pair_alpha = 0.02;
  EXPECT_FALSE(MakePlan(inputs).draft.rests());
  // Others have found it useful since.
  inputs.alpha = 0.02;
  inputs.latest_pair_alpha = 0.5;
  EXPECT_FALSE(MakePlan(inputs).draft.rests());
  inputs.latest_pair_alpha = absl::nullopt;
  // A weak draft is still worth its device.
  inputs.alpha = 0.1;
  inputs.pair_alpha = 0.1;
  EXPECT_FALSE(MakePlan(inputs).draft.rests());
}

TEST_F(PlanTest, OnALongWayTheTargetWaitsInFlowForTokensUnderWay) {
  PlanInputs inputs = Inputs(Method::kAsync, 10e6, 0.5);
  inputs.costs.hop_ns = 4e6;
  inputs.costs.draft_token_ns = 1.2e6;
  const PipelinePlan plan = MakePlan(inputs);
  EXPECT_EQ(plan.target.gate_after_mismatch, 0);
  EXPECT_GE(plan.target.gate_in_flow, 1);
  // Enough for it, and for what is drafted on the way.
  EXPECT_GE(plan.draft.lead_in_flow, 2 * plan.target.gate_in_flow + 1);
  inputs.costs.hop_ns = 0.0;
  EXPECT_EQ(MakePlan(inputs).target.gate_in_flow, 0);
}

TEST_F(PlanTest, NoDraftIsAskedForMoreThanItMayDo) {
  int num_longest = 0;
  for (const double alpha : {0.3, 0.6, 0.8, 0.9, 0.95}) {
    for (const double hop_ns : {1e6, 2e6, 4e6}) {
      for (const int window : {4, 16, 32, kMaxWindow}) {
        PlanInputs inputs = Inputs(Method::kAsync, 4e6, alpha);
        inputs.costs.hop_ns = hop_ns;
        inputs.costs.draft_token_ns = 0.03e6;
        inputs.window = window;
        const DraftPlan draft = MakePlan(inputs).draft;
        EXPECT_LE(draft.lead_after_mismatch, kMaxLead);
        EXPECT_LE(draft.lead_in_flow, kMaxLead);
        num_longest += draft.lead_after_mismatch == kMaxLead ? 1 : 0;
      }
    }
  }
  EXPECT_GT(num_longest, 0);
}

TEST_F(PlanTest, NobodyWaitsForTokensAtATargetThatOthersKeepBusy) {
  PlanInputs inputs = Inputs(Method::kAsync, 10e6, 0.9);
  inputs.costs.hop_ns = 0.0;
  inputs.costs.draft_token_ns = 1e6;
  EXPECT_GT(MakePlan(inputs).target.gate_after_mismatch, 0);
  inputs.costs.other_sessions = 1;
  EXPECT_GT(MakePlan(inputs).target.gate_after_mismatch, 0);
  inputs.costs.other_rows = 1;
  EXPECT_EQ(MakePlan(inputs).target.gate_after_mismatch, 0);
}

TEST_F(PlanTest, TheCostRatioIsFiveUntilBothSidesAreMeasured) {
  StepCosts costs;
  EXPECT_EQ(costs.CostRatio(), 5.0);
  StepTimeCurve empty;
  costs.target = &empty;
  costs.draft_token_ns = 1e6;
  EXPECT_EQ(costs.CostRatio(), 5.0);
  curve_.Add(1, 3'000'000);
  costs.target = &curve_;
  EXPECT_DOUBLE_EQ(costs.CostRatio(), 3.0);
  costs.draft_token_ns = 1e-3;
  EXPECT_EQ(costs.CostRatio(), 1000.0);
  costs.draft_token_ns = 1e15;
  EXPECT_EQ(costs.CostRatio(), 0.01);
  costs.draft_token_ns = 0.0;
  EXPECT_EQ(costs.CostRatio(), 5.0);
}

TEST_F(PlanTest, TheGateTimeoutIsTwiceTheExpectedArrival) {
  PlanInputs inputs = Inputs(Method::kSd, 5e6, 0.8);
  inputs.window = 3;
  inputs.costs.hop_ns = 2e6;  // there and back, and 3 + 1 tokens
  EXPECT_EQ(MakePlan(inputs).target.gate_timeout_ns, 2 * (4 + 4) * 1'000'000);
  inputs.costs.draft_token_ns = 1.0;
  inputs.costs.hop_ns = 0.0;
  EXPECT_EQ(MakePlan(inputs).target.gate_timeout_ns, 2'000'000);
  inputs.costs.draft_token_ns = 0.0;  // not measured: generous
  EXPECT_GE(MakePlan(inputs).target.gate_timeout_ns, 100'000'000);
}

TEST_F(PlanTest, InSdALengthPolicyDecidesUpToItsLongestChunk) {
  PlanInputs inputs = Inputs(Method::kSd, 5e6, 0.8);
  inputs.policy_length = 40;
  EXPECT_EQ(MakePlan(inputs).draft, (DraftPlan{40, 40, true}));
  EXPECT_EQ(MakePlan(inputs).target.window, 40);
  EXPECT_EQ(MakePlan(inputs).target.gate_after_mismatch, 40);
  inputs.window = 6;  // the user's word bounds it
  EXPECT_EQ(MakePlan(inputs).window, 6);
}

TEST_F(PlanTest, UnderOverlapALengthPolicyChangesNoGate) {
  for (const Method method : {Method::kPearl, Method::kAsync}) {
    PlanInputs inputs = Inputs(method, 5e6, 0.8);
    const PipelinePlan plan = MakePlan(inputs);
    inputs.policy_length = 40;
    EXPECT_EQ(MakePlan(inputs), plan);
    EXPECT_FALSE(plan.draft.waits_at_stop);
  }
}

TEST_F(PlanTest, FollowingTheLoadBoundsWhatSdAndPearlVerify) {
  for (const Method method : {Method::kSd, Method::kPearl}) {
    PlanInputs inputs = Inputs(method, 8e6, 0.8);
    // From 4 rows on a row costs as much as a step.
    curve_ = StepTimeCurve();
    for (int rows = 1; rows <= StepTimeCurve::kMaxRows; ++rows) {
      curve_.Add(rows, 8'000'000 + 4'000'000 * std::max(0, rows - 4));
    }
    inputs.window = 12;
    inputs.follows_load = true;
    const int extra = method == Method::kPearl ? 1 : 0;
    // Alone it verifies what async would.
    PlanInputs async = inputs;
    async.method = Method::kAsync;
    const int alone = MakePlan(async).window;
    EXPECT_EQ(MakePlan(inputs).window, alone + extra);
    EXPECT_LT(alone, 12 - extra);
    // Beside others less, and its draft rests where nothing pays.
    inputs.costs.other_rows = 8;
    inputs.costs.other_sessions = inputs.costs.other_async_sessions = 8;
    EXPECT_EQ(MakePlan(inputs).window, 1);
    inputs.pair_alpha = 0.8;
    EXPECT_EQ(MakePlan(inputs).window, 0);
    EXPECT_TRUE(MakePlan(inputs).draft.rests());
    inputs.follows_load = false;
    EXPECT_EQ(MakePlan(inputs).window, 12);
  }
}

// What sessions of one step need: one search for all whose acceptance is about
// the same, of whatever method.
TEST_F(PlanTest, SessionsOfAStepShareTheSearchForTheirWindow) {
  PlanInputs inputs = Inputs(Method::kAsync, 8e6, 0.75);
  curve_ = StepTimeCurve();
  for (int rows = 1; rows <= StepTimeCurve::kMaxRows; ++rows) {
    curve_.Add(rows, 8'000'000 + 100'000 * rows);
  }
  inputs.costs.other_sessions = inputs.costs.other_async_sessions = 15;
  inputs.costs.other_rows = 60;
  WindowSearches searches;
  const PipelinePlan plan = MakePlan(inputs, &searches);
  EXPECT_EQ(plan, MakePlan(inputs));
  EXPECT_EQ(searches.num_searches(), 1);
  inputs.alpha = 0.7505;
  inputs.costs.own_rows = 4.5;
  EXPECT_EQ(MakePlan(inputs, &searches).window, plan.window);
  EXPECT_EQ(searches.num_searches(), 1);
  inputs.method = Method::kSd;
  inputs.window = 12;
  inputs.follows_load = true;
  EXPECT_EQ(MakePlan(inputs, &searches), MakePlan(inputs));
  EXPECT_EQ(searches.num_searches(), 1);
  inputs.alpha = 0.4;
  EXPECT_EQ(MakePlan(inputs, &searches), MakePlan(inputs));
  EXPECT_EQ(searches.num_searches(), 2);
}

// Some rows more or less in the step of a busy target change nothing.
TEST_F(PlanTest, FixedRowsOfOthersCountCoarsely) {
  PlanInputs inputs = Inputs(Method::kAsync, 8e6, 0.75);
  inputs.costs.other_sessions = 40;
  WindowSearches searches;
  for (int rows = 250; rows <= 270; ++rows) {
    inputs.costs.other_rows = rows;
    MakePlan(inputs, &searches);
  }
  EXPECT_EQ(searches.num_searches(), 1);  // all as 256
}

TEST_F(PlanTest, BranchesAreForDraftsWhoseRowsAreCheap) {
  PlanInputs inputs = Inputs(Method::kAsync, 5e6, 0.7);
  inputs.draft_rows = 8;
  inputs.tree_rows = 64;
  // A row of it costs next to nothing: all that may be.
  inputs.costs.draft_rows_ns = {1e6, 1e6, 1.01e6, 1.02e6, 1.03e6, 1.05e6};
  PipelinePlan plan = MakePlan(inputs);
  EXPECT_EQ(plan.draft.rows, 8);
  EXPECT_LT(plan.draft.least_score, 0);
  EXPECT_EQ(plan.target.tree_rows, 64);
  // Four cost twice one: none.
  inputs.costs.draft_rows_ns = {1e6, 1.3e6, 2e6, 4e6, 8e6, 16e6};
  plan = MakePlan(inputs);
  EXPECT_EQ(plan.draft.rows, 1);
  EXPECT_EQ(plan.draft.least_score, 0);
  // Up to four are cheap.
  inputs.costs.draft_rows_ns = {1e6, 1.02e6, 1.06e6, 2e6, 4e6, 8e6};
  EXPECT_EQ(MakePlan(inputs).draft.rows, 4);
  // As many as the bound allows, and not named a power of two.
  inputs.draft_rows = 3;
  EXPECT_EQ(MakePlan(inputs).draft.rows, 3);
}

TEST_F(PlanTest, BranchesAreNotForUselessDraftsNorForACrowd) {
  PlanInputs inputs = Inputs(Method::kAsync, 5e6, 0.05);
  inputs.draft_rows = 8;
  inputs.next_three = 0.1;
  EXPECT_EQ(MakePlan(inputs).draft.rows, 1);
  inputs.alpha = 0.7;
  inputs.next_three = 0.69;
  EXPECT_GT(MakePlan(inputs).draft.rows, 1);
  inputs.costs.other_sessions = 7;
  EXPECT_EQ(MakePlan(inputs).draft.rows, 1);
}

TEST_F(PlanTest, AUsersWindowBoundsTheRowsOfATree) {
  PlanInputs inputs = Inputs(Method::kAsync, 5e6, 0.7);
  inputs.draft_rows = 8;
  inputs.tree_rows = 64;
  inputs.window = 3;
  const PipelinePlan plan = MakePlan(inputs);
  EXPECT_EQ(plan.target.window, 3);
  EXPECT_EQ(plan.target.tree_rows, 3);
  inputs.draft_rows = 1;
  EXPECT_EQ(MakePlan(inputs).target.tree_rows, 0);
}

TEST_F(PlanTest, AShapeOfOthersAsksForNoPrice) {
  PlanInputs inputs = Inputs(Method::kAsync, 5e6, 0.7);
  inputs.draft_rows = 8;
  inputs.tree_rows = 64;
  // Rows that would never pay.
  inputs.costs.draft_rows_ns = {1e6, 1.3e6, 2e6, 4e6, 8e6, 16e6};
  EXPECT_FALSE(MakePlan(inputs).target.takes_all);
  inputs.tree = *ParseTreeSpec("eagle2:k=4,depth=3,total=20");
  PipelinePlan plan = MakePlan(inputs);
  EXPECT_EQ(plan.draft.tree, inputs.tree);
  EXPECT_EQ(plan.draft.rows, 4);
  EXPECT_EQ(plan.draft.lead_in_flow, 3);
  EXPECT_EQ(plan.target.tree_rows, 20);
  EXPECT_TRUE(plan.target.takes_all);
  inputs.tree = *ParseTreeSpec("cape");
  EXPECT_EQ(MakePlan(inputs).draft.rows, 1);
  EXPECT_EQ(MakePlan(inputs).target.tree_rows, 64);
  // Bounded, and turned off, by the service as the others are.
  inputs.window = 3;
  EXPECT_EQ(MakePlan(inputs).target.tree_rows, 3);
  inputs.draft_rows = 1;
  plan = MakePlan(inputs);
  EXPECT_FALSE(plan.target.takes_all);
  EXPECT_FALSE(plan.draft.tree.ranks_by_q());
}

TEST_F(PlanTest, SdAndPearlDraftTheTreesThatRequestsName) {
  for (const Method method : {Method::kSd, Method::kPearl}) {
    PlanInputs inputs = Inputs(method, 5e6, 0.7);
    inputs.draft_rows = 8;
    inputs.tree_rows = 16;
    inputs.window = 6;
    inputs.tree = TreeShape::kChain;
    const PipelinePlan chain = [&inputs] {
      PlanInputs without = inputs;
      without.draft_rows = without.tree_rows = 1;  // as the dispatcher does
      return MakePlan(without);
    }();
    EXPECT_EQ(chain.draft.rows, 1);
    EXPECT_EQ(chain.target.tree_rows, 0);

    inputs.tree = *ParseTreeSpec("cape");
    PipelinePlan plan = MakePlan(inputs);
    EXPECT_EQ(plan.draft.rows, 1);
    EXPECT_EQ(plan.draft.lead_in_flow, chain.draft.lead_in_flow);
    EXPECT_EQ(plan.target.gate_in_flow, chain.target.gate_in_flow);
    EXPECT_EQ(plan.target.window, chain.target.window) << "of levels";
    EXPECT_EQ(plan.target.tree_rows, 16);
    EXPECT_TRUE(plan.target.takes_all);

    inputs.tree = *ParseTreeSpec("eagle2:k=4,depth=3,total=9");
    plan = MakePlan(inputs);
    EXPECT_EQ(plan.draft.rows, 4);
    EXPECT_EQ(plan.draft.lead_in_flow, 3);
    EXPECT_LE(plan.target.gate_in_flow, 3) << "it would wait in vain";
    EXPECT_EQ(plan.target.tree_rows, 9);

    inputs.tree = TreeShape::kBest;
    plan = MakePlan(inputs);
    EXPECT_EQ(plan.draft.rows, 8);
    EXPECT_LT(plan.draft.least_score, 0);
    EXPECT_FALSE(plan.target.takes_all) << "rows have their price";
    inputs.costs.other_sessions = 3;
    EXPECT_EQ(MakePlan(inputs).draft.rows, 2);
  }
}

// The draft's step is that of all its rows: a gate waits for so many of those,
// and the window is that of their cost ratio.
TEST_F(PlanTest, ATreeOfDearRowsIsWaitedFor) {
  for (const Method method : {Method::kSd, Method::kPearl}) {
    PlanInputs inputs = Inputs(method, 20e6, 0.7);
    inputs.tree_rows = 16;
    inputs.costs.draft_rows_ns = {1e6, 2e6, 4e6, 8e6, 16e6, 32e6};
    inputs.draft_rows = 8;
    inputs.tree = TreeShape::kChain;
    const PipelinePlan chain = MakePlan(inputs);
    inputs.tree = TreeShape::kBest;
    const PipelinePlan tree = MakePlan(inputs);
    EXPECT_LT(tree.window, chain.window);
    inputs.window = 4;
    const int64_t of_tree = MakePlan(inputs).target.gate_timeout_ns;
    inputs.tree = TreeShape::kChain;
    const int64_t of_chain = MakePlan(inputs).target.gate_timeout_ns;
    EXPECT_GE(of_tree - of_chain, static_cast<int64_t>(2 * 4 * 7e6));
    EXPECT_EQ(MakePlan(inputs).draft.rows, 1);
  }
}

TEST_F(PlanTest, ATreeOfSdAndPearlAtItsBounds) {
  PlanInputs inputs = Inputs(Method::kPearl, 5e6, 0.7);
  inputs.draft_rows = 8;
  inputs.tree_rows = 0;
  inputs.window = 1;
  inputs.tree = TreeShape::kBest;
  EXPECT_EQ(MakePlan(inputs).target.window, 0);
  EXPECT_EQ(MakePlan(inputs).target.gate_in_flow, 0);
  EXPECT_EQ(MakePlan(inputs).target.tree_rows, 0) << "the best path alone";
  // Its likeliest path ends after one token: no gate waits for more.
  inputs.method = Method::kSd;
  inputs.window = 6;
  inputs.tree = *ParseTreeSpec("static:[[0],[1],[1,0],[1,1]]");
  EXPECT_EQ(MakePlan(inputs).target.gate_in_flow, 1);
  EXPECT_EQ(MakePlan(inputs).draft.lead_in_flow, 2);
}

}  // namespace
}  // namespace nacre::speculation
