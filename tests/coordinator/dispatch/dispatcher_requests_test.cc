// Requests and time: deadlines, clients that do not read.

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
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Where there never was a draft, none is missing.
TEST_F(DispatcherTest, AStepIsDegradedOnceThereWasADraft) {
  const Worker target = AddTarget();
  const auto degraded = [&](const std::string& id) {
    const Run run = Start(id);
    wire::TargetEvents events;
    speculation::Verdict& verdict =
        events.verdicts.emplace_back(wire::SessionVerdict{run.id}).verdict;
    verdict.base_length = 2;
    verdict.token_ids = {'x'};
    verdict.degraded = true;
    verdict.finish = FinishReason::kLength;
    dispatcher_.OnEvents(target.id, events);
    EXPECT_TRUE(run.sink->completion().has_value());
    return run.sink->completion()->stats.degraded_rounds;
  };
  EXPECT_EQ(degraded("alone"), 0);
  dispatcher_.RemoveWorker(AddDraft().id);
  EXPECT_EQ(degraded("lost"), 1);
}

class DispatcherTimeTest : public DispatcherTest {
 protected:
  using DispatcherTest::DispatcherTest;

  static RequestSpec Until(const std::string& id, int64_t deadline_ns) {
    RequestSpec request = Request(id);
    request.deadline_ns = deadline_ns;
    return request;
  }
};

// The call fails: nothing would end those of its choices that started later.
TEST_F(DispatcherTest, WhereOneIsRefusedThoseAfterItDoNotStart) {
  const Worker target = AddTarget();
  Start("taken");
  std::vector<Dispatcher::NewSession> sessions;
  for (const char* id : {"first", "taken", "third"}) {
    sessions.push_back({Request(id), std::make_shared<RecordingSink>()});
  }
  observer_.Take();
  const Dispatcher::Started started = dispatcher_.StartAll(std::move(sessions));
  EXPECT_EQ(started.status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(observer_.Take(), Contains("refused taken ALREADY_EXISTS"));
  EXPECT_EQ(started.session_ids.size(), 1u);
  EXPECT_EQ(NumSessions(target), 2);
}

TEST_F(DispatcherTimeTest, WithoutDeadlinesNoTickIsWanted) {
  AddTarget();
  Start();
  EXPECT_EQ(dispatcher_.Tick(), kNever);
  EXPECT_THAT(wakes_, IsEmpty());
}

TEST_F(DispatcherTimeTest, ADeadlineEndsTheRequestOnBothWorkers) {
  const Worker target = AddTarget();
  const Worker draft = AddDraft();
  const Run run = Start(Until("r", 5000));
  const Run other = Start("endless");
  EXPECT_THAT(wakes_, ElementsAre(5000));
  Verdict(target, run.id, 2, {'h', 'i', '!'});
  target.client->Take();
  draft.client->Take();
  now_ns_ = 4999;
  EXPECT_EQ(dispatcher_.Tick(), 5000);
  EXPECT_EQ(run.sink->num_ends(), 0);
  now_ns_ = 5000;
  EXPECT_EQ(dispatcher_.Tick(), kNever);
  EXPECT_EQ(run.sink->error().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(run.sink->error().message()), HasSubstr("3 tokens"));
  const std::string close = absl::StrCat("close ", run.id);
  EXPECT_THAT(target.client->Take(), ElementsAre(close));
  EXPECT_THAT(draft.client->Take(), ElementsAre(close));
  EXPECT_EQ(target.client->num_unsent(), 0);
  EXPECT_EQ(NumSessions(target), 1);
  EXPECT_EQ(run.sink->num_ends(), 1);
  EXPECT_EQ(other.sink->num_ends(), 0);
}

TEST_F(DispatcherTimeTest, TheEarliestDeadlineIsTheOneAnnounced) {
  AddTarget();
  Start(Until("late", 9000));
  Start(Until("later", 9500));
  Start(Until("soon", 7000));
  EXPECT_THAT(wakes_, ElementsAre(9000, 7000));
  now_ns_ = 8000;
  EXPECT_EQ(dispatcher_.Tick(), 9000);
}

TEST_F(DispatcherTimeTest, AnEndedRequestHasNoDeadlineAnyMore) {
  const Worker target = AddTarget();
  const Run run = Start(Until("r", 5000));
  Verdict(target, run.id, 2, {'x'}, FinishReason::kLength);
  now_ns_ = 6000;
  EXPECT_EQ(dispatcher_.Tick(), kNever);
  EXPECT_TRUE(run.sink->completion().has_value());
  EXPECT_EQ(run.sink->num_ends(), 1);
}

// gRPC cancels a call whose deadline has passed.
TEST_F(DispatcherTimeTest, ACancelAfterTheDeadlineIsTheDeadlines) {
  AddTarget();
  const Run run = Start(Until("r", 5000));
  now_ns_ = 5000;
  dispatcher_.Cancel(run.id);
  EXPECT_EQ(run.sink->error().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(run.sink->num_ends(), 1);
}

class DispatcherLimitTest : public DispatcherTimeTest {
 protected:
  DispatcherLimitTest()
      : DispatcherTimeTest([](Dispatcher::Options* options) {
          options->max_request_ns = 1000;
          options->client_timeout_ns = 400;
        }) {}
};

TEST_F(DispatcherLimitTest, TheServerCapsTheClientsDeadline) {
  AddTarget();
  const Run endless = Start("endless");
  const Run longer = Start(Until("longer", 1000000));
  const Run shorter = Start(Until("shorter", 1500));
  RequestSpec early = Request("early");
  early.arrival_ns = 600;  // it was parsed for 400
  const Run parsed = Start(early);
  now_ns_ = 1500;
  EXPECT_EQ(dispatcher_.Tick(), 1600);
  EXPECT_EQ(shorter.sink->error().code(), absl::StatusCode::kDeadlineExceeded);
  now_ns_ = 1600;
  EXPECT_EQ(dispatcher_.Tick(), 2000);
  EXPECT_EQ(parsed.sink->num_ends(), 1);
  EXPECT_EQ(endless.sink->num_ends(), 0);
  now_ns_ = 2000;
  EXPECT_EQ(dispatcher_.Tick(), kNever);
  EXPECT_EQ(endless.sink->error().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(longer.sink->error().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(DispatcherLimitTest, AClientThatTakesNothingIsCutOff) {
  const Worker target = AddTarget();
  const Run run = Start();
  target.client->Take();
  run.sink->set_pending_chunks(100);
  Verdict(target, run.id, 2, std::vector<int32_t>(20, 'x'));
  EXPECT_THAT(target.client->Take(), IsEmpty());  // no acknowledgement
  now_ns_ = 1399;
  EXPECT_EQ(dispatcher_.Tick(), 1400);
  EXPECT_EQ(run.sink->num_ends(), 0);
  now_ns_ = 1400;
  dispatcher_.Tick();
  EXPECT_TRUE(run.sink->abandoned());
  EXPECT_EQ(run.sink->error().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(run.sink->error().message()),
              HasSubstr("20 tokens were generated"));
  EXPECT_THAT(target.client->Take(),
              ElementsAre(absl::StrCat("close ", run.id)));
}

// It has nothing to take until its session goes on.
TEST_F(DispatcherLimitTest, AClientIsNotCutOffWhileItsSessionIsHeld) {
  const Worker target = AddTarget("t0");
  const Run run = Start();
  run.sink->set_pending_chunks(100);
  Verdict(target, run.id, 2, std::vector<int32_t>(20, 'x'));
  dispatcher_.RemoveWorker(target.id);
  now_ns_ = 1400;
  dispatcher_.Tick();
  EXPECT_FALSE(run.sink->abandoned());
  EXPECT_EQ(run.sink->num_ends(), 0) << run.sink->error();
  AddTarget("t1");
  EXPECT_EQ(TargetAddress(run.id), "t1");
}

TEST_F(DispatcherLimitTest, WhatItTookBeforeBuysNoTime) {
  const Worker target = AddTarget();
  const Run run = Start();
  run.sink->set_pending_chunks(101);
  run.sink->set_pending_chunks(100);
  Verdict(target, run.id, 2, std::vector<int32_t>(20, 'x'));
  now_ns_ = 1400;
  dispatcher_.Tick();
  EXPECT_TRUE(run.sink->abandoned());
  EXPECT_EQ(run.sink->error().code(), absl::StatusCode::kCancelled);
}

TEST_F(DispatcherLimitTest, AClientThatReadsSlowlyIsNot) {
  const Worker target = AddTarget();
  const Run run = Start();
  run.sink->set_pending_chunks(100);
  Verdict(target, run.id, 2, std::vector<int32_t>(20, 'x'));
  now_ns_ = 1400;
  run.sink->set_pending_chunks(99);
  EXPECT_EQ(dispatcher_.Tick(), 1800);
  now_ns_ = 1700;
  run.sink->set_pending_chunks(0);
  dispatcher_.OnSinkDrained(run.id);
  now_ns_ = 1800;
  EXPECT_EQ(dispatcher_.Tick(), 2000);  // only its deadline is left
  EXPECT_EQ(run.sink->num_ends(), 0);
  EXPECT_FALSE(run.sink->abandoned());
}

TEST_F(DispatcherLimitTest, NorWhileMoreIsMadeThanItTakes) {
  const Worker target = AddTarget();
  const Run run = Start();
  run.sink->set_pending_chunks(33);
  Verdict(target, run.id, 2, std::vector<int32_t>(20, 'x'));
  run.sink->set_pending_chunks(32);
  run.sink->set_pending_chunks(60);
  now_ns_ = 1400;
  EXPECT_EQ(dispatcher_.Tick(), 1800);
  EXPECT_EQ(run.sink->num_ends(), 0);
}

class ReadingClientTest : public DispatcherTimeTest {
 protected:
  ReadingClientTest()
      : DispatcherTimeTest([](Dispatcher::Options* options) {
          options->client_timeout_ns = 400;
        }) {}
};

// However long its target says nothing.
TEST_F(ReadingClientTest, AClientThatHasTakenAllIsWaitedForNoMore) {
  const Worker target = AddTarget();
  const Run run = Start();
  run.sink->set_pending_chunks(100);
  Verdict(target, run.id, 2, std::vector<int32_t>(20, 'x'));
  run.sink->set_pending_chunks(0);
  dispatcher_.OnSinkDrained(run.id);
  for (now_ns_ = 1400; now_ns_ < 4000; now_ns_ += 400) {
    EXPECT_EQ(dispatcher_.Tick(), kNever);
  }
  EXPECT_FALSE(run.sink->abandoned());
  EXPECT_EQ(run.sink->num_ends(), 0) << run.sink->error();
}

class DispatcherChoicesTest : public DispatcherTest {
 protected:
  static RequestSpec Choice(const std::string& id, int choice) {
    RequestSpec request = Request(id);
    request.num_choices = 3;
    request.choice = choice;
    return request;
  }
};

TEST_F(DispatcherChoicesTest, ShareTheirIdUntilTheLastHasEnded) {
  const Worker target = AddTarget();
  std::vector<Run> runs;
  for (int i = 0; i < 3; ++i) runs.push_back(Start(Choice("r", i)));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(dispatcher_.Start(Choice("r", 0), runs[0].sink).status().code(),
              absl::StatusCode::kAlreadyExists);
    Verdict(target, runs[i].id, 2, {'x'}, FinishReason::kLength);
    EXPECT_TRUE(runs[i].sink->completion().has_value());
  }
  Start(Choice("r", 0));
}

TEST_F(DispatcherChoicesTest, AreListedByTheirIndex) {
  AddTarget();
  for (int i = 0; i < 3; ++i) Start(Choice("r", i));
  std::vector<int> choices;
  for (const SessionStatus& session : dispatcher_.sessions()) {
    EXPECT_EQ(session.request_id, "r");
    choices.push_back(session.choice);
  }
  EXPECT_THAT(choices, ::testing::UnorderedElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace nacre::coordinator
