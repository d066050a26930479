#include "tools/bench/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "speculation/law.h"

namespace nacre::tools {
namespace {

using ::testing::HasSubstr;

BenchAnswer Answer(int method, int prompt, int repeat,
                   const std::vector<uint32_t>& ids) {
  BenchAnswer answer;
  answer.method = method;
  answer.prompt = prompt;
  answer.repeat = repeat;
  answer.seconds = 1.0;
  answer.complete.mutable_token_ids()->Assign(ids.begin(), ids.end());
  v1::SpeculationReport* report = answer.complete.mutable_speculation();
  report->set_window(4);
  report->set_rounds(2);
  report->set_verified(4);
  report->set_accepted(3);
  report->set_committed(5);
  report->set_alpha(0.7);
  report->set_cost_ratio(5.0);
  if (method == 1) {
    for (const uint64_t count : {3, 1, 0, 0, 0, 0, 0, 0, 0}) {
      report->add_ranks(count);
    }
    report->set_prepared(repeat == 0 ? 1 : 0);
    report->set_drafted(12);
    for (const uint32_t rows : {3, 4}) report->add_per_round_drafted(rows);
    report->set_suffix_proposed(5);
    report->set_suffix_accepted(2);
  }
  v1::Timing* timing = answer.complete.mutable_timing();
  timing->mutable_draft_busy()->set_seconds(3);
  timing->mutable_draft_wait()->set_seconds(1);
  timing->mutable_target_busy()->set_seconds(4);
  timing->mutable_target_wait()->set_seconds(1);
  timing->mutable_target_wait_after_miss()->set_nanos(500'000'000);
  return answer;
}

// ar, sd:4 on two prompts, three repetitions; sd is faster.
struct SmallBench {
  BenchPlan plan;
  BenchResult result;

  SmallBench() {
    plan.methods = *ParseBenchMethods("ar,sd:4", std::nullopt);
    plan.prompts = {{"p0", "a", std::nullopt}, {"p1", "b", std::nullopt}};
    plan.repeat = 3;
    for (int repeat = 0; repeat < 3; ++repeat) {
      for (int method = 0; method < 2; ++method) {
        result.answers.push_back(Answer(method, 0, repeat, {1, 2, 3}));
        result.answers.push_back(Answer(method, 1, repeat, {4}));
      }
    }
    result.wall_s = {{2.0, 1.0, 4.0}, {0.5, 1.0, 8.0}};
  }
};

TEST(MedianTest, TakesTheMiddle) {
  EXPECT_EQ(Median({}), 0.0);
  EXPECT_EQ(Median({3.0}), 3.0);
  EXPECT_EQ(Median({9.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(Median({4.0, 1.0, 2.0, 9.0}), 3.0);
}

TEST(SummarizeTest, TakesMediansOverRepetitionsAndSumsOverPrompts) {
  SmallBench run;
  const std::vector<MethodSummary> summaries = Summarize(run.plan, run.result);
  ASSERT_EQ(summaries.size(), 2);
  EXPECT_THAT(summaries[0].tokens_per_second_repeats,
              ::testing::ElementsAre(2.0, 4.0, 1.0));
  EXPECT_EQ(summaries[0].tokens_per_second, 2.0);
  EXPECT_EQ(summaries[0].speedup, 1.0);
  EXPECT_EQ(summaries[1].tokens_per_second, 4.0);
  EXPECT_EQ(summaries[1].speedup, 2.0);
  EXPECT_EQ(summaries[1].acceptance_rate, 0.75);
  EXPECT_EQ(summaries[1].mean_accepted_length, 2.5);
  EXPECT_TRUE(summaries[0].ranks.empty());
  EXPECT_THAT(summaries[1].ranks,
              ::testing::ElementsAre(18, 6, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_FALSE(summaries[0].hit_rate.has_value());
  EXPECT_EQ(summaries[1].hit_rate, 2.0 / 6);
  EXPECT_EQ(summaries[1].paid.rounds, 12u);
  EXPECT_EQ(summaries[1].paid.drafted, 72u);
  EXPECT_EQ(summaries[1].paid.accepted, 18u);
  EXPECT_FALSE(summaries[0].paid.rows_verified.has_value());
  EXPECT_FALSE(summaries[0].paid.rows_used.has_value());
  EXPECT_EQ(summaries[1].paid.rows_verified, 42u);
  // Of five tokens two are of the steps themselves, two from suffixes.
  EXPECT_EQ(summaries[1].paid.rows_used, 6u);
  EXPECT_EQ(summaries[1].suffix_proposed, 30u);
  EXPECT_EQ(summaries[1].suffix_accepted, 12u);
  EXPECT_EQ(summaries[1].draft_wait_share, 0.25);
  EXPECT_EQ(summaries[1].target_wait_share, 0.2);
  EXPECT_EQ(summaries[1].target_wait_after_miss_share, 0.1);
  EXPECT_EQ(summaries[1].alpha, 0.7);
  EXPECT_EQ(summaries[1].cost_ratio, 5.0);
  EXPECT_EQ(summaries[1].law_speedup, speculation::SdSpeedup(0.75, 5.0, 4));
  EXPECT_FALSE(summaries[1].step_gap_us.has_value());
}

TEST(TreeTableTest, PutsWhatWasPredictedBesideWhatWasMeasured) {
  SmallBench run;
  std::vector<MethodSummary> summaries = Summarize(run.plan, run.result);
  EXPECT_EQ(TreeTable(summaries), "");
  BenchPrediction prediction = {.tokens_per_second = 8.0,
                                .target_step = StepTimes::Flat(1e6)};
  AddPredictions(run.plan, {prediction, std::nullopt}, &summaries);
  EXPECT_EQ(TreeTable(summaries), "");  // ar drafts nothing
  prediction.mean_accepted_length = 2.75;
  prediction.hit_rate = 0.4;
  AddPredictions(run.plan, {std::nullopt, prediction}, &summaries);
  EXPECT_EQ(TreeTable(summaries),
            "method  tokens a step        hit rate\n"
            "        measured  predicted  measured  predicted\n"
            "sd:4        2.50       2.75     33.3%      40.0%\n");
  summaries[1].hit_rate.reset();
  EXPECT_THAT(TreeTable(summaries), HasSubstr("2.75         -      40.0%\n"));
}

TEST(SummarizeTest, LeavesOutWhatWasNotMeasured) {
  SmallBench run;
  run.plan.methods = *ParseBenchMethods("pearl,sd:4", std::nullopt);
  for (BenchAnswer& answer : run.result.answers) {
    answer.complete.mutable_speculation()->set_cost_ratio(0.0);
  }
  const std::vector<MethodSummary> summaries = Summarize(run.plan, run.result);
  EXPECT_FALSE(summaries[0].speedup.has_value());
  EXPECT_FALSE(summaries[0].law_speedup.has_value());
  EXPECT_EQ(summaries[0].cost_ratio, 0.0);
  const auto json = SummariesJson(summaries);
  EXPECT_TRUE(json[0]["speedup"].is_null());
}

TEST(SummarizeTest, TakesStepGapsFromTracedAnswers) {
  SmallBench run;
  BenchAnswer traced = Answer(1, 0, 3, {1, 2, 3});
  for (const uint64_t gap : {30000, 10000, 20000}) {
    traced.complete.mutable_speculation()->add_step_gap_ns(gap);
  }
  run.result.traced.push_back(traced);
  const std::vector<MethodSummary> summaries = Summarize(run.plan, run.result);
  EXPECT_FALSE(summaries[0].step_gap_us.has_value());
  EXPECT_EQ(summaries[1].step_gap_us, 20.0);
  EXPECT_EQ(summaries[1].tokens_per_second, 4.0);
  // Or from those measured, where they were traced.
  run.result.traced.clear();
  run.result.answers[0].complete.mutable_speculation()->add_step_gap_ns(7000);
  EXPECT_EQ(Summarize(run.plan, run.result)[0].step_gap_us, 7.0);
}

TEST(SummarizeTest, LatenciesAreThoseOfAllRequestsAndTokens) {
  SmallBench run;
  int n = 0;
  for (BenchAnswer& answer : run.result.answers) {
    if (answer.method != 1) continue;
    answer.ttft_s = 0.001 * n;
    answer.inter_token_s = {0.002 * n, 0.002 * n};
    ++n;
  }
  ASSERT_EQ(n, 6);
  const std::vector<MethodSummary> summaries = Summarize(run.plan, run.result);
  EXPECT_DOUBLE_EQ(summaries[1].ttft_s.p50, 0.0025);
  EXPECT_DOUBLE_EQ(summaries[1].inter_token_s.p50, 0.005);
  EXPECT_EQ(summaries[0].inter_token_s.p99, 0.0);
  EXPECT_THAT(LatencyTable(summaries), HasSubstr("sd:4       2.50"));
  EXPECT_EQ(SummariesJson(summaries)[1]["ttft_s"]["p50"], 0.0025);
}

TEST(CheckIdenticalTest, AcceptsEqualTokens) {
  SmallBench run;
  EXPECT_TRUE(CheckIdentical(run.plan, run.result).ok());
}

TEST(CheckIdenticalTest, NamesTheFirstDifference) {
  SmallBench run;
  run.result.answers[6].complete.set_token_ids(1, 77);
  const absl::Status status = CheckIdentical(run.plan, run.result);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("prompt \"p0\": the answers differ at token 1: ar (repetition "
                "1) has token id 2, sd:4 (repetition 2) has token id 77"));
}

TEST(CheckIdenticalTest, SeesAnAnswerThatEndsEarly) {
  SmallBench run;
  run.result.answers.back().complete.clear_token_ids();
  EXPECT_THAT(
      std::string(CheckIdentical(run.plan, run.result).message()),
      HasSubstr("prompt \"p1\": the answers differ at token 0: ar (repetition "
                "1) has token id 4, sd:4 (repetition 3) has the end"));
}

TEST(CheckIdenticalTest, LeavesTheRatioTestOut) {
  SmallBench run;
  EXPECT_EQ(IdentityText(run.plan, run.result), "yes (2 prompts x 2 methods)");
  BenchAnswer& other = run.result.answers[6];
  other.complete.set_token_ids(1, 77);
  EXPECT_EQ(IdentityText(run.plan, run.result), "no");
  other.complete.mutable_speculation()->set_verification(
      v1::VERIFICATION_RATIO);
  EXPECT_TRUE(CheckIdentical(run.plan, run.result).ok());
  EXPECT_EQ(IdentityText(run.plan, run.result),
            "yes (2 prompts x 1 methods); 1 methods with the ratio test are "
            "not compared");
}

TEST(CheckIdenticalTest, LooksAtTracedAnswersToo) {
  SmallBench run;
  run.result.traced.push_back(Answer(1, 0, 3, {1, 2, 3, 4}));
  EXPECT_FALSE(CheckIdentical(run.plan, run.result).ok());
}

TEST(SummaryTableTest, HasOneRowAMethod) {
  SmallBench run;
  EXPECT_EQ(
      SummaryTable(Summarize(run.plan, run.result)),
      "method  window  tokens/s  speed-up  acceptance  accepted  target    "
      "draft\n"
      "                          over ar   rate        length    waiting   "
      "waiting\n"
      "ar           -       2.0      1.00           -      2.50     20.0%     "
      "   -\n"
      "sd:4         4       4.0      2.00       75.0%      2.50     20.0%    "
      "25.0%\n");
}

// A target that drafts by itself: its rows are in no acceptance rate.
TEST(SummaryTableTest, WithoutADraftThereIsNoAcceptanceRate) {
  SmallBench run;
  for (BenchAnswer& answer : run.result.answers) {
    v1::SpeculationReport* report = answer.complete.mutable_speculation();
    report->set_drafted(0);
    report->set_verified(0);
    report->set_accepted(0);
  }
  const std::vector<MethodSummary> summaries = Summarize(run.plan, run.result);
  EXPECT_THAT(
      SummaryTable(summaries),
      HasSubstr("sd:4         4       4.0      2.00           -      2.50  "));
  EXPECT_EQ(SummariesJson(summaries)[1]["acceptance_rate"], 0.0);
}

TEST(OwnDraftLinesTest, NameTheMethodsThatHadSome) {
  SmallBench run;
  std::vector<MethodSummary> summaries = Summarize(run.plan, run.result);
  EXPECT_EQ(OwnDraftLines(summaries),
            "sd:4: of the target's own drafts 12 of 30 verified accepted "
            "(40.0%)\n");
  summaries[1].suffix_proposed = summaries[1].suffix_accepted = 0;
  EXPECT_EQ(OwnDraftLines(summaries), "");
}

TEST(SummaryTableTest, HasThePredictionsBeside) {
  SmallBench run;
  std::vector<MethodSummary> summaries = Summarize(run.plan, run.result);
  BenchPrediction prediction{
      2.5, 1.0,  StepTimes::Flat(10e6), StepTimes({{1, 2e6}, {4, 3e6}}),
      0.0, 0.125};
  AddPredictions(run.plan, {std::nullopt, prediction}, &summaries);
  const auto json = SummariesJson(summaries);
  EXPECT_TRUE(json[0]["predicted"].is_null());
  EXPECT_EQ(json[1]["predicted"]["tokens_per_second"], 2.5);
  EXPECT_EQ(json[1]["predicted"]["of_predicted"], 1.6);
  EXPECT_EQ(json[1]["predicted"]["speedup"], 1.0);
  EXPECT_EQ(json[1]["predicted"]["law_applies"], true);
  EXPECT_EQ(json[1]["predicted"]["held_up_share"], 0.125);
  EXPECT_EQ(json[1]["predicted"]["draft_step"][1]["rows"], 4);
  EXPECT_EQ(json[1]["predicted"]["draft_step"][1]["ms"], 3.0);
  EXPECT_EQ(
      SummaryTable(summaries),
      "method  window  tokens/s  speed-up  acceptance  accepted  target    "
      "draft    predicted  of pre-    closed\n"
      "                          over ar   rate        length    waiting   "
      "waiting  tokens/s   dicted     law\n"
      "ar           -       2.0      1.00           -      2.50     20.0%     "
      "   -          -          -       -\n"
      "sd:4         4       4.0      2.00       75.0%      2.50     20.0%    "
      "25.0%        2.5     160.0%    1.69\n");
  // Rows that cost are beyond the law.
  prediction.target_step = StepTimes({{1, 10e6}, {2, 12e6}});
  AddPredictions(run.plan, {std::nullopt, prediction}, &summaries);
  EXPECT_THAT(SummaryTable(summaries), HasSubstr("160.0%       -\n"));
}

TEST(ReportJsonTest, HasTheDocumentedFields) {
  SmallBench run;
  const auto methods = SummariesJson(Summarize(run.plan, run.result));
  std::vector<std::string> keys;
  for (const auto& item : methods[1].items()) keys.push_back(item.key());
  EXPECT_THAT(
      keys,
      ::testing::ElementsAre(
          "name", "method", "window", "requested_window", "policy",
          "tokens_per_second", "tokens_per_second_repeats", "speedup",
          "acceptance_rate", "mean_accepted_length", "draft_wait_share",
          "target_wait_share", "target_wait_after_miss_share", "alpha",
          "cost_ratio", "law_speedup", "predicted", "step_gap_us",
          "degraded_rounds", "rounds", "drafted", "accepted", "rows_verified",
          "rows_used", "ranks", "hit_rate", "suffix_proposed",
          "suffix_accepted", "ttft_s", "inter_token_s"));
  EXPECT_EQ(methods[1]["speedup"], 2.0);
  EXPECT_EQ(methods[0]["rows_verified"], nullptr);
  EXPECT_EQ(methods[1]["rows_used"], 6);
  const auto requests = RequestsJson(run.plan, run.result);
  ASSERT_EQ(requests.size(), 12);
  EXPECT_EQ(requests[0]["prompt"], "p0");
  EXPECT_EQ(requests[0]["name"], "ar");
  EXPECT_EQ(requests[0]["completion_tokens"], 3);
  EXPECT_EQ(requests[0]["ranks"].size(), 0u);
  EXPECT_EQ(requests[11]["ranks"].size(), 9u);
  EXPECT_EQ(requests[0]["prepared"], 0u);
  EXPECT_EQ(requests[3]["prepared"], 1u);
  EXPECT_EQ(requests[11]["prepared"], 0u);
  EXPECT_EQ(requests[0]["suffix_proposed"], 0u);
  EXPECT_EQ(requests[11]["suffix_proposed"], 5u);
  EXPECT_EQ(requests[11]["suffix_accepted"], 2u);
}

}  // namespace
}  // namespace nacre::tools
