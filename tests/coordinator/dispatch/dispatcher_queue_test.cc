// Requests that wait for room on the workers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/refusal.h"
#include "coordinator/dispatch/dispatcher.h"
#include "tests/coordinator/dispatcher_queue_fixture.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<Dispatcher::NewSession> ChoicesOf(RequestSpec request,
                                              int choices) {
  std::vector<Dispatcher::NewSession> sessions;
  request.num_choices = choices;
  request.call = std::make_shared<CallPlacement>();
  for (request.choice = 0; request.choice < choices; ++request.choice) {
    sessions.push_back({request, std::make_shared<RecordingSink>()});
  }
  return sessions;
}

class DispatcherWithoutQueueTest : public DispatcherTest {
 protected:
  DispatcherWithoutQueueTest()
      : DispatcherTest([](Dispatcher::Options* options) {
          options->max_running = 8;
          options->max_queue = 0;
        }) {}

  // A call for as many, each of 16 tokens of KV.
  Dispatcher::Started StartChoices(int choices) {
    return dispatcher_.StartAll(ChoicesOf(Sized("r", 16), choices));
  }
};

// A dispatcher of its own, whose targets have nothing to do.
class IdleFleet : DispatcherTest {
 public:
  explicit IdleFleet(int max_queue)
      : DispatcherTest([max_queue](Dispatcher::Options* options) {
          options->max_queue = max_queue;
        }) {}

  void AddTarget(const std::string& numerics_id, int64_t kv_tokens) {
    AddKind("t", numerics_id, kv_tokens);
  }
  absl::Status StartChoices(int choices, int tokens) {
    return dispatcher_.StartAll(ChoicesOf(Sized("r", tokens), choices)).status;
  }

 private:
  void TestBody() override {}
};

TEST_F(DispatcherQueueTest, ARequestWaitsForRoomAndRunsWhenThereIsSome) {
  const Worker target = AddTarget("target", 64);
  const Run first = Start(Sized("first", 48));
  EXPECT_EQ(Reserved(target), 48);
  const Run second = Start(Sized("second", 32));
  EXPECT_FALSE(IsRunning(second.id));
  EXPECT_THAT(Queue(), ElementsAre("second"));
  target.client->Take();
  now_ns_ += 700;
  Verdict(target, first.id, 2, {'x'}, FinishReason::kLength);
  // Its blocks are not free yet: an opening could arrive before the close.
  EXPECT_FALSE(IsRunning(second.id));
  EXPECT_THAT(target.client->Take(),
              ElementsAre(absl::StrCat("close ", first.id)));
  Closed(target, first.id);
  EXPECT_TRUE(IsRunning(second.id));
  EXPECT_THAT(target.client->Take(),
              ElementsAre(absl::StrCat("open ", second.id,
                                       " epoch 0 draft 0 tokens 7,8")));
  EXPECT_EQ(target.client->num_unsent(), 0);
  EXPECT_EQ(Reserved(target), 32);
  EXPECT_THAT(observer_.Take(),
              ElementsAre("started first 0", "queued second 0",
                          "finished first OK completed", "started second 700"));
  now_ns_ += 300;
  EndOn(target, second);
  EXPECT_EQ(second.sink->completion()->queue_ns, 700);
  EXPECT_EQ(second.sink->completion()->total_ns, 1000);
  EXPECT_EQ(Reserved(target), 0);
}

TEST_F(DispatcherQueueTest, ShowsWhatIsPromisedAndWhatIsWanted) {
  const Worker target = AddTarget("target", 64);
  EXPECT_EQ(Reserved(target), 0);
  const Run first = Start(Sized("first", 48));
  Start(Sized("second", 32));
  EXPECT_EQ(Reserved(target), 48);
  EXPECT_EQ(dispatcher_.demand().target_tokens, 32);
  EXPECT_EQ(dispatcher_.demand().without_draft, 1);
  // Its KV is promised until it is closed there.
  dispatcher_.Cancel(first.id);
  EXPECT_EQ(Reserved(target), 48);
  EXPECT_EQ(dispatcher_.demand().target_tokens, 32);
  EXPECT_EQ(dispatcher_.demand().without_draft, 0);
  Closed(target, first.id);
  EXPECT_EQ(Reserved(target), 32);
  EXPECT_EQ(dispatcher_.demand().target_tokens, 0);
  EXPECT_EQ(dispatcher_.demand().draft_tokens, 32);
  EXPECT_EQ(dispatcher_.demand().without_draft, 1);
}

TEST_F(DispatcherQueueTest, AWorkersFailureOfASessionFreesItsRoom) {
  const Worker target = AddTarget("target", 64);
  const Run first = Start(Sized("first", 64));
  const Run second = Start(Sized("second", 64));
  Fail(target, first.id, 13, "broken");
  EXPECT_TRUE(IsRunning(second.id));
  // A late answer to the close of the first changes nothing.
  Closed(target, first.id);
  EXPECT_EQ(Reserved(target), 64);
  // Cancelled here, failed there, at the same time: none will say "closed".
  dispatcher_.Cancel(second.id);
  EXPECT_EQ(Reserved(target), 64);
  Fail(target, second.id, 13, "broken");
  EXPECT_EQ(Reserved(target), 0);
}

TEST_F(DispatcherQueueTest, WhatFitsOnNoTargetIsRefusedAtOnce) {
  AddTarget("small", 64);
  AddTarget("large", 128);
  const absl::Status status = Refusal(Sized("r", 129));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("need KV for 144 tokens"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("for 128"));
  EXPECT_TRUE(IsRefusedFor(status, kNeverFits));
  EXPECT_THAT(observer_.Take(), ElementsAre("refused r RESOURCE_EXHAUSTED"));
  const Run run = Start(Sized("r", 128));  // the id was free
  EXPECT_TRUE(IsRunning(run.id));
}

TEST_F(DispatcherQueueTest, ARequestRunsOnTheTargetThatHasRoom) {
  const Worker small = AddTarget("small", 64);
  const Worker large = AddTarget("large", 256);
  Start(Sized("a", 128));
  EXPECT_EQ(NumSessions(large), 1);
  Start(Sized("b", 64));
  EXPECT_EQ(NumSessions(small), 1);
  Start(Sized("c", 64));
  EXPECT_EQ(NumSessions(large), 2);
}

TEST_F(DispatcherQueueTest, NoMoreRunOnATargetThanTheMaximum) {
  const Worker target = AddTarget();
  EXPECT_EQ(dispatcher_.workers()[0].max_sessions, 3);
  std::vector<Run> runs;
  for (int i = 0; i < 4; ++i) runs.push_back(Start(absl::StrCat("r", i)));
  EXPECT_EQ(NumSessions(target), 3);
  EXPECT_THAT(Queue(), ElementsAre("r3"));
  dispatcher_.Cancel(runs[1].id);
  // The target still has it.
  EXPECT_FALSE(IsRunning(runs[3].id));
  Closed(target, runs[1].id);
  EXPECT_TRUE(IsRunning(runs[3].id));
  EXPECT_EQ(target.client->num_unsent(), 0);
  const Worker other = AddTarget("t1");
  for (int i = 4; i < 7; ++i) Start(absl::StrCat("r", i));
  EXPECT_THAT(Queue(), IsEmpty());
  EXPECT_EQ(NumSessions(other), 3);
  Start("r7");
  EXPECT_THAT(Queue(), ElementsAre("r7"));
}

// Of a call for six one would be refused each time, however long its client
// waits: none of them starts.
TEST_F(DispatcherQueueTest, ACallForMoreChoicesThanThereArePlacesNeverFits) {
  const Worker target = AddTarget();
  const auto start = [&](int choices) {
    std::vector<Dispatcher::NewSession> sessions;
    for (int i = 0; i < choices; ++i) {
      RequestSpec request = Request("r");
      request.num_choices = choices;
      request.choice = i;
      sessions.push_back({request, std::make_shared<RecordingSink>()});
    }
    return dispatcher_.StartAll(std::move(sessions));
  };
  const Dispatcher::Started refused = start(6);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(IsRefusedFor(refused.status, kNeverFits)) << refused.status;
  EXPECT_EQ(RefusalOf(refused.status)->retry_after_s, 0);
  EXPECT_THAT(std::string(refused.status.message()),
              HasSubstr("6 choices come at once, the targets have places for "
                        "3 like them and the queue for 2"));
  EXPECT_THAT(refused.session_ids, IsEmpty());
  EXPECT_EQ(NumSessions(target), 0);
  EXPECT_THAT(observer_.Take(), ElementsAre("refused r RESOURCE_EXHAUSTED"));
  const Dispatcher::Started started = start(5);
  EXPECT_TRUE(started.status.ok()) << started.status;
  EXPECT_EQ(NumSessions(target), 3);
  EXPECT_EQ(Queue().size(), 2u);
  for (uint64_t id : started.session_ids) dispatcher_.Cancel(id);
  for (uint64_t id : started.session_ids) Closed(target, id);
  // What other requests take of the places passes: it may be tried again.
  const Run other = Start("other");
  const Dispatcher::Started full = start(5);
  EXPECT_TRUE(IsRefusedFor(full.status, kQueueFull)) << full.status;
  EXPECT_TRUE(IsRunning(other.id));
}

// Where the first one runs binds the others. Of the kind that holds them all
// there are none to be refused, nor to wait.
TEST_F(DispatcherWithoutQueueTest, ACallRunsWhereAllItsChoicesFit) {
  const Worker narrow = AddKind("t0", "a", 16);
  const Worker wide = AddKind("t1", "b", 8 * 16);
  const Dispatcher::Started started = StartChoices(8);
  EXPECT_TRUE(started.status.ok()) << started.status;
  EXPECT_EQ(NumSessions(narrow), 0);
  EXPECT_EQ(NumSessions(wide), 8);
}

// An idle fleet takes a call that it accepts as a whole, whatever its kinds and
// its queue: to try again would change nothing.
TEST(DispatcherCallsTest, AnIdleFleetTakesACallOrNeverWill) {
  std::mt19937 random(18);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  int taken = 0;
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    IdleFleet fleet(/*max_queue=*/draw(0, 4));
    for (int i = draw(1, 4); i > 0; --i) {
      fleet.AddTarget(std::string(1, static_cast<char>('a' + draw(0, 2))),
                      16 * draw(1, 6));
    }
    const absl::Status status = fleet.StartChoices(draw(2, 8), 16 * draw(1, 2));
    ++(status.ok() ? taken : refused);
    EXPECT_TRUE(status.ok() || IsRefusedFor(status, kNeverFits))
        << "round " << round << ": " << status;
  }
  EXPECT_GT(taken, 50);
  EXPECT_GT(refused, 50);
}

// It may find fewer places than the call was accepted for: that passes.
TEST_F(DispatcherWithoutQueueTest, OfAnAcceptedCallNoChoiceNeverFits) {
  const Worker first = AddKind("t0", "a", 16);
  const Worker other = AddKind("t1", "b", 8 * 16);
  dispatcher_.DrainWorker(other.id);
  const Dispatcher::Started started = StartChoices(8);
  EXPECT_EQ(NumSessions(first), 1);
  EXPECT_EQ(NumSessions(other), 0);
  EXPECT_EQ(started.session_ids.size(), 1u);
  EXPECT_TRUE(IsRefusedFor(started.status, kQueueFull)) << started.status;
}

// Three run and two wait. When one in two seconds starts, a client that is
// refused may come back when both have started.
TEST_F(DispatcherQueueTest, ARefusalSaysWhenToTryAgain) {
  const Worker target = AddTarget();
  std::vector<Run> runs;
  for (int i = 0; i < 5; ++i) runs.push_back(Start(absl::StrCat("r", i)));
  const absl::Status first = Refusal(Sized("first", 16));
  EXPECT_TRUE(IsRefusedFor(first, kQueueFull));
  EXPECT_EQ(RefusalOf(first)->retry_after_s, 0);  // none has started yet
  now_ns_ += 2 * kSecond;
  EndOn(target, runs[0]);
  EXPECT_TRUE(IsRunning(runs[3].id));
  Start("r5");
  const absl::Status second = Refusal(Sized("second", 16));
  EXPECT_TRUE(IsRefusedFor(second, kQueueFull));
  EXPECT_EQ(RefusalOf(second)->retry_after_s, 4);
  // Those that have waited as long as they may hear it, too.
  now_ns_ += 10 * kSecond;
  dispatcher_.Tick();
  const absl::Status late = runs[4].sink->error();
  EXPECT_TRUE(IsRefusedFor(late, kQueueTimeout)) << late;
  EXPECT_GT(RefusalOf(late)->retry_after_s, 0);
}

// Drafts cost no answer its turn: they have no such limit.
TEST_F(DispatcherQueueTest, ADraftTakesTheSessionsOfSeveralTargets) {
  const Worker draft = AddDraft();
  AddTarget("t0");
  AddTarget("t1");
  for (int i = 0; i < 6; ++i) Start(absl::StrCat("r", i));
  EXPECT_THAT(Queue(), IsEmpty());
  EXPECT_EQ(NumSessions(draft), 6);
}

TEST_F(DispatcherQueueTest, ALostTargetsSessionsTakeNoMorePlacesThanThereAre) {
  const Worker lost = AddTarget("t0");
  const Run begun = Start("begun");
  const Run second = Start("second");
  const Worker other = AddTarget("t1");
  std::vector<Run> runs;
  for (int i = 0; i < 2; ++i) runs.push_back(Start(absl::StrCat("r", i)));
  ASSERT_EQ(NumSessions(other), 2);
  dispatcher_.RemoveWorker(lost.id);
  EXPECT_EQ(NumSessions(other), 3);
  EXPECT_EQ(TargetAddress(begun.id), "t1");
  EXPECT_EQ(TargetAddress(second.id), "");
  // The next place is for the one that has begun.
  const Run late = Start("late");
  dispatcher_.Cancel(runs[0].id);
  EXPECT_EQ(TargetAddress(second.id), "");
  Closed(other, runs[0].id);
  EXPECT_EQ(TargetAddress(second.id), "t1");
  EXPECT_FALSE(IsRunning(late.id));
  EXPECT_EQ(NumSessions(other), 3);
}

// The places of those that move there are taken before they are open.
TEST_F(DispatcherQueueTest, ADrainMovesSessionsOnlyWhereThereArePlaces) {
  const Worker first = AddTarget("t0");
  std::vector<Run> runs;
  for (int i = 0; i < 3; ++i) runs.push_back(Start(absl::StrCat("r", i)));
  const Worker second = AddTarget("t1");
  const Run there = Start("there");
  ASSERT_EQ(TargetAddress(there.id), "t1");
  dispatcher_.DrainWorker(first.id);
  EXPECT_EQ(NumSessions(first), 1);
  EXPECT_EQ(NumSessions(second), 3);
  EXPECT_EQ(TargetAddress(runs[2].id), "t0");
  const Run late = Start("late");
  EndOn(second, there);
  EXPECT_EQ(TargetAddress(runs[2].id), "t1");
  EXPECT_FALSE(IsRunning(late.id));
  EXPECT_EQ(NumSessions(first), 0);
  EXPECT_EQ(NumSessions(second), 3);
}

TEST_F(DispatcherQueueTest, AFullQueueRefusesButNotWhatCanRunAtOnce) {
  AddTarget("target", 64);
  const Run first = Start(Sized("first", 48));
  Start(Sized("second", 32));
  Start(Sized("third", 32));
  const absl::Status status = Refusal(Sized("fourth", 32));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 requests wait"));
  EXPECT_THAT(Queue(), ElementsAre("second", "third"));
  const Run small = Start(Sized("small", 16));
  EXPECT_TRUE(IsRunning(small.id));
  EXPECT_THAT(
      observer_.Take(),
      ElementsAre("started first 0", "queued second 0", "queued third 1",
                  "refused fourth RESOURCE_EXHAUSTED", "started small 0"));
  // A refused one's id is free.
  dispatcher_.Cancel(first.id);
  EXPECT_THAT(Queue(), ElementsAre("second", "third"));  // not closed yet
}

TEST_F(DispatcherQueueTest, IsShownInTheOrderInWhichItWouldStart) {
  const Worker target = AddTarget("target", 64);
  const Run first = Start(Sized("first", 64));
  const Run second = Start(Sized("second", 64));
  RequestSpec request = Sized("resumed", 64);
  request.resume = std::make_shared<const std::vector<ResumedChoice>>(1);
  const Run resumed = Start(std::move(request));
  EXPECT_THAT(Queue(), ElementsAre("resumed", "second"));
  EndOn(target, first);
  EXPECT_TRUE(IsRunning(resumed.id));
  EXPECT_THAT(Queue(), ElementsAre("second"));
  EndOn(target, resumed);
  EXPECT_TRUE(IsRunning(second.id));
}

TEST_F(DispatcherQueueTest, ALargeRequestIsNotPassedForever) {
  const Worker target = AddTarget("target", 64);
  Run running = Start(Sized("first", 16));
  const Run large = Start(Sized("large", 64));
  int passed = 0;
  for (; passed < 1000; ++passed) {
    const Run small = Start(Sized(absl::StrCat("small ", passed), 16));
    if (!IsRunning(small.id)) break;
    EndOn(target, running);
    running = small;
  }
  EXPECT_EQ(passed, Admission::kMaxPasses);
  EXPECT_FALSE(IsRunning(large.id));
  EndOn(target, running);
  EXPECT_TRUE(IsRunning(large.id));
}

TEST_F(DispatcherQueueTest, TheTimeInTheQueueIsLimited) {
  const Worker target = AddTarget("target", 64);
  const Run first = Start(Sized("first", 64));
  const Run second = Start(Sized("second", 64));
  now_ns_ += kSecond;
  const Run third = Start(Sized("third", 64));
  EXPECT_THAT(wakes_, ElementsAre(1000 + 10 * kSecond));
  now_ns_ = 1000 + 10 * kSecond - 1;
  EXPECT_EQ(dispatcher_.Tick(), 1000 + 10 * kSecond);
  EXPECT_EQ(second.sink->num_ends(), 0);
  now_ns_ += 1;
  EXPECT_EQ(dispatcher_.Tick(), 1000 + 11 * kSecond);
  EXPECT_EQ(second.sink->error().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(second.sink->error().message()), HasSubstr("10s"));
  EXPECT_EQ(third.sink->num_ends(), 0);
  EndOn(target, first);
  EXPECT_TRUE(IsRunning(third.id));
  EXPECT_EQ(dispatcher_.Tick(), kNever);
}

TEST_F(DispatcherQueueTest, ADeadlineEndsAWaitingRequest) {
  const Worker target = AddTarget("target", 64);
  Start(Sized("first", 64));
  RequestSpec request = Sized("second", 64);
  request.deadline_ns = 5000;
  const Run second = Start(request);
  target.client->Take();
  observer_.Take();
  now_ns_ = 5000;
  dispatcher_.Tick();
  EXPECT_EQ(second.sink->error().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(target.client->Take(), IsEmpty());
  EXPECT_THAT(Queue(), IsEmpty());
  EXPECT_THAT(observer_.Take(),
              ElementsAre("refused second DEADLINE_EXCEEDED"));
}

TEST_F(DispatcherQueueTest, ACancelledRequestLeavesTheQueue) {
  const Worker target = AddTarget("target", 64);
  const Run first = Start(Sized("first", 48));
  const Run second = Start(Sized("second", 64));
  const Run third = Start(Sized("third", 64));
  const absl::Status taken = Refusal(Sized("second", 16));
  EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists);
  dispatcher_.Cancel(second.id);
  dispatcher_.Cancel(second.id);
  EXPECT_EQ(second.sink->error().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(second.sink->num_ends(), 1);
  EXPECT_THAT(Queue(), ElementsAre("third"));
  EndOn(target, first);
  EXPECT_TRUE(IsRunning(third.id));
}

TEST_F(DispatcherQueueTest, ADrainRefusesWhoWaitsAndLetsTheOthersEnd) {
  const Worker target = AddTarget("target", 64);
  const Run first = Start(Sized("first", 64));
  const Run second = Start(Sized("second", 64));
  EXPECT_FALSE(dispatcher_.Drain(absl::ZeroDuration()));
  EXPECT_EQ(second.sink->error().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(first.sink->num_ends(), 0);
  EndOn(target, first);
  EXPECT_TRUE(dispatcher_.Drain(absl::ZeroDuration()));
}

TEST_F(DispatcherQueueTest, WhoWaitsGoesToATargetThatAttaches) {
  AddTarget("t0", 64);
  Start(Sized("first", 64));
  const Run second = Start(Sized("second", 64));
  const Worker other = AddTarget("t1", 64);
  EXPECT_TRUE(IsRunning(second.id));
  EXPECT_EQ(NumSessions(other), 1);
  EXPECT_EQ(other.client->num_unsent(), 0);
}

// That one kind of targets has no room says nothing of another, nor that there
// is none for a large request of a small one.
TEST_F(DispatcherQueueTest, WhoWaitsInVainHoldsUpNobodyWhoWantsLessOrOthers) {
  AddKind("t0", "a", 64);
  Start(Sized("first", 48));
  RequestSpec of_a = Sized("of a", 64);
  of_a.numerics_id = "a";
  const Run picky = Start(of_a);
  const Run any = Start(Sized("any", 64));
  EXPECT_THAT(Queue(), ElementsAre("of a", "any"));
  const Run small = Start(Sized("small", 16));
  EXPECT_TRUE(IsRunning(small.id));
  dispatcher_.Cancel(small.id);
  const Worker b = AddKind("t1", "b", 64);
  EXPECT_TRUE(IsRunning(any.id));
  EXPECT_FALSE(IsRunning(picky.id));
  EXPECT_EQ(NumSessions(b), 1);
}

TEST_F(DispatcherQueueTest, WithoutATargetWhoWaitsGoesOnWaiting) {
  const Worker target = AddTarget("t0", 64);
  const Run first = Start(Sized("first", 64));
  const Run second = Start(Sized("second", 64));
  const Run third = Start(Sized("third", 64));
  dispatcher_.RemoveWorker(target.id);
  dispatcher_.Cancel(first.id);
  EXPECT_EQ(second.sink->num_ends(), 0);
  // Where no more may wait the reason is that there is no target.
  const absl::Status full = Refusal(Sized("fourth", 64));
  EXPECT_EQ(full.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(full.message()), HasSubstr("no target"));
  AddTarget("t1", 64);
  EXPECT_TRUE(IsRunning(second.id));
  EXPECT_EQ(third.sink->num_ends(), 0);
  for (const WorkerStatus& worker : dispatcher_.workers()) {
    dispatcher_.RemoveWorker(worker.id);
  }
  now_ns_ += 20 * kSecond;
  dispatcher_.Tick();
  EXPECT_EQ(third.sink->error(),
            absl::UnavailableError(
                "after 10s in the queue: no target worker is ready"));
}

TEST_F(DispatcherQueueTest, WhoHasBegunGoesOnBeforeOthersBegin) {
  const Worker lost = AddTarget("t0", 64);
  const Run begun = Start(Sized("begun", 64));
  const Worker other = AddTarget("t1", 64);
  const Run running = Start(Sized("running", 48));
  dispatcher_.RemoveWorker(lost.id);
  // 16 are free on t1, too few for the one that lost its target.
  const Run small = Start(Sized("small", 16));
  EXPECT_FALSE(IsRunning(small.id));
  other.client->Take();
  EndOn(other, running);
  EXPECT_THAT(other.client->Take(),
              ElementsAre(absl::StrCat("close ", running.id),
                          absl::StrCat("open ", begun.id,
                                       " epoch 1 draft 0 tokens 7,8")));
  EXPECT_EQ(Reserved(other), 64);
  EndOn(other, begun);
  EXPECT_TRUE(IsRunning(small.id));
}

// On a target that computes other bits none waits for the one that is held.
TEST_F(DispatcherQueueTest, AHeldRequestThatFitsNowhereBlocksNobody) {
  const Worker lost = AddTarget("t0", 64);
  Start(Sized("begun", 64));
  dispatcher_.RemoveWorker(lost.id);
  WorkerInfo info = Info(WorkerRole::kTarget, "t1");
  info.numerics_id = "other";
  info.kv_capacity_tokens = 64;
  ASSERT_TRUE(
      AddWorker(&dispatcher_, info, std::make_shared<RecordingClient>()).ok());
  EXPECT_TRUE(IsRunning(Start(Sized("new", 64)).id));
}

// Nor where its target is there, but full: others compute other bits.
TEST_F(DispatcherQueueTest, AHeldRequestKeepsOnlyItsOwnTargetsFree) {
  const Worker t0 = AddKind("t0", "a", 64);
  const Run begun = Start(Sized("begun", 64));
  const Worker t1 = AddKind("t1", "a", 64);
  const Run running = Start(Sized("running", 48));
  dispatcher_.RemoveWorker(t0.id);
  const Worker t2 = AddKind("t2", "b", 64);
  const Run small = Start(Sized("small", 16));
  EXPECT_TRUE(IsRunning(small.id));
  EXPECT_EQ(NumSessions(t2), 1);  // not on t1, which has 16 left
  EndOn(t1, running);
  EXPECT_EQ(NumSessions(t1), 1);
  EXPECT_EQ(Reserved(t1), 64);
}

TEST_F(DispatcherQueueTest, WhatWasKeptForAHeldRequestIsFreeWhenThatIsGone) {
  const Worker lost = AddTarget("t0", 64);
  const Run begun = Start(Sized("begun", 64));
  AddTarget("t1", 64);
  Start(Sized("running", 48));
  dispatcher_.RemoveWorker(lost.id);
  const Run small = Start(Sized("small", 16));
  EXPECT_FALSE(IsRunning(small.id));
  dispatcher_.Cancel(begun.id);
  EXPECT_TRUE(IsRunning(small.id));
}

TEST_F(DispatcherQueueTest, WhoWaitsStartsWhenAStopStringEndsAnother) {
  const Worker target = AddTarget();
  RequestSpec request = Request("stops");
  request.stop = {"z"};
  const Run stops = Start(request);
  Start("second");
  Start("third");
  const Run waits = Start("waits");
  EXPECT_FALSE(IsRunning(waits.id));
  Verdict(target, stops.id, 2, {'a', 'z'});
  EXPECT_EQ(stops.sink->num_ends(), 1);
  EXPECT_FALSE(IsRunning(waits.id));
  Closed(target, stops.id);
  EXPECT_TRUE(IsRunning(waits.id));
}

TEST_F(DispatcherQueueTest, ATargetThatRefusedAHeldRequestIsNotKeptForIt) {
  const Worker lost = AddTarget("t0", 64);
  const Run begun = Start(Sized("begun", 64));
  const Worker full = AddTarget("t1", 64);
  dispatcher_.RemoveWorker(lost.id);
  Fail(full, begun.id, 8, "no KV room");
  EXPECT_EQ(TargetAddress(begun.id), "");
  EXPECT_TRUE(IsRunning(Start(Sized("small", 16)).id));
}

TEST_F(DispatcherQueueTest, ARefusedSessionLeavesTheDraftToOthers) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft("draft", 48);
  const Run refused = Start(Sized("refused", 48));
  Fail(draft, refused.id, 8, "no room");
  const Run first = Start(Sized("first", 48));
  const Run second = Start(Sized("second", 48));
  EXPECT_EQ(DraftAddress(first.id), "draft");
  EXPECT_EQ(DraftAddress(second.id), "");
  EndOn(target, first);
  Closed(draft, first.id);
  EXPECT_EQ(DraftAddress(refused.id), "");
  EXPECT_EQ(DraftAddress(second.id), "draft");
}

TEST_F(DispatcherQueueTest, WhoIsBehindACancelledRequestStartsAtOnce) {
  const Worker target = AddTarget("target", 64);
  Run running = Start(Sized("first", 16));
  const Run large = Start(Sized("large", 64));
  Run small;
  for (int i = 0; i <= Admission::kMaxPasses; ++i) {
    small = Start(Sized(absl::StrCat("small ", i), 16));
    if (!IsRunning(small.id)) break;
    EndOn(target, running);
    running = small;
  }
  ASSERT_FALSE(IsRunning(small.id));  // though it would fit
  dispatcher_.Cancel(large.id);
  EXPECT_TRUE(IsRunning(small.id));
}

// A drained draft keeps the room of a session until it says that it is closed,
// and may get the same session again before.
TEST_F(DispatcherQueueTest, ASessionOpenedAgainOnADraftReservesAgain) {
  const Worker t0 = AddTarget("t0", 256);
  AddTarget("t1", 256);
  const Worker draft = AddDraft("draft", 128);
  const Run run = Start(Sized("r", 48));
  EXPECT_EQ(Reserved(draft), 48);
  dispatcher_.RemoveWorker(t0.id);  // both openings are new
  EXPECT_EQ(DraftAddress(run.id), "draft");
  EXPECT_EQ(Reserved(draft), 96);
  Closed(draft, run.id);
  EXPECT_EQ(Reserved(draft), 48);
  dispatcher_.Cancel(run.id);
  Closed(draft, run.id);
  EXPECT_EQ(Reserved(draft), 0);
}

TEST_F(DispatcherQueueTest, WhoWaitedForAnotherModelIsRefused) {
  const Worker target = AddTarget("t0", 64);
  Start(Sized("first", 64));
  RequestSpec request = Sized("second", 64);
  request.fingerprint = "big";
  const Run second = Start(request);
  dispatcher_.RemoveWorker(target.id);
  WorkerInfo info = Info(WorkerRole::kTarget, "t1");
  info.fingerprint = "bigger";
  ASSERT_TRUE(
      AddWorker(&dispatcher_, info, std::make_shared<RecordingClient>()).ok());
  EXPECT_EQ(second.sink->error().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.sink->error().message()),
              HasSubstr("model changed"));
  request.request_id = "third";
  EXPECT_EQ(Refusal(request).code(), absl::StatusCode::kUnavailable);
}

TEST_F(DispatcherQueueTest, ADraftWithoutRoomIsNoReasonToWait) {
  const Worker target = AddTarget("target", 256);
  const Worker draft = AddDraft("draft", 64);
  const Run first = Start(Sized("first", 48));
  const Run second = Start(Sized("second", 48));
  EXPECT_EQ(DraftAddress(first.id), "draft");
  EXPECT_EQ(DraftAddress(second.id), "");
  EXPECT_EQ(Reserved(draft), 48);
  draft.client->Take();
  target.client->Take();
  EndOn(target, first);
  EXPECT_EQ(DraftAddress(second.id), "");
  Closed(draft, first.id);
  EXPECT_EQ(DraftAddress(second.id), "draft");
  EXPECT_THAT(
      draft.client->Take(),
      ElementsAre(absl::StrCat("close ", first.id),
                  absl::StrCat("open ", second.id, " epoch 1 tokens 7,8")));
  EXPECT_EQ(draft.client->num_unsent(), 0);
  EXPECT_EQ(target.client->num_unsent(), 0);
  EXPECT_EQ(Reserved(draft), 48);
  EXPECT_EQ(second.sink->num_ends(), 0);
}

}  // namespace
}  // namespace nacre::coordinator
