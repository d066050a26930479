#include "speculation/policies/make_policy.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "speculation/pipeline.h"
#include "speculation/policies/policy_spec.h"

namespace nacre::speculation {
namespace {

using ::testing::HasSubstr;

PolicySpec Parse(const std::string& text) {
  const auto spec = ParsePolicySpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

PolicyCalibration Calibration(const std::string& defaults) {
  PolicyCalibration file;
  file.defaults = Parse(defaults);
  switch (file.defaults.kind()) {
    case PolicyKind::kDisco:
      file.disco = {std::vector<float>(kDiscoInputs), {0.0f}, {0.0f}, 0.0f};
      break;
    case PolicyKind::kCaliTs:
      file.cali_ts =
          CaliTsScorer({1, 2, std::vector<float>(CaliTsModel::kSteps),
                        std::vector<float>(6)});
      break;
    case PolicyKind::kSpecDecPlusPlus:
      file.head = {3, std::vector<float>(4), std::vector<float>(2),
                   std::vector<float>(4), std::vector<float>(2)};
      break;
    default:
      break;
  }
  return file;
}

int ChunkLength(DraftLength& length) {
  int drafted = 1;
  while (length.Decide({}) == LengthDecision::kContinue) ++drafted;
  return drafted;
}

TEST(MakePolicy, ThePlanDecidesAloneWithoutAPolicyOfItsOwn) {
  for (const char* text : {"", "constant", "load"}) {
    const auto made = MakePolicy(Parse(text), {});
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(*made, nullptr);
  }
}

// The table and the policies agree, whichever way they are asked.
TEST(MakePolicy, TheTableSaysWhatLooksAtTheToken) {
  for (const PolicyInfo& info : AllPolicies()) {
    std::string text = info.name;
    if (info.kind == PolicyKind::kConstant) text += ":n=4";
    if (info.kind == PolicyKind::kOptimalStatic) text += ":gamma=4";
    const PolicyCalibration file = Calibration(info.name);
    PolicyInputs inputs;
    inputs.hidden_size = 2;
    if (info.file != PolicyFile::kNone) inputs.file = &file;
    const auto made = MakePolicy(Parse(text), inputs);
    ASSERT_TRUE(made.ok()) << made.status();
    if (*made == nullptr) continue;
    EXPECT_EQ((*made)->looks_at_token(), info.looks_at_token) << text;
  }
}

TEST(MakePolicy, LengthsComeFromTheRequestThenTheFile) {
  EXPECT_EQ(ChunkLength(**MakePolicy(Parse("constant:n=6"), {})), 6);
  EXPECT_EQ(ChunkLength(**MakePolicy(Parse("optimal-static:gamma=9"), {})), 9);
  const PolicyCalibration file = Calibration("optimal-static:gamma=3");
  EXPECT_EQ(ChunkLength(**MakePolicy(Parse("optimal-static"), {.file = &file})),
            3);
  EXPECT_EQ(ChunkLength(
                **MakePolicy(Parse("optimal-static:gamma=9"), {.file = &file})),
            9);
  EXPECT_EQ(ChunkLength(**MakePolicy(Parse("heuristic:start=8"), {})), 8);
  // A sure draft is capped.
  EXPECT_EQ(ChunkLength(**MakePolicy(Parse("svip:max=7"), {})), 7);
  const PolicyCalibration disco = Calibration("disco:threshold=0.4,max=5");
  // Its zero weights say 0.5 of any row.
  const auto made = MakePolicy(Parse("disco"), {.file = &disco});
  ASSERT_TRUE(made.ok());
  const std::vector<float> top(kTopProbabilities);
  DraftRow row;
  row.top_probabilities = top;
  int drafted = 1;
  while ((*made)->Decide(row) == LengthDecision::kContinue) ++drafted;
  EXPECT_EQ(drafted, 5);
}

TEST(MakePolicy, AMissingFileIsAFailedPrecondition) {
  for (const char* text : {"disco", "specdec++", "optimal-static"}) {
    const auto made = MakePolicy(Parse(text), {});
    EXPECT_EQ(made.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(made.status().message()),
                HasSubstr(std::string("--policy-file ") + text + "=DIR"));
  }
  EXPECT_TRUE(MakePolicy(Parse("cali-ts"), {}).ok());  // without its model
}

// What it cannot use it does not ask the draft for.
TEST(MakePolicy, CaliTsReadsHiddenStatesOnlyWhereTheTargetsComeToo) {
  const PolicyCalibration file = Calibration("cali-ts");
  PolicyInputs inputs;
  inputs.file = &file;
  inputs.hidden_size = 2;
  EXPECT_FALSE((*MakePolicy(Parse("cali-ts"), inputs))->needs().draft_hidden);
  inputs.has_target_hidden = true;
  EXPECT_TRUE((*MakePolicy(Parse("cali-ts"), inputs))->needs().draft_hidden);
}

TEST(MakePolicy, AFileForOtherHiddenStatesIsRefused) {
  for (const char* text : {"specdec++", "cali-ts"}) {
    const PolicyCalibration file = Calibration(text);
    PolicyInputs inputs;
    inputs.file = &file;
    inputs.has_target_hidden = true;
    inputs.hidden_size = 2;
    EXPECT_TRUE(MakePolicy(Parse(text), inputs).ok());
    inputs.hidden_size = 64;
    const auto made = MakePolicy(Parse(text), inputs);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(made.status().message()),
                HasSubstr("hidden states of 2 values, the draft's have 64"));
  }
}

}  // namespace
}  // namespace nacre::speculation
