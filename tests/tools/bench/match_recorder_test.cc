#include "tools/bench/match_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace nacre::tools {
namespace {

using simulation::Guess;
using speculation::kBeyond;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kPrompt = 10;

struct Step {
  int rows;
  int matched;
  int length;  // committed after it, without the prompt
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

// Token i is 100 + i.
std::vector<uint32_t> Answer(int count) {
  std::vector<uint32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(100 + i);
  return ids;
}

// A step of a draft that showed these candidates for token `index`, with scores
// that fall by a half each.
v1::Span Drafted(int index, uint64_t start_ns,
                 const std::vector<uint32_t>& candidates) {
  v1::Span span;
  span.set_kind(v1::Span::KIND_DRAFT);
  span.set_start_ns(start_ns);
  span.set_length(kPrompt + index + 1);
  float score = 7;
  for (const uint32_t id : candidates) {
    v1::Candidate* candidate = span.add_candidates();
    candidate->set_token_id(id);
    candidate->set_score(score);
    score -= 0.5f;
  }
  return span;
}

v1::TraceLane* AddDraft(v1::Complete* complete,
                        const std::vector<v1::Span>& spans) {
  v1::TraceLane* lane = complete->add_trace();
  lane->set_role(v1::WORKER_ROLE_DRAFT);
  for (const v1::Span& span : spans) *lane->add_spans() = span;
  return lane;
}

TEST(MatchRecorderTest, FindsTheRankAmongWhatTheDraftShowedLast) {
  v1::Complete complete = Traced({{3, 1, 2}, {2, 0, 3}, {2, 0, 4}});
  AddDraft(&complete, {Drafted(0, 10, {100, 7}),
                       // After 100, and after a token that was wrong.
                       Drafted(1, 20, {8, 9, 101}), Drafted(2, 30, {102, 5}),
                       Drafted(2, 40, {6, 102}), Drafted(3, 50, {5, 6, 7})});
  MatchRecorder recorder(kPrompt, Answer(4));
  ASSERT_TRUE(recorder.Add(complete.trace()).ok());
  EXPECT_THAT(
      recorder.matches(),
      ElementsAre(Guess(1, {0, -0.5f}), Guess(3, {0, -0.5f, -1}),
                  Guess(2, {0, -0.5f}), Guess(kBeyond, {0, -0.5f, -1})));
}

TEST(MatchRecorderTest, ComparesDraftsOnOneClock) {
  v1::Complete complete = Traced({{2, 0, 1}});
  AddDraft(&complete, {Drafted(0, 1000, {7})})->set_clock_offset_ns(990);
  AddDraft(&complete, {Drafted(0, 20, {7, 100})})->set_clock_offset_ns(5);
  MatchRecorder recorder(kPrompt, Answer(1));
  ASSERT_TRUE(recorder.Add(complete.trace()).ok());
  EXPECT_THAT(recorder.matches(), ElementsAre(Guess(2, {0, -0.5f})));
}

TEST(MatchRecorderTest, ARunWithCandidatesTellsMoreThanOneWithout) {
  MatchRecorder recorder(kPrompt, Answer(1));
  v1::Complete complete = Traced({{2, 0, 1}});
  ASSERT_TRUE(recorder.Add(complete.trace()).ok());
  EXPECT_THAT(recorder.matches(), ElementsAre(Guess(kBeyond, {})));
  AddDraft(&complete, {Drafted(0, 10, {7, 100})});
  ASSERT_TRUE(recorder.Add(complete.trace()).ok());
  ASSERT_TRUE(recorder.Add(Traced({{2, 0, 1}}).trace()).ok());
  EXPECT_THAT(recorder.matches(), ElementsAre(Guess(2, {0, -0.5f})));
}

TEST(MatchRecorderTest, KnowsNothingBehindAScoreThatIsNone) {
  v1::Complete complete = Traced({{2, 0, 1}, {2, 0, 2}});
  AddDraft(&complete, {Drafted(0, 10, {7, 100}), Drafted(1, 20, {7, 101})});
  auto* spans = complete.mutable_trace(1)->mutable_spans();
  (*spans)[0].mutable_candidates(1)->set_score(-INFINITY);
  (*spans)[1].mutable_candidates(1)->set_score(-3e7f);
  MatchRecorder recorder(kPrompt, Answer(2));
  ASSERT_TRUE(recorder.Add(complete.trace()).ok());
  EXPECT_THAT(recorder.matches(),
              ElementsAre(Guess(kBeyond, {0}), Guess(2, {0, -1e6f})));
}

TEST(MatchRecorderTest, RefusesCandidatesThatTheVerdictContradicts) {
  v1::Complete complete = Traced({{2, 1, 2}});
  AddDraft(&complete, {Drafted(0, 10, {7, 100})});
  absl::Status status = MatchRecorder(kPrompt, Answer(2)).Add(complete.trace());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("token 0 matched, and has rank 2"));
  complete = Traced({{2, 0, 1}});
  AddDraft(&complete, {Drafted(0, 10, {100, 7})});
  status = MatchRecorder(kPrompt, Answer(2)).Add(complete.trace());
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("token 0 did not match, and has rank 1"));
  // None of them.
  complete = Traced({{2, 1, 2}});
  AddDraft(&complete, {Drafted(0, 10, {7, 8})});
  status = MatchRecorder(kPrompt, Answer(2)).Add(complete.trace());
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("token 0 matched, and has rank 9"));
  // Another rank than before.
  complete = Traced({{2, 0, 1}});
  AddDraft(&complete, {Drafted(0, 10, {100, 7})});
  MatchRecorder recorder(kPrompt, Answer(2));
  complete.mutable_trace()->RemoveLast();
  AddDraft(&complete, {Drafted(0, 10, {7, 100})});
  ASSERT_TRUE(recorder.Add(complete.trace()).ok());
  complete.mutable_trace()->RemoveLast();
  AddDraft(&complete, {Drafted(0, 10, {7, 8, 100})});
  status = recorder.Add(complete.trace());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("token 0 has rank 2 among the draft's candidates in "
                        "one run and 3 in another"));
}

TEST(MatchRecorderTest, TakesMatchingRowsAndTheFirstMismatch) {
  MatchRecorder recorder(kPrompt, Answer(6));
  EXPECT_EQ(recorder.first_open(), 0);
  // Two match, the third does not, what is after it counts for nothing; then
  // one that does not, and one of two that ends the answer.
  ASSERT_TRUE(
      recorder.Add(Traced({{5, 2, 3}, {5, 0, 4}, {3, 1, 6}}).trace()).ok());
  EXPECT_EQ(recorder.first_open(), std::nullopt);
  EXPECT_THAT(recorder.matches(),
              ElementsAre(true, true, false, false, true, false));
}

TEST(MatchRecorderTest, TheTokenBehindAWholeWindowStaysOpen) {
  MatchRecorder recorder(kPrompt, Answer(6));
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
  MatchRecorder recorder(kPrompt, Answer(3));
  ASSERT_TRUE(recorder.Add(Traced({{2, 0, 1}, {6, 2, 3}}).trace()).ok());
  EXPECT_EQ(recorder.first_open(), std::nullopt);
  EXPECT_THAT(recorder.matches(), ElementsAre(false, true, true));
}

TEST(MatchRecorderTest, AStepWithoutDraftTokensSaysNothing) {
  MatchRecorder recorder(kPrompt, Answer(2));
  ASSERT_TRUE(recorder.Add(Traced({{1, 0, 1}, {1, 0, 2}}).trace()).ok());
  EXPECT_EQ(recorder.first_open(), 0);
  EXPECT_TRUE(recorder.matches().empty());
}

TEST(MatchRecorderTest, LooksAtTheAnswerOnly) {
  MatchRecorder recorder(kPrompt, Answer(2));
  ASSERT_TRUE(recorder.Add(Traced({{9, 5, 6}, {9, 0, 7}}).trace()).ok());
  EXPECT_THAT(recorder.matches(), ElementsAre(true, true));
}

TEST(MatchRecorderTest, LooksAtStepsOfTargetsOnly) {
  v1::Complete complete = Traced({{3, 2, 3}});
  complete.mutable_trace(0)->mutable_spans(0)->set_kind(
      v1::Span::KIND_ROLLBACK);
  MatchRecorder recorder(kPrompt, Answer(3));
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
  MatchRecorder recorder(kPrompt, Answer(5));
  ASSERT_TRUE(recorder.Add(complete.trace()).ok());
  EXPECT_THAT(recorder.matches(), ElementsAre(true, true, false, true, false));
}

TEST(MatchRecorderTest, ASpanThatWasLostLeavesItsTokensOpen) {
  MatchRecorder recorder(kPrompt, Answer(9));
  // Between them, four tokens of the second are of a step unknown.
  ASSERT_TRUE(
      recorder.Add(Traced({{3, 1, 2}, {3, 1, 8}, {2, 0, 9}}).trace()).ok());
  EXPECT_EQ(recorder.first_open(), 2);
  ASSERT_TRUE(recorder.Add(Traced({{3, 1, 2}, {8, 6, 9}}).trace()).ok());
  EXPECT_EQ(recorder.first_open(), std::nullopt);
}

TEST(MatchRecorderTest, RefusesADraftThatChangesItsMind) {
  MatchRecorder recorder(kPrompt, Answer(3));
  ASSERT_TRUE(recorder.Add(Traced({{3, 1, 2}}).trace()).ok());
  const absl::Status status = recorder.Add(Traced({{3, 2, 3}}).trace());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("token 1 matched"));
}

}  // namespace
}  // namespace nacre::tools
