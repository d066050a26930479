#include "tools/calibrate/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/files.h"
#include "tools/cluster/temporary_folder.h"
#include "worker/recording/hidden_file.h"

namespace nacre::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FeatureLine Line(int prompt, uint64_t session, int position, int32_t token,
                 std::optional<bool> accepted) {
  FeatureLine line;
  line.request = RecordingId(prompt);
  line.session = session;
  line.position = position;
  line.token = token;
  line.accepted = accepted;
  return line;
}

std::vector<int> Positions(const Recording& recording) {
  std::vector<int> positions;
  for (const RecordedToken* token : recording.TokensOf({0})) {
    positions.push_back(token->line.position);
  }
  return positions;
}

// States of one number each.
HiddenStates States(const std::vector<float>& values) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/states";
  {
    const auto file = worker::HiddenFile::Create(path, 1);
    EXPECT_TRUE(file.ok()) << file.status();
    for (const float value : values) (*file)->Append({value});
  }
  return *HiddenStates::Parse(path, ReadFile(path).value_or(""));
}

HiddenStates ZeroAndOne() { return States({0.0f, 1.0f}); }

// Each run leaves out what the other has.
TEST(RecordingTest, RunsFillEachOthersGaps) {
  Recording recording({.max_tokens = {6}});
  EXPECT_THAT(recording.Incomplete(), ElementsAre(0));
  const std::map<int, std::vector<int32_t>> answers = {
      {0, {10, 11, 12, 13, 14, 15}}};
  ASSERT_TRUE(recording
                  .Add({Line(0, 1, 0, 10, true), Line(0, 1, 1, 99, false),
                        Line(0, 1, 3, 13, std::nullopt)},
                       nullptr, answers)
                  .ok());
  EXPECT_THAT(recording.Incomplete(), ElementsAre(0));
  EXPECT_EQ(recording.recorded(), 3u);
  // The last of max_tokens is never drafted.
  EXPECT_EQ(recording.wanted(), 5u);
  ASSERT_TRUE(recording
                  .Add({Line(0, 2, 1, 99, false), Line(0, 2, 2, 12, true),
                        Line(0, 2, 4, 14, true)},
                       nullptr, answers)
                  .ok());
  EXPECT_THAT(recording.Incomplete(), IsEmpty());
  EXPECT_THAT(Positions(recording), ElementsAre(0, 1, 2, 3, 4));
  std::vector<bool> accepted;
  for (const RecordedToken* token : recording.TokensOf({0})) {
    accepted.push_back(token->accepted);
    EXPECT_EQ(
        token->line.session,
        token->line.position % 2 == 0 && token->line.position > 0 ? 2u : 1u);
  }
  EXPECT_THAT(accepted, ElementsAre(true, false, true, true, true));
}

// An answer that ends by itself is drafted to its end.
TEST(RecordingTest, ShortAnswersAreWantedWhole) {
  Recording recording({.max_tokens = {6, 6}});
  ASSERT_TRUE(recording.Add({}, nullptr, {{0, {1, 2}}, {1, {}}}).ok());
  EXPECT_EQ(recording.wanted(), 2u);
  EXPECT_THAT(recording.Incomplete(), ElementsAre(0));
}

// After the first wrong token of a chunk whose verdict did not come, and
// after the end of the answer, nothing is known.
TEST(RecordingTest, WhatIsNoContinuationIsLeftOut) {
  Recording recording({.max_tokens = {9}});
  ASSERT_TRUE(
      recording
          .Add(
              {Line(0, 1, 0, 10, std::nullopt), Line(0, 1, 1, 99, std::nullopt),
               Line(0, 1, 2, 12, std::nullopt), Line(0, 2, 3, 13, std::nullopt),
               Line(0, 2, 4, 14, std::nullopt)},
              nullptr, {{0, {10, 11, 12, 13}}})
          .ok());
  EXPECT_THAT(Positions(recording), ElementsAre(0, 1, 3));
}

TEST(RecordingTest, StatesAreTakenFromTheRunThatHasThem) {
  const HiddenStates states = ZeroAndOne();
  Recording recording({.max_tokens = {4}, .needs = StateNeeds::kFed});
  const std::map<int, std::vector<int32_t>> answers = {{0, {10, 11, 12, 13}}};
  FeatureLine fed = Line(0, 1, 0, 10, true);
  fed.fed = 1;
  ASSERT_TRUE(
      recording.Add({fed, Line(0, 1, 1, 11, true)}, &states, answers).ok());
  // Nothing is fed after position 2, the last that is drafted.
  EXPECT_EQ(recording.wanted(), 2u);
  EXPECT_THAT(Positions(recording), ElementsAre(0));
  fed = Line(0, 2, 1, 11, true);
  fed.fed = 0;
  ASSERT_TRUE(recording.Add({fed}, &states, answers).ok());
  EXPECT_THAT(recording.Incomplete(), IsEmpty());
  EXPECT_THAT(recording.TokensOf({0})[0]->fed_state, ElementsAre(1.0f));
  EXPECT_THAT(recording.TokensOf({0})[1]->fed_state, ElementsAre(0.0f));
}

// With the target's states 0 to 3, of the tokens at those positions, each token
// once for each length of the chunk that right tokens before it allow.
TEST(RecordingTest, StepsAreTheWaysInWhichATokenMayBeDrafted) {
  const HiddenStates draft = ZeroAndOne();
  const HiddenStates target = States({10.0f, 11.0f, 12.0f, 13.0f});
  Recording recording({.max_tokens = {5}, .needs = StateNeeds::kRowAndTarget});
  const std::map<int, std::vector<int32_t>> answers = {{0, {5, 6, 7, 8, 9}}};
  std::vector<FeatureLine> lines = {
      Line(0, 1, 0, 5, true), Line(0, 1, 1, 99, false), Line(0, 1, 2, 7, true),
      Line(0, 1, 3, 8, true)};
  for (FeatureLine& line : lines) line.row = line.position == 3 ? 1 : 0;
  std::vector<StateLine> states;
  for (int i = 0; i < 3; ++i) {
    states.push_back({RecordingId(0), i, static_cast<uint64_t>(i)});
  }
  states[1].state.reset();  // it was lost
  ASSERT_TRUE(recording.Add(lines, &draft, answers, {states, &target}).ok());
  EXPECT_EQ(recording.wanted(), 4u);
  EXPECT_EQ(recording.recorded(), 3u) << "nothing is known before position 2";
  // Another run has it.
  states = {{RecordingId(0), 1, 1}};
  ASSERT_TRUE(recording.Add({}, &draft, answers, {states, &target}).ok());
  EXPECT_THAT(recording.Incomplete(), IsEmpty());
  std::vector<std::vector<float>> steps;
  for (const DraftedStep& step : recording.StepsOf({0}, 10)) {
    steps.push_back({static_cast<float>(step.token->line.position),
                     static_cast<float>(step.step), step.target_state[0],
                     step.token->row_state[0],
                     step.token->accepted ? 1.0f : 0.0f});
  }
  // Position 1 is not drafted after 0: no state comes before the first
  // verdict. Nothing is drafted after the wrong token at position 1.
  EXPECT_THAT(
      steps,
      ElementsAre(ElementsAre(1, 0, 10, 0, 0), ElementsAre(2, 0, 11, 0, 1),
                  ElementsAre(3, 0, 12, 1, 1), ElementsAre(3, 1, 11, 1, 1)));
  EXPECT_THAT(recording.StepsOf({0}, 1), ::testing::SizeIs(3));
}

TEST(RecordingTest, TargetStatesThatCannotBeAreErrors) {
  const HiddenStates target = States({10.0f});
  Recording recording({.max_tokens = {5}, .needs = StateNeeds::kRowAndTarget});
  const std::map<int, std::vector<int32_t>> answers = {{0, {5, 6}}};
  const std::vector<StateLine> behind = {{RecordingId(0), 0, 1}};
  EXPECT_THAT(
      std::string(
          recording.Add({}, nullptr, answers, {behind, &target}).message()),
      HasSubstr("hidden state 1 of 1"));
  const std::vector<StateLine> other = {{"x", 0, 0}};
  EXPECT_THAT(
      std::string(
          recording.Add({}, nullptr, answers, {other, &target}).message()),
      HasSubstr("\"x\" was recorded, which was not made"));
}

TEST(RecordingTest, ContradictionsAreErrors) {
  const HiddenStates states = ZeroAndOne();
  const auto error = [&](FeatureLine line, absl::StatusCode code) {
    Recording recording({.max_tokens = {4}});
    const absl::Status status = recording.Add({line}, &states, {{0, {10, 11}}});
    EXPECT_EQ(status.code(), code);
    return std::string(status.message());
  };
  EXPECT_THAT(
      error(Line(0, 1, 1, 12, true), absl::StatusCode::kDataLoss),
      HasSubstr("token 12 was recorded as accepted, the answer has 11"));
  EXPECT_THAT(error(Line(0, 1, 1, 11, false), absl::StatusCode::kDataLoss),
              HasSubstr("recorded as rejected"));
  EXPECT_THAT(
      error(Line(3, 1, 1, 11, true), absl::StatusCode::kInvalidArgument),
      HasSubstr("\"calibrate-3\" was recorded, which was not made"));
  FeatureLine behind = Line(0, 1, 1, 11, true);
  behind.fed = 2;
  EXPECT_THAT(error(behind, absl::StatusCode::kInvalidArgument),
              HasSubstr("hidden state 2 of 2"));
  Recording recording({.max_tokens = {4}});
  ASSERT_TRUE(recording.Add({}, nullptr, {{0, {1, 2}}}).ok());
  EXPECT_EQ(recording.Add({}, nullptr, {{0, {1, 3}}}).code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace nacre::tools
