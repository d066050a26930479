#include "tools/calibrate/learn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <variant>
#include <vector>

namespace nacre::tools {
namespace {

using speculation::PolicyKind;

constexpr int kPrompts = 6;
constexpr int kTokens = 40;

// Every third token of each prompt is rejected, and its row says so.
Recording MakeRecording(bool with_rejections) {
  Recording recording({.max_tokens = std::vector<int>(kPrompts, kTokens + 1)});
  std::map<int, std::vector<int32_t>> answers;
  std::vector<FeatureLine> lines;
  for (int prompt = 0; prompt < kPrompts; ++prompt) {
    answers[prompt] = std::vector<int32_t>(kTokens, 1);
    for (int position = 0; position < kTokens; ++position) {
      const bool rejected = with_rejections && position % 3 == 2;
      FeatureLine line;
      line.request = RecordingId(prompt);
      line.session = 1;
      line.position = position;
      line.token = rejected ? 2 : 1;
      line.top[0] = rejected ? 0.3f : 0.9f;
      line.entropy = rejected ? 2.0f : 0.5f;
      line.accepted = !rejected;
      lines.push_back(line);
    }
  }
  EXPECT_TRUE(recording.Add(lines, nullptr, answers).ok());
  return recording;
}

TEST(LearnTest, SaysHowGoodItIs) {
  const PromptSplit split = {{0, 1, 2, 3}, {4}, {5}};
  TrainingOptions options;
  options.width = 8;
  options.max_epochs = 100;
  options.learning_rate = 1e-2;
  const auto learnt =
      Learn(PolicyKind::kDisco, MakeRecording(true), split, options);
  ASSERT_TRUE(learnt.ok()) << learnt.status();
  EXPECT_TRUE(
      std::holds_alternative<speculation::DiscoWeights>(learnt->weights));
  EXPECT_EQ(learnt->report["training_tokens"], 4 * kTokens);
  EXPECT_EQ(learnt->report["recorded_tokens"], kPrompts * kTokens);
  EXPECT_EQ(learnt->report["answer_tokens"], kPrompts * kTokens);
  EXPECT_EQ(learnt->report["test"]["tokens"], kTokens);
  EXPECT_EQ(learnt->report["test"]["f1"], 1.0);
  EXPECT_LT(learnt->report["test"]["f1_of_all"], 0.9);
  EXPECT_LT(learnt->report["test"]["calibration_error"], 0.1);
  EXPECT_THAT(learnt->summary, ::testing::HasSubstr("F1 1.000"));
}

TEST(LearnTest, OneKindOfOutcomeIsRefused) {
  const PromptSplit split = {{0, 1, 2, 3}, {4}, {5}};
  EXPECT_EQ(Learn(PolicyKind::kDisco, MakeRecording(false), split, {})
                .status()
                .code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace nacre::tools
