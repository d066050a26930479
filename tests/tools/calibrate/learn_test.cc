#include "tools/calibrate/learn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "common/files.h"
#include "tools/cluster/temporary_folder.h"
#include "worker/recording/hidden_file.h"

namespace nacre::tools {
namespace {

using speculation::PolicyKind;

constexpr int kPrompts = 6;
constexpr int kTokens = 40;

// State 0 is that after a rejected token, state 1 after an accepted one.
HiddenStates TwoStates() {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/states";
  {
    const auto file = worker::HiddenFile::Create(path, 2);
    EXPECT_TRUE(file.ok()) << file.status();
    (*file)->Append({1.0f, -2.0f});
    (*file)->Append({1.0f, 2.0f});
  }
  return *HiddenStates::Parse(path, ReadFile(path).value_or(""));
}

// Every third token of each prompt is rejected, and its row and its state say
// so.
Recording MakeRecording(bool with_rejections,
                        StateNeeds needs = StateNeeds::kNone) {
  Recording recording(
      {.max_tokens = std::vector<int>(kPrompts, kTokens + 1), .needs = needs});
  std::map<int, std::vector<int32_t>> answers;
  std::vector<FeatureLine> lines;
  std::vector<StateLine> target;
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
      line.fed = rejected ? 0 : 1;
      line.row = line.fed;
      lines.push_back(line);
      target.push_back({line.request, position, 1});
    }
  }
  const HiddenStates states = TwoStates();
  EXPECT_TRUE(recording.Add(lines, &states, answers, {target, &states}).ok());
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

TEST(LearnTest, AHeadIsJudgedWithAndWithoutItsWeight) {
  const PromptSplit split = {{0, 1, 2, 3}, {4}, {5}};
  TrainingOptions options;
  options.max_epochs = 200;
  options.learning_rate = 1e-2;
  const auto learnt =
      Learn(PolicyKind::kSpecDecPlusPlus, MakeRecording(true, StateNeeds::kFed),
            split, options);
  ASSERT_TRUE(learnt.ok()) << learnt.status();
  const auto* head = std::get_if<speculation::AcceptanceHead>(&learnt->weights);
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->size(), 2u);
  // Nothing is fed after the last token that is drafted.
  EXPECT_EQ(learnt->report["training_tokens"], 4 * (kTokens - 1));
  EXPECT_EQ(learnt->report["test"]["f1"], 1.0);
  EXPECT_EQ(learnt->report["test_unweighted"]["f1"], 1.0);
  EXPECT_NE(learnt->report["test"]["loss"],
            learnt->report["test_unweighted"]["loss"]);
  EXPECT_THAT(learnt->summary,
              ::testing::HasSubstr("with the weight of rejected"));
}

TEST(LearnTest, CaliTsLearnsFromBothModelsStates) {
  const PromptSplit split = {{0, 1, 2, 3}, {4}, {5}};
  TrainingOptions options;
  options.max_epochs = 100;
  options.learning_rate = 1e-2;
  const auto learnt =
      Learn(PolicyKind::kCaliTs, MakeRecording(true, StateNeeds::kRowAndTarget),
            split, options);
  ASSERT_TRUE(learnt.ok()) << learnt.status();
  const auto* model = std::get_if<speculation::CaliTsModel>(&learnt->weights);
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->target_size, 2);
  EXPECT_EQ(model->draft_size, 2);
  // Each token but the first at step 0, one of three at steps 1 and 2, too.
  EXPECT_GT(learnt->report["training_tokens"], 4 * (kTokens - 1));
  EXPECT_GT(learnt->report["test"]["f1"], 0.95);
  EXPECT_LT(learnt->report["test"]["f1_of_all"], 0.9);
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
