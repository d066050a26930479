#include "tools/calibrate/calibration_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tests/tools/run_command.h"
#include "tools/calibrate/record.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::tools {
namespace {

using speculation::PolicyKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class CalibrationPlanTest : public ::testing::Test {
 protected:
  CalibrationPlanTest() : prompts_(folder_.path() + "/prompts.jsonl") {
    std::ofstream file(prompts_);
    for (int i = 0; i < 20; ++i) {
      file << "{\"prompt\": \"p" << i << "\"";
      if (i == 4) file << ", \"max_tokens\": 9";
      file << "}\n";
    }
  }

  // Of flags that are all right, and more after them.
  absl::StatusOr<CalibrationPlan> Plan(const std::string& policy,
                                       const std::vector<std::string>& more) {
    std::vector<std::string> args = {
        "--policy", policy,          "--prompts", prompts_,         "--out",
        "o",        "--draft-model", "d",         "--target-model", "t"};
    args.insert(args.end(), more.begin(), more.end());
    CalibrationFlags flags;
    FlagSet flag_set("nacre calibrate", "");
    flags.Register(&flag_set);
    const absl::Status status = flag_set.Parse(args);
    if (!status.ok()) return status;
    flags.cluster.HandOn(flag_set);
    return BuildCalibrationPlan(flags);
  }
  std::string Refusal(const std::vector<std::string>& more) {
    const auto plan = Plan("disco", more);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument)
        << more[0];
    return std::string(plan.status().message());
  }

  const TemporaryFolder folder_;
  const std::string prompts_;
};

TEST_F(CalibrationPlanTest, HasWhatWasAskedFor) {
  const auto plan =
      Plan("disco", {"--thresholds", "0.25,0.5", "--caps", "3,9", "--width",
                     "7", "--seed", "12", "--max-tokens", "40", "--repeat", "2",
                     "--window=11", "--tune-prompts", "2", "--temperature",
                     "0.5", "--timeout", "3"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kind, PolicyKind::kDisco);
  EXPECT_THAT(plan->thresholds, ElementsAre(0.25, 0.5));
  EXPECT_THAT(plan->caps, ElementsAre(3, 9));
  EXPECT_EQ(plan->training.width, 7);
  EXPECT_EQ(plan->training.seed, 12u);
  EXPECT_EQ(plan->request.sampling().seed(), 12u);
  EXPECT_EQ(plan->request.sampling().temperature(), 0.5f);
  EXPECT_EQ(plan->window, 11);
  EXPECT_EQ(plan->repeat, 2);
  EXPECT_EQ(plan->timeout, absl::Seconds(3));
  EXPECT_THAT(plan->cluster.more_args.worker,
              ElementsAre("--prefix-cache=off"));
  ASSERT_THAT(plan->prompts, SizeIs(20));
  EXPECT_EQ(plan->prompts[0].max_tokens, 40u);
  EXPECT_EQ(plan->prompts[4].max_tokens, 9u);
  EXPECT_THAT(plan->split.training, SizeIs(14));
  EXPECT_THAT(plan->TuningPrompts(), SizeIs(2));
  EXPECT_EQ(plan->TuningPrompts()[0], plan->split.validation[0]);
  EXPECT_THAT(plan->TestPrompts(), SizeIs(2));
  EXPECT_THAT(Plan("disco", {"--limit", "5"})->prompts, SizeIs(5));
}

TEST_F(CalibrationPlanTest, WhatIsLearnedIsTunedOnOtherPrompts) {
  const auto head = Plan("specdec++", {"--learning-rate", "0.01"});
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_TRUE(head->is_learned());
  EXPECT_EQ(head->state_needs(), StateNeeds::kFed);
  EXPECT_EQ(head->TuningPrompts(), head->split.validation);
  EXPECT_EQ(head->thresholds.back(), 0.99);
  EXPECT_EQ(head->training.learning_rate, 0.01);
  EXPECT_EQ(PolicyText(head->kind, 0.9, 8), "specdec++:threshold=0.9,max=8");
  EXPECT_EQ(Plan("specdec++", {})->training.learning_rate, 1e-4);
  EXPECT_EQ(Plan("disco", {})->training.learning_rate, 1e-3);
  EXPECT_EQ(Plan("disco", {})->state_needs(), StateNeeds::kNone);
  EXPECT_FALSE(Plan("svip", {})->is_learned());
}

// Each run of a recording has other chunks, none longer than may be.
TEST_F(CalibrationPlanTest, RecordingRunsDiffer) {
  for (const int window : {1, 6, 7, 16, 64}) {
    const auto plan = Plan("disco", {"--window", std::to_string(window)});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(RecordingWindow(*plan, 0), window);
    std::set<int> windows;
    for (int run = 0; run < kMaxRecordingRuns; ++run) {
      windows.insert(RecordingWindow(*plan, run));
    }
    EXPECT_THAT(windows, SizeIs(kMaxRecordingRuns));
    EXPECT_GE(*windows.begin(), 1);
    EXPECT_LE(*windows.rbegin(), 64);
  }
}

// Where nothing is trained, all prompts but the test's may be tuned on.
TEST_F(CalibrationPlanTest, SvipAndGammaTuneOnMore) {
  const auto svip = Plan("svip", {"--tune-prompts", "100"});
  ASSERT_TRUE(svip.ok()) << svip.status();
  EXPECT_THAT(svip->TuningPrompts(), SizeIs(17));
  EXPECT_THAT(svip->TestPrompts(), SizeIs(3));
  EXPECT_EQ(PolicyText(svip->kind, 0.4, 8), "svip:h=0.4,max=8");
  EXPECT_EQ(PolicyText(PolicyKind::kDisco, 0.4, 8),
            "disco:threshold=0.4,max=8");
  EXPECT_EQ(PolicyText(PolicyKind::kCaliTs, 0.1, 8),
            "cali-ts:sigma-model=0.1,max=8");
  const auto cali_ts = Plan("cali-ts", {});
  ASSERT_TRUE(cali_ts.ok()) << cali_ts.status();
  EXPECT_TRUE(cali_ts->is_learned());
  EXPECT_EQ(cali_ts->state_needs(), StateNeeds::kRowAndTarget);
  const auto gamma = Plan("optimal-static", {});
  ASSERT_TRUE(gamma.ok()) << gamma.status();
  EXPECT_TRUE(gamma->thresholds.empty());
}

TEST_F(CalibrationPlanTest, WhatCannotBeCalibratedIsRefused) {
  for (const char* policy : {"constant", "beta-ts", "sivp"}) {
    const auto plan = Plan(policy, {});
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(plan.status().message()),
                HasSubstr("there are: disco svip specdec++ cali-ts "
                          "optimal-static"));
  }
  EXPECT_THAT(std::string(Plan("", {}).status().message()),
              HasSubstr("--policy is needed"));
}

TEST_F(CalibrationPlanTest, BadNumbersAreNamed) {
  EXPECT_THAT(Refusal({"--thresholds", "0.5,x"}), HasSubstr("\"x\""));
  EXPECT_THAT(Refusal({"--thresholds", "0.5,0.5"}), HasSubstr("there twice"));
  EXPECT_THAT(Refusal({"--thresholds", "nan"}), HasSubstr("no number"));
  EXPECT_THAT(Refusal({"--thresholds", "1.5"}),
              HasSubstr("threshold is \"1.5\", must be a number in [0, 1]"));
  EXPECT_THAT(Refusal({"--caps", "0"}), HasSubstr("1..64"));
  EXPECT_THAT(Refusal({"--caps", "65"}), HasSubstr("\"65\""));
  EXPECT_THAT(Refusal({"--caps", "4,4"}), HasSubstr("there twice"));
  EXPECT_THAT(Refusal({"--window", "65"}), HasSubstr("65 is not in 1..64"));
  EXPECT_THAT(Refusal({"--width", "0"}), HasSubstr("--width: 0"));
  EXPECT_THAT(Refusal({"--epochs", "-1"}), HasSubstr("--epochs: -1"));
  EXPECT_THAT(Refusal({"--repeat", "0"}), HasSubstr("--repeat: 0"));
  EXPECT_THAT(Refusal({"--tune-prompts", "0"}), HasSubstr("--tune-prompts"));
  EXPECT_THAT(Refusal({"--max-tokens", "0"}), HasSubstr("--max-tokens: 0"));
  EXPECT_THAT(Refusal({"--temperature", "-1"}), HasSubstr("-1 is not 0"));
  EXPECT_THAT(Refusal({"--temperature", "nan"}), HasSubstr("--temperature"));
  EXPECT_THAT(Refusal({"--learning-rate", "-1"}), HasSubstr("not in [0, 1]"));
  EXPECT_THAT(Refusal({"--learning-rate", "nan"}),
              HasSubstr("--learning-rate"));
  EXPECT_THAT(Refusal({"--timeout", "0"}), HasSubstr("--timeout"));
  EXPECT_THAT(Refusal({"--limit", "2"}), HasSubstr("2 prompts are too few"));
  EXPECT_THAT(Refusal({"--drafts", "2"}), HasSubstr("exactly 1"));
  EXPECT_THAT(Refusal({"--policy-file", "svip=d"}),
              HasSubstr("makes the file"));
  EXPECT_THAT(Refusal({"--target-model", ""}), HasSubstr("--target-model"));
  EXPECT_THAT(Refusal({"--out", ""}), HasSubstr("--out are needed"));
}

TEST_F(CalibrationPlanTest, TheCommandSaysWhatIsWrong) {
  EXPECT_THAT(Nacre({"calibrate", "--help"}).out, HasSubstr("--thresholds"));
  const Outcome refused = Nacre({"calibrate", "--policy", "beta-ts"});
  EXPECT_EQ(refused.code, kExitUsage);
  EXPECT_THAT(refused.err, HasSubstr("nothing to calibrate"));
  // The models are looked at before anything is started.
  const Outcome missing =
      Nacre({"calibrate", "--policy", "disco", "--prompts", prompts_, "--out",
             folder_.path() + "/out", "--target-model", "/none",
             "--draft-model", "/none"});
  EXPECT_EQ(missing.code, kExitError);
  EXPECT_THAT(missing.err, HasSubstr("/none"));
}

}  // namespace
}  // namespace nacre::tools
