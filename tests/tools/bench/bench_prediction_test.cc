#include "tools/bench/bench_prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nacre::tools {
namespace {

using simulation::MatchTrace;

constexpr uint64_t kMs = 1'000'000;

// A run of two prompts whose steps took 10 ms of the target and 2 of the draft.
class PredictTest : public ::testing::Test {
 protected:
  PredictTest() {
    plan_.methods = *ParseBenchMethods("ar,sd:2,async", std::nullopt);
    plan_.prompts = {{"p0", "a", std::nullopt}, {"p1", "b", std::nullopt}};
    plan_.repeat = 1;
    result_.steps.resize(plan_.methods.size());
    for (int method = 0; method < static_cast<int>(plan_.methods.size());
         ++method) {
      AddAnswer(method, 0, /*tokens=*/6);
      AddAnswer(method, 1, /*tokens=*/1);
      AddStep(method, v1::WORKER_ROLE_TARGET, 1, 10 * kMs);
      if (method > 0) AddStep(method, v1::WORKER_ROLE_DRAFT, 1, 2 * kMs);
    }
    matches_ = {{true, true, false, false, true, false}, {false}};
  }

  void AddAnswer(int method, int prompt, int tokens) {
    BenchAnswer& answer = result_.answers.emplace_back();
    answer.method = method;
    answer.prompt = prompt;
    answer.complete.mutable_usage()->set_prompt_tokens(1);
    for (int i = 0; i < tokens; ++i) answer.complete.add_token_ids(i);
  }

  void AddStep(int method, v1::WorkerRole role, int rows, uint64_t duration_ns,
               v1::Span::Kind kind = v1::Span::KIND_VERIFY) {
    v1::Complete complete;
    v1::TraceLane* lane = complete.add_trace();
    lane->set_role(role);
    lane->set_address(role == v1::WORKER_ROLE_TARGET ? "host:1" : "host:2");
    v1::Span* span = lane->add_spans();
    span->set_kind(role == v1::WORKER_ROLE_DRAFT ? v1::Span::KIND_DRAFT : kind);
    span->set_start_ns(++start_ns_);
    span->set_batch_rows(rows);
    span->set_duration_ns(duration_ns);
    result_.steps[method].Add(complete.trace());
  }

  std::vector<std::optional<BenchPrediction>> Predicted() {
    return Predict(plan_, result_, matches_);
  }

  BenchPlan plan_;
  BenchResult result_;
  std::vector<MatchTrace> matches_;
  uint64_t start_ns_ = 0;
};

TEST_F(PredictTest, ReplaysTheRunWithItsStepTimesAndMatches) {
  const auto predictions = Predicted();
  ASSERT_EQ(predictions.size(), 3);
  ASSERT_TRUE(predictions[0].has_value());
  EXPECT_NEAR(predictions[0]->tokens_per_second, 100.0, 1e-6);
  EXPECT_EQ(predictions[0]->speedup, 1.0);
  EXPECT_FALSE(predictions[0]->draft_step.has_value());
  // Rounds of 3, 1 and 2 tokens after 2, 2 and 1 drafted; then one of one.
  ASSERT_TRUE(predictions[1].has_value());
  EXPECT_NEAR(predictions[1]->tokens_per_second, 7.0 / 0.050, 1e-6);
  EXPECT_NEAR(*predictions[1]->speedup, 1.4, 1e-9);
  EXPECT_EQ(predictions[1]->draft_step->At(1), 2 * kMs);
  EXPECT_TRUE(predictions[2].has_value());
}

// Mismatches whose tokens are the draft's second: branches find them.
TEST_F(PredictTest, PlansTreesFromTheRanks) {
  plan_.methods = *WithTrees(plan_.methods, "best,chain,cape", "async");
  ASSERT_EQ(plan_.methods.size(), 5u);
  result_.answers.clear();
  result_.steps.assign(plan_.methods.size(), StepRecorder());
  matches_ = {{}, {false}};
  for (int i = 0; i < 300; ++i) {
    matches_[0].push_back({i % 3 == 2 ? 2 : 1, {0, -1}});
  }
  for (int method = 0; method < 5; ++method) {
    AddAnswer(method, 0, /*tokens=*/300);
    AddAnswer(method, 1, /*tokens=*/1);
    AddStep(method, v1::WORKER_ROLE_TARGET, 1, 10 * kMs);
    if (method > 0) AddStep(method, v1::WORKER_ROLE_DRAFT, 1, 2 * kMs);
  }
  plan_.draft_rows = 8;
  plan_.tree_rows = 8;
  const auto predictions = Predicted();
  ASSERT_TRUE(predictions[2].has_value() && predictions[3].has_value());
  EXPECT_GT(predictions[2]->tokens_per_second,
            1.2 * predictions[3]->tokens_per_second);
  EXPECT_GT(*predictions[2]->hit_rate, 0.5);
  EXPECT_LE(*predictions[2]->hit_rate, 1.0);
  EXPECT_GT(predictions[2]->mean_accepted_length,
            predictions[3]->mean_accepted_length);
  EXPECT_FALSE(predictions[3]->hit_rate.has_value());
  // What it ranks by no trace has.
  EXPECT_FALSE(predictions[4].has_value());
  // A coordinator that allows no trees.
  plan_.draft_rows = 1;
  EXPECT_EQ(Predicted()[2]->tokens_per_second,
            predictions[3]->tokens_per_second);
}

// Each round of sd pays two hops for its first token and two for its verdict.
TEST_F(PredictTest, KnowsTheHopsThatItIsTold) {
  plan_.latency_us = 500;
  const auto predictions = Predicted();
  EXPECT_NEAR(predictions[0]->tokens_per_second, 100.0, 3.0);
  EXPECT_LT(predictions[1]->tokens_per_second, 7.0 / 0.054);
  EXPECT_GT(predictions[1]->tokens_per_second, 7.0 / 0.062);
}

TEST_F(PredictTest, EachMethodHasItsOwnStepTimes) {
  AddStep(0, v1::WORKER_ROLE_TARGET, 1, 14 * kMs);  // 12 on average
  const auto predictions = Predicted();
  EXPECT_NEAR(predictions[0]->tokens_per_second, 1.0 / 0.012, 1e-6);
  EXPECT_NEAR(predictions[1]->tokens_per_second, 140.0, 1e-6);
}

TEST_F(PredictTest, FeedsPromptsButForWhatWasCached) {
  AddStep(0, v1::WORKER_ROLE_TARGET, 101, 30 * kMs, v1::Span::KIND_PREFILL);
  for (BenchAnswer& answer : result_.answers) {
    answer.complete.mutable_usage()->set_prompt_tokens(161);
    answer.complete.mutable_usage()->set_cached_tokens(60);
  }
  // Each answer's first step takes the whole prompt along.
  const auto predictions = Predicted();
  EXPECT_NEAR(predictions[0]->tokens_per_second, 7.0 / (2 * 0.030 + 5 * 0.010),
              1e-6);
  EXPECT_DOUBLE_EQ(predictions[0]->prefill_share, 0.75);
}

TEST_F(PredictTest, SeveralStreamsShareSteps) {
  plan_.streams = 4;  // each prompt twice
  AddStep(0, v1::WORKER_ROLE_TARGET, 4, 16 * kMs);
  const auto predictions = Predicted();
  // One step of four, then five of two.
  EXPECT_NEAR(predictions[0]->tokens_per_second, 14.0 / (0.016 + 5 * 0.012),
              1e-6);
}

TEST_F(PredictTest, SaysNothingOfWhatWasNotMeasured) {
  result_.steps[1] = StepRecorder();
  EXPECT_FALSE(Predicted()[1].has_value());
  EXPECT_TRUE(Predicted()[0].has_value());
  result_.answers.clear();
  EXPECT_FALSE(Predicted()[0].has_value());
  result_.steps.clear();
  EXPECT_EQ(Predicted().size(), 3);
  EXPECT_FALSE(Predicted()[0].has_value());
}

TEST_F(PredictTest, HasNoSpeedUpWithoutAr) {
  plan_.methods[0] = plan_.methods[1];
  EXPECT_FALSE(Predicted()[1]->speedup.has_value());
}

TEST_F(PredictTest, MethodsWithoutADraftGoOn) {
  // As where there is none.
  result_.steps[2] = result_.steps[0];
  EXPECT_NEAR(Predicted()[2]->tokens_per_second, 100.0, 1e-6);
}

class LawAppliesTest : public ::testing::Test {
 protected:
  bool Applies(const char* method, double window, double cost_ratio) const {
    return LawApplies(plan_, (*ParseBenchMethods(method, std::nullopt))[0],
                      prediction_, window, cost_ratio);
  }

  BenchPlan plan_;
  BenchPrediction prediction_{
      100.0, std::nullopt, StepTimes::Flat(10e6), StepTimes::Flat(2e6),
      0.0,   0.0};
};

TEST_F(LawAppliesTest, WhereAllIsAsTheLawsAssume) {
  EXPECT_TRUE(Applies("ar", 0, 0));
  EXPECT_TRUE(Applies("sd", 7, 5.3));
  EXPECT_TRUE(Applies("pearl", 5, 4.8));
  EXPECT_FALSE(Applies("pearl", 6, 4.8));
  EXPECT_TRUE(Applies("async", 8, 5.2));
  EXPECT_FALSE(Applies("async", 8, 5.4));
  EXPECT_FALSE(Applies("async", 8, 0.3));
  EXPECT_FALSE(Applies("async:8", 8, 5.0));
}

// Its alpha would be that of branches, too.
TEST_F(LawAppliesTest, NotToTrees) {
  plan_.draft_rows = 8;
  EXPECT_FALSE(Applies("async", 8, 5.2));
  EXPECT_TRUE(Applies("pearl", 5, 4.8));
  const auto methods = WithTrees(*ParseBenchMethods("async,sd", std::nullopt),
                                 "chain,best", "async,sd");
  EXPECT_TRUE(LawApplies(plan_, (*methods)[0], prediction_, 8, 5.2));
  EXPECT_FALSE(LawApplies(plan_, (*methods)[1], prediction_, 8, 5.2));
  EXPECT_TRUE(LawApplies(plan_, (*methods)[2], prediction_, 3, 5));
  EXPECT_FALSE(LawApplies(plan_, (*methods)[3], prediction_, 3, 5));
}

TEST_F(LawAppliesTest, NotWhereRowsCost) {
  prediction_.target_step = StepTimes({{1, 10e6}, {8, 11e6}});
  EXPECT_TRUE(Applies("ar", 0, 0));
  EXPECT_TRUE(Applies("sd", 3, 5));
  EXPECT_FALSE(Applies("sd", 6, 5));
}

TEST_F(LawAppliesTest, NotWherePromptsDoNorSeveralStreams) {
  prediction_.prefill_share = 0.06;
  EXPECT_FALSE(Applies("ar", 0, 0));
  prediction_.prefill_share = 0.04;
  EXPECT_TRUE(Applies("ar", 0, 0));
  plan_.streams = 2;
  EXPECT_FALSE(Applies("ar", 0, 0));
}

}  // namespace
}  // namespace nacre::tools
