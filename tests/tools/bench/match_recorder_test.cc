#include "tools/bench/match_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nacre::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kPrompt = 10;

struct Step {
  int rows;
  int matched;
  int length;  // committed behind it, without the prompt
};

v1::Complete Traced(const std::vector<Step>& steps) {
  v1::Complete complete;
  v1::TraceLane* lane = complete.add_trace();
  lane->set_role(v1::WORKER_ROLE_TARGET);
  for (const Step& step : steps) {
    v1::Span* span = lane->add_spans();
    span->set_kind(v1::Span::KIND_VERIFY);
    span->set_rows(step.rows);
    span->set_matched(step.matched);
    span->set_length(kPrompt + step.length);
  }
  return complete;
}

TEST(MatchRecorderTest, TakesMatchingRowsAndTheFirstMismatch) {
  MatchRecorder recorder(kPrompt, 6);
  EXPECT_EQ(recorder.first_open(), 0);
  // Two match, the third does not, what is behind it counts for nothing; then
  // one that does not, and one of two that ends the answer.
  ASSERT_TRUE(
      recorder.Add(Traced({{5, 2, 3}, {5, 0, 4}, {3, 1, 6}}).trace()).ok());
  EXPECT_EQ(recorder.first_open(), std::nullopt);
  EXPECT_THAT(recorder.matches(),
              ElementsAre(true, true, false, false, true, false));
}

TEST(MatchRecorderTest, TheTokenBehindAWholeWindowStaysOpen) {
  MatchRecorder recorder(kPrompt, 6);
  ASSERT_TRUE(recorder.Add(Traced({{3, 2, 3}, {3, 2, 6}}).trace()).ok());
  EXPECT_EQ(recorder.first_open(), 2);
  EXPECT_EQ(recorder.num_open(), 2);
  EXPECT_THAT(recorder.matches(), ElementsAre(true, true));
  // Another window fills it; the last token is still open.
  ASSERT_TRUE(recorder.Add(Traced({{4, 3, 4}, {2, 1, 6}}).trace()).ok());
  EXPECT_EQ(recorder.first_open(), 5);
  EXPECT_THAT(recorder.matches(), ElementsAre(true, true, true, true, true));
}

TEST(MatchRecorderTest, AMatchingTokenThatEndsTheAnswerIsOneOfItsRows) {
  MatchRecorder recorder(kPrompt, 3);
  ASSERT_TRUE(recorder.Add(Traced({{2, 0, 1}, {6, 2, 3}}).trace()).ok());
  EXPECT_EQ(recorder.first_open(), std::nullopt);
  EXPECT_THAT(recorder.matches(), ElementsAre(false, true, true));
}

TEST(MatchRecorderTest, AStepWithoutDraftTokensSaysNothing) {
  MatchRecorder recorder(kPrompt, 2);
  ASSERT_TRUE(recorder.Add(Traced({{1, 0, 1}, {1, 0, 2}}).trace()).ok());
  EXPECT_EQ(recorder.first_open(), 0);
  EXPECT_TRUE(recorder.matches().empty());
}

TEST(MatchRecorderTest, LooksAtTheAnswerOnly) {
  MatchRecorder recorder(kPrompt, 2);
  ASSERT_TRUE(recorder.Add(Traced({{9, 5, 6}, {9, 0, 7}}).trace()).ok());
  EXPECT_THAT(recorder.matches(), ElementsAre(true, true));
}

TEST(MatchRecorderTest, LooksAtStepsOfTargetsOnly) {
  v1::Complete complete = Traced({{3, 2, 3}});
  complete.mutable_trace(0)->mutable_spans(0)->set_kind(
      v1::Span::KIND_ROLLBACK);
  MatchRecorder recorder(kPrompt, 3);
  ASSERT_TRUE(recorder.Add(complete.trace()).ok());
  EXPECT_EQ(recorder.first_open(), 0);
  complete = Traced({{3, 2, 3}});
  complete.mutable_trace(0)->set_role(v1::WORKER_ROLE_DRAFT);
  ASSERT_TRUE(recorder.Add(complete.trace()).ok());
  EXPECT_EQ(recorder.first_open(), 0);
}

TEST(MatchRecorderTest, FollowsARequestToItsNextTarget) {
  // The lane of the target that it ended on comes first.
  v1::Complete complete = Traced({{3, 1, 5}});
  const v1::Complete before = Traced({{4, 2, 3}});
  *complete.add_trace() = before.trace(0);
  MatchRecorder recorder(kPrompt, 5);
  ASSERT_TRUE(recorder.Add(complete.trace()).ok());
  EXPECT_THAT(recorder.matches(), ElementsAre(true, true, false, true, false));
}

TEST(MatchRecorderTest, ASpanThatWasLostLeavesItsTokensOpen) {
  MatchRecorder recorder(kPrompt, 9);
  // Between them, four tokens of the second are of a step unknown.
  ASSERT_TRUE(
      recorder.Add(Traced({{3, 1, 2}, {3, 1, 8}, {2, 0, 9}}).trace()).ok());
  EXPECT_EQ(recorder.first_open(), 2);
  ASSERT_TRUE(recorder.Add(Traced({{3, 1, 2}, {8, 6, 9}}).trace()).ok());
  EXPECT_EQ(recorder.first_open(), std::nullopt);
}

TEST(MatchRecorderTest, RefusesADraftThatChangesItsMind) {
  MatchRecorder recorder(kPrompt, 3);
  ASSERT_TRUE(recorder.Add(Traced({{3, 1, 2}}).trace()).ok());
  const absl::Status status = recorder.Add(Traced({{3, 2, 3}}).trace());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("token 1 matched"));
}

}  // namespace
}  // namespace nacre::tools
