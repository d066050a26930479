// Which target a request runs on: of which kind, and where its prompt is
// cached.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/dispatch/dispatcher.h"
#include "tests/coordinator/dispatcher_fixture.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;
using ::testing::HasSubstr;

class PlacementTest : public DispatcherTest {
 protected:
  // Choices of one call, as the service starts them.
  std::vector<Run> StartChoices(RequestSpec request, int count) {
    request.num_choices = count;
    request.call = std::make_shared<CallPlacement>();
    std::vector<Run> runs;
    for (request.choice = 0; request.choice < count; ++request.choice) {
      runs.push_back(Start(request));
    }
    return runs;
  }
  static RequestSpec WithPrompt(const std::string& id,
                                std::vector<int32_t> prompt_ids) {
    RequestSpec request = Request(id);
    request.prompt_ids = std::move(prompt_ids);
    request.prefixes = PrefixesOf(request.prompt_ids);
    return request;
  }
  static RequestSpec Pinned(const std::string& id, const std::string& numerics,
                            int max_tokens = 30) {
    RequestSpec request = Request(id);
    request.max_tokens = max_tokens;
    request.numerics_id = numerics;
    return request;
  }
  absl::Status Refusal(RequestSpec request) {
    return dispatcher_
        .Start(std::move(request), std::make_shared<RecordingSink>())
        .status();
  }
  void End(const Worker& target, const Run& run, int prompt_length = 2) {
    Verdict(target, run.id, prompt_length, {'x'}, FinishReason::kLength);
    Closed(target, run.id);
  }
};

// ----------------------------------------------------------------- one kind

TEST_F(PlacementTest, AllChoicesOfACallRunOnOneKindOfTarget) {
  const Worker a = AddKind("t0", "a");
  const Worker b = AddKind("t1", "b");
  const Worker other_a = AddKind("t2", "a");
  StartChoices(Request("r"), 4);
  EXPECT_EQ(NumSessions(a), 2);
  EXPECT_EQ(NumSessions(b), 0);
  EXPECT_EQ(NumSessions(other_a), 2);
  // The least loaded target decides for the next call.
  StartChoices(Request("next"), 2);
  EXPECT_EQ(NumSessions(b), 2);
}

TEST_F(PlacementTest, AChoiceWaitsForItsKindEvenIfTheFirstHasEnded) {
  const Worker a = AddKind("t0", "a", 32);
  const Worker b = AddKind("t1", "b", 0);
  const Run filler = Start(Pinned("filler", "b"));
  RequestSpec request = Request("r");
  request.max_tokens = 30;
  const std::vector<Run> runs = StartChoices(request, 2);
  EXPECT_EQ(NumSessions(a), 1);
  EXPECT_EQ(NumSessions(b), 1);
  EXPECT_EQ(dispatcher_.queued().size(), 1u);
  End(b, filler);
  EXPECT_EQ(dispatcher_.queued().size(), 1u);
  Start("another");  // passes it
  EXPECT_EQ(NumSessions(b), 1);
  End(a, runs[0]);
  EXPECT_EQ(NumSessions(a), 1);
  End(a, runs[1]);
  EXPECT_EQ(runs[1].sink->completion()->token_ids.size(), 1u);
}

TEST_F(PlacementTest, AChoiceWhoseKindIsGoneEndsWithItsTimeInTheQueue) {
  const Worker a = AddKind("t0", "a", 32);
  RequestSpec request = Request("r");
  request.max_tokens = 30;
  const std::vector<Run> runs = StartChoices(request, 2);
  AddKind("t1", "b");
  dispatcher_.RemoveWorker(a.id);
  EXPECT_EQ(runs[1].sink->num_ends(), 0);
  now_ns_ += 60 * kSecond;
  dispatcher_.Tick();
  EXPECT_EQ(runs[1].sink->error().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(runs[1].sink->error().message()),
              HasSubstr("numerics_id \"a\""));
}

TEST_F(PlacementTest, AClientMayAskForOneKind) {
  const Worker a = AddKind("t0", "a");
  const Worker b = AddKind("t1", "b");
  for (int i = 0; i < 3; ++i) Start(Pinned(absl::StrCat("r", i), "b"));
  EXPECT_EQ(NumSessions(a), 0);
  EXPECT_EQ(NumSessions(b), 3);
  const absl::Status status = Refusal(Pinned("r", "c"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"c\""));
  EXPECT_THAT(std::string(status.message()), HasSubstr("have a, b"));
}

TEST_F(PlacementTest, AKindThatHangsOrHasJustLeftIsWaitedFor) {
  AddKind("t0", "a");
  const Worker b = AddKind("t1", "b");
  dispatcher_.DrainWorker(b.id);
  const Run waits = Start(Pinned("hangs", "b"));
  EXPECT_EQ(dispatcher_.queued().size(), 1u);
  dispatcher_.RemoveWorker(b.id);
  Start(Pinned("gone", "b"));
  EXPECT_EQ(dispatcher_.queued().size(), 2u);
  const Worker back = AddKind("t1", "b");
  EXPECT_EQ(NumSessions(back), 2);
  dispatcher_.RemoveWorker(back.id);
  now_ns_ += 60 * kSecond;
  EXPECT_EQ(Refusal(Pinned("late", "b")).code(),
            absl::StatusCode::kFailedPrecondition);
}

// A request that waits for one kind keeps none from another, even if passed.
TEST_F(PlacementTest, WhoWaitsForAFullKindKeepsNobodyFromAnother) {
  AddKind("t0", "a", 32);
  const Worker b = AddKind("t1", "b");
  Start(Pinned("first", "a"));
  Start(Pinned("waits", "a"));
  for (int i = 0; i < 2 * Admission::kMaxPasses; ++i) {
    const Run run = Start(absl::StrCat("r", i));
    EXPECT_EQ(NumSessions(b), 1);
    End(b, run);
  }
}

TEST_F(PlacementTest, AnAnswerNamesItsKind) {
  const Worker target = AddKind("t0", "a");
  const Run run = Start();
  Verdict(target, run.id, 2, {'x'});
  Verdict(target, run.id, 3, {'y'});
  ASSERT_EQ(run.sink->chunks().size(), 2u);
  EXPECT_EQ(run.sink->chunks()[0].numerics_id, "a");
  EXPECT_EQ(run.sink->chunks()[1].numerics_id, "");
}

// ----------------------------------------------------------------- prefixes

TEST_F(PlacementTest, ChoicesOfALongPromptRunWhereItIsComputed) {
  const Worker t0 = AddTarget("t0");
  const Worker t1 = AddTarget("t1");
  StartChoices(WithPrompt("r", std::vector<int32_t>(300, 7)), 4);
  EXPECT_EQ(NumSessions(t0), 4);
  EXPECT_EQ(NumSessions(t1), 0);
  // Up to four more than elsewhere; then the load decides, and both have it.
  StartChoices(WithPrompt("s", std::vector<int32_t>(300, 7)), 6);
  EXPECT_EQ(NumSessions(t0) + NumSessions(t1), 10);
  EXPECT_GE(NumSessions(t0), 3);
  EXPECT_GE(NumSessions(t1), 3);
}

TEST_F(PlacementTest, ShortPromptsAreSpread) {
  const Worker t0 = AddTarget("t0");
  const Worker t1 = AddTarget("t1");
  StartChoices(WithPrompt("r", std::vector<int32_t>(60, 7)), 4);
  EXPECT_EQ(NumSessions(t0), 2);
  EXPECT_EQ(NumSessions(t1), 2);
}

TEST_F(PlacementTest, ALongPromptIsWorthFourMoreSessionsThanElsewhere) {
  const Worker t0 = AddTarget("t0");
  const Worker t1 = AddTarget("t1");
  StartChoices(WithPrompt("r", std::vector<int32_t>(300, 7)), 6);
  EXPECT_EQ(NumSessions(t0), 5);
  EXPECT_EQ(NumSessions(t1), 1);
}

TEST_F(PlacementTest, TheFourMoreComeOnTopOfTheLoadElsewhere) {
  const Worker t0 = AddTarget("t0");
  const Worker t1 = AddTarget("t1");
  for (int i = 0; i < 6; ++i) Start(absl::StrCat("other", i));
  StartChoices(WithPrompt("r", std::vector<int32_t>(300, 7)), 4);
  EXPECT_EQ(NumSessions(t0), 3 + 4);
  EXPECT_EQ(NumSessions(t1), 3);
}

TEST_F(PlacementTest, AmongEquallyLoadedTargetsAShortBeginningDecides) {
  const Worker t0 = AddTarget("t0");
  const Worker t1 = AddTarget("t1");
  const std::vector<int32_t> prompt(40, 7);
  const Run other = Start("other");  // on t0
  const Run first = Start(WithPrompt("first", prompt));
  End(t0, other);
  End(t1, first, 40);
  Start(WithPrompt("second", prompt));
  EXPECT_EQ(NumSessions(t0), 0);
  EXPECT_EQ(NumSessions(t1), 1);
}

TEST_F(PlacementTest, ARequestGoesWhereItsBeginningIsCached) {
  const Worker t0 = AddTarget("t0");
  const Worker t1 = AddTarget("t1");
  const Run other = Start("other");  // on t0
  std::vector<int32_t> prompt(200, 7);
  const Run first = Start(WithPrompt("first", prompt));  // on t1
  EXPECT_EQ(NumSessions(t1), 1);
  End(t0, other);
  prompt.back() = 8;
  Start(WithPrompt("second", prompt));
  EXPECT_EQ(NumSessions(t1), 2);
  // A target that has left, or may not, holds nothing.
  dispatcher_.RemoveWorker(t1.id);
  EXPECT_EQ(NumSessions(t0), 2);
  prompt.back() = 9;
  Start(WithPrompt("third", prompt));
  EXPECT_EQ(NumSessions(t0), 3);
}

}  // namespace
}  // namespace nacre::coordinator
