// Workers and clients that come and go.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/dispatch/dispatcher.h"
#include "tests/coordinator/dispatcher_fixture.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;
using speculation::Method;
using speculation::StopMark;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(DispatcherTest, ALostDraftIsReplacedWithAHigherEpoch) {
  const Worker target = AddTarget();
  const Worker first = AddDraft("d0");
  const Run run = Start();
  const Worker second = AddDraft("d1");
  Verdict(target, run.id, 2, {'x'});
  target.client->Take();
  dispatcher_.RemoveWorker(first.id);
  EXPECT_THAT(
      target.client->Take(),
      ElementsAre(absl::StrCat("lost ", run.id),
                  absl::StrCat("attach ", run.id, " epoch 2 length 3")));
  EXPECT_THAT(
      second.client->Take(),
      ElementsAre(absl::StrCat("open ", run.id, " epoch 2 tokens 7,8,120")));
  EXPECT_EQ(target.client->num_unsent(), 0);
  EXPECT_EQ(second.client->num_unsent(), 0);
  Tail(first, run.id, 1, 3, {1});
  Tail(second, run.id, 1, 3, {1});
  EXPECT_THAT(target.client->Take(), IsEmpty());
  Tail(second, run.id, 2, 3, {1});
  EXPECT_EQ(target.client->Take().size(), 1u);
}

TEST_F(DispatcherTest, TellsHowMuchOfThePromptWasCached) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const Run run = Start();
  wire::SessionEvents events;
  events.opened.push_back({run.id, 1});
  Say(target, events);
  events.opened = {{run.id, 2}, {999, 3}};  // a second target, none
  Say(target, events);
  Say(draft, events);  // its own cache is its own affair
  EXPECT_THAT(
      observer_.Take(),
      ElementsAre(HasSubstr("started"), absl::StrCat("opened ", run.id, " 1")));
  Verdict(target, run.id, 2, {'x'}, FinishReason::kEos);
  EXPECT_EQ(run.sink->completion()->cached_tokens, 1);
}

TEST_F(DispatcherTest, TellsHowMuchMoreOfThePromptWasCachedMeanwhile) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const Run run = Start();
  wire::SessionEvents events;
  events.cached = {{run.id, 1}};  // not opened yet
  Say(target, events);
  events.cached.clear();
  events.opened.push_back({run.id, 0});
  Say(target, events);
  events.opened.clear();
  events.cached = {{run.id, 1}, {999, 3}, {run.id, -4}};
  Say(draft, events);  // its own cache is its own affair
  Say(target, events);
  events.cached = {{run.id, 7}};  // the prompt has two tokens
  Say(target, events);
  EXPECT_THAT(
      observer_.Take(),
      ElementsAre(HasSubstr("started"), absl::StrCat("opened ", run.id, " 0"),
                  absl::StrCat("cached ", run.id, " 1"),
                  absl::StrCat("cached ", run.id, " 1")));
  Verdict(target, run.id, 2, {'x'}, FinishReason::kEos);
  EXPECT_EQ(run.sink->completion()->cached_tokens, 2);
}

TEST_F(DispatcherTest, StatesTheSessionsThatAWorkerKeeps) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const Run first = Start("a");
  const Run second = Start("b");
  dispatcher_.RemoveWorker(AddDraft("d1").id);
  target.client->Take();
  draft.client->Take();
  for (const Worker& worker : {target, draft}) {
    dispatcher_.StateKept(worker.id);
    EXPECT_THAT(worker.client->Take(),
                ElementsAre(absl::StrCat("keep ", first.id, ",", second.id)));
    EXPECT_EQ(worker.client->num_unsent(), 0);
  }
  dispatcher_.Cancel(first.id);
  target.client->Take();
  dispatcher_.StateKept(target.id);
  EXPECT_THAT(target.client->Take(),
              ElementsAre(absl::StrCat("keep ", second.id)));
  dispatcher_.Cancel(second.id);
  target.client->Take();
  dispatcher_.StateKept(target.id);
  EXPECT_THAT(target.client->Take(), ElementsAre("keep "));
  dispatcher_.StateKept(/*worker_id=*/999);  // unknown: nothing happens
}

TEST_F(DispatcherTest, WithoutAnotherDraftTheSessionGoesOnUntilOneAttaches) {
  const Worker target = AddTarget();
  const Worker first = AddDraft("d0");
  const Run run = Start();
  target.client->Take();
  dispatcher_.RemoveWorker(first.id);
  EXPECT_THAT(target.client->Take(),
              ElementsAre(absl::StrCat("lost ", run.id)));
  EXPECT_EQ(DraftAddress(run.id), "");
  Verdict(target, run.id, 2, {'x'});
  EXPECT_EQ(run.sink->streamed_text(), "x");
  target.client->Take();
  const Worker second = AddDraft("d1");
  EXPECT_THAT(
      second.client->Take(),
      ElementsAre(absl::StrCat("open ", run.id, " epoch 2 tokens 7,8,120")));
  EXPECT_THAT(
      target.client->Take(),
      ElementsAre(absl::StrCat("attach ", run.id, " epoch 2 length 3")));
  EXPECT_EQ(DraftAddress(run.id), "d1");
}

TEST_F(DispatcherTest, ASessionThatStartedAloneTakesTheFirstDraft) {
  const Worker target = AddTarget();
  const Run run = Start();
  EXPECT_THAT(target.client->Take(),
              ElementsAre(absl::StrCat("open ", run.id,
                                       " epoch 0 draft 0 tokens 7,8")));
  const Worker draft = AddDraft();
  EXPECT_THAT(
      target.client->Take(),
      ElementsAre(absl::StrCat("attach ", run.id, " epoch 1 length 2")));
  EXPECT_EQ(NumSessions(draft), 1);
}

TEST_F(DispatcherTest, ADraftThatRefusesASessionIsNotAskedAgain) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const Run run = Start();
  draft.client->Take();
  target.client->Take();
  Fail(draft, run.id, 8, "no room");
  EXPECT_THAT(target.client->Take(),
              ElementsAre(absl::StrCat("lost ", run.id)));
  EXPECT_THAT(draft.client->Take(), IsEmpty());  // it has closed it itself
  EXPECT_EQ(NumSessions(draft), 0);
  Verdict(target, run.id, 2, {'x'});
  EXPECT_THAT(draft.client->Take(), IsEmpty());
  EXPECT_EQ(run.sink->num_ends(), 0);
  Tail(draft, run.id, 1, 2, {1});  // what it had sent before
  EXPECT_THAT(target.client->Take(), IsEmpty());
  Start("another");  // which it may well have room for
  EXPECT_EQ(NumSessions(draft), 1);
}

TEST_F(DispatcherTest, DraftsThatAllRefuseAreEachAskedOnce) {
  const Worker target = AddTarget();
  const Worker drafts[] = {AddDraft("d0"), AddDraft("d1"), AddDraft("d2")};
  const Run run = Start();
  for (const Worker& draft : drafts) {
    EXPECT_EQ(draft.client->Take().size(), 1u);
    Fail(draft, run.id, 8, "no room");
  }
  for (const Worker& draft : drafts) {
    EXPECT_THAT(draft.client->Take(), IsEmpty());
  }
  EXPECT_EQ(DraftAddress(run.id), "");
}

// ----------------------------------------------------------------- the ending

TEST_F(DispatcherTest, AFinishCompletesAndClosesOnBothWorkers) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  RequestSpec request = Request("r");
  request.trace = true;
  const Run run = Start(request);
  target.client->Take();
  draft.client->Take();
  Verdict(target, run.id, 2, {'h', 'i'}, FinishReason::kLength);
  EXPECT_THAT(target.client->Take(),
              ElementsAre(absl::StrCat("close ", run.id)));
  EXPECT_THAT(draft.client->Take(),
              ElementsAre(absl::StrCat("close ", run.id)));
  ASSERT_TRUE(run.sink->completion().has_value());
  const Completion completion = *run.sink->completion();
  EXPECT_EQ(completion.text, "hi");
  ASSERT_EQ(completion.trace.size(), 2u);
  EXPECT_EQ(completion.trace[0].address, "target");
  EXPECT_EQ(completion.trace[1].address, "draft");
  EXPECT_EQ(completion.trace[1].clock_offset_ns, 77);
  EXPECT_TRUE(dispatcher_.sessions().empty());
  EXPECT_EQ(NumSessions(target), 0);
  EXPECT_EQ(NumSessions(draft), 0);
  Verdict(target, run.id, 4, {'x'});  // too late
  Tail(draft, run.id, 1, 4, {'x'});
  Fail(target, run.id, 13, "late");
  EXPECT_THAT(target.client->Take(), IsEmpty());
  EXPECT_EQ(run.sink->num_ends(), 1);
}

TEST_F(DispatcherTest, AStopStringEndsTheSessionThoughTheTargetGoesOn) {
  const Worker target = AddTarget();
  RequestSpec request = Request("r");
  request.stop = {"STOP"};
  const Run run = Start(request);
  target.client->Take();
  Verdict(target, run.id, 2, Bytes("a ST"));
  Verdict(target, run.id, 6, Bytes("OP b"));
  EXPECT_THAT(target.client->Take(),
              ElementsAre(absl::StrCat("close ", run.id)));
  EXPECT_EQ(run.sink->completion()->text, "a ");
}

TEST_F(DispatcherTest, ACancelClosesOnBothWorkers) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const Run run = Start();
  target.client->Take();
  draft.client->Take();
  dispatcher_.Cancel(run.id);
  dispatcher_.Cancel(run.id);
  EXPECT_THAT(target.client->Take(),
              ElementsAre(absl::StrCat("close ", run.id)));
  EXPECT_THAT(draft.client->Take(),
              ElementsAre(absl::StrCat("close ", run.id)));
  EXPECT_EQ(target.client->num_unsent(), 0);
  EXPECT_EQ(run.sink->error().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(run.sink->num_ends(), 1);
  EXPECT_TRUE(dispatcher_.sessions().empty());
}

TEST_F(DispatcherTest, ATargetsErrorIsTheClientsError) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const Run run = Start();
  draft.client->Take();
  Fail(target, run.id, 3, "token 1002 is none of 1000");
  EXPECT_EQ(run.sink->error(),
            absl::InvalidArgumentError("token 1002 is none of 1000"));
  EXPECT_THAT(draft.client->Take(),
              ElementsAre(absl::StrCat("close ", run.id)));
}

TEST_F(DispatcherTest, MessagesThatCouldNotBeReadAreCounted) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const Run run = Start();
  const absl::Status odd = absl::InvalidArgumentError("odd");
  for (const Worker& worker : {target, draft}) {
    wire::SessionEvents events;
    events.malformed = {{run.id, odd}, {999, odd}};
    Say(worker, std::move(events));
  }
  Verdict(target, run.id, 2, {'x'}, FinishReason::kEos);
  EXPECT_EQ(run.sink->completion()->stats.stale_messages, 2);
}

TEST_F(DispatcherTest, EventsOfUnknownWorkersAreIgnored) {
  const Worker target = AddTarget();
  const Run run = Start();
  Verdict({target.id + 1, nullptr}, run.id, 2, {'x'});
  dispatcher_.DrainWorker(target.id + 1);
  dispatcher_.RemoveWorker(target.id + 1);
  EXPECT_TRUE(run.sink->chunks().empty());
}

// ------------------------------------------------------------------- draining

TEST_F(DispatcherTest, DrainRefusesNewRequestsAndWaitsForTheRunningOnes) {
  const Worker target = AddTarget();
  const Run run = Start();
  EXPECT_FALSE(dispatcher_.Drain(absl::ZeroDuration()));
  EXPECT_TRUE(dispatcher_.draining());
  const absl::Status status =
      dispatcher_.Start(Request("next"), run.sink).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  std::thread ending(
      [&] { Verdict(target, run.id, 2, {'x'}, FinishReason::kLength); });
  EXPECT_TRUE(dispatcher_.Drain(absl::InfiniteDuration()));
  EXPECT_TRUE(dispatcher_.sessions().empty());
  ending.join();
}

// Asks for a drain while it is told of its end.
class DrainingSink final : public ResponseSink {
 public:
  explicit DrainingSink(Dispatcher* dispatcher) : dispatcher_(dispatcher) {}

  void OnChunk(const Chunk&) override {}
  void OnComplete(const RequestSpec&, const Completion&) override {
    drained_ = dispatcher_->Drain(absl::ZeroDuration());
  }
  void OnError(const absl::Status&) override {}
  int pending_chunks() const override { return 0; }
  int64_t taken_chunks() const override { return 0; }

  absl::optional<bool> drained() const { return drained_; }

 private:
  Dispatcher* const dispatcher_;
  absl::optional<bool> drained_;
};

TEST_F(DispatcherTest, DrainWaitsUntilTheLastWordIsSaid) {
  const Worker target = AddTarget();
  const auto sink = std::make_shared<DrainingSink>(&dispatcher_);
  const uint64_t id = dispatcher_.Start(Request("r"), sink).value();
  Verdict(target, id, 2, {'x'}, FinishReason::kLength);
  EXPECT_EQ(sink->drained(), false);
  EXPECT_TRUE(dispatcher_.Drain(absl::ZeroDuration()));
}

TEST_F(DispatcherTest, OperatorsSeeWorkersAndSessions) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const Run run = Start("mine");
  Verdict(target, run.id, 2, {'h', 'i', '!'});
  dispatcher_.DrainWorker(draft.id);
  const std::vector<SessionStatus> sessions = dispatcher_.sessions();
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].request_id, "mine");
  EXPECT_EQ(sessions[0].method, Method::kAsync);
  EXPECT_EQ(sessions[0].prompt_tokens, 2);
  EXPECT_EQ(sessions[0].generated_tokens, 3);
  EXPECT_EQ(sessions[0].target_address, "target");
  EXPECT_EQ(sessions[0].draft_address, "draft");
  const std::vector<WorkerStatus> workers = dispatcher_.workers();
  ASSERT_EQ(workers.size(), 2u);
  EXPECT_TRUE(workers[0].ready);
  EXPECT_FALSE(workers[1].ready);
  EXPECT_EQ(workers[1].sessions, 1);
}

// Everything at once from several threads; ThreadSanitizer watches.
TEST_F(DispatcherTest, CallsFromManyThreadsEndEverySessionOnce) {
  const Worker target = AddTarget();
  std::vector<std::thread> threads;
  std::vector<std::vector<Run>> runs(3);
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([this, t, &target, &runs] {
      for (int i = 0; i < 40; ++i) {
        const Run run = Start(absl::StrCat(t, "/", i));
        runs[t].push_back(run);
        Verdict(target, run.id, 2, {'x', 'y'});
        dispatcher_.OnSinkDrained(run.id);
        if (i % 2 == 0) {
          Verdict(target, run.id, 4, {'z'}, FinishReason::kLength);
        } else {
          dispatcher_.Cancel(run.id);
        }
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    const Worker draft = AddDraft(absl::StrCat("d", i));
    dispatcher_.workers();
    dispatcher_.sessions();
    dispatcher_.RemoveWorker(draft.id);
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& of_thread : runs) {
    for (const Run& run : of_thread) EXPECT_EQ(run.sink->num_ends(), 1);
  }
  EXPECT_TRUE(dispatcher_.sessions().empty());
  EXPECT_EQ(NumSessions(target), 0);
}

}  // namespace
}  // namespace nacre::coordinator
