// What the engines of both workers have in common, on each of them.

#include "worker/engine/session_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/draft_worker/draft_fixture.h"
#include "tests/target_worker/target_fixture.h"

namespace nacre::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Both open sessions with room for 500 positions, which do not end by
// themselves.
struct OnTarget {
  using Fixture = target_worker::TargetFixture;
  using Commands = target_worker::TargetCommands;
  using OpenMessage = target_worker::OpenTarget;

  static OpenMessage Open(uint64_t id, std::vector<int32_t> prompt) {
    const int max_tokens = 500 - static_cast<int>(prompt.size());
    return target_worker::MakeOpen(id, std::move(prompt), max_tokens);
  }
  static void NoteOpening(const OpenMessage& open, Fixture& fixture) {
    fixture.tokens[open.session_id] = open.token_ids;
  }
  static size_t Said(Fixture& fixture) { return fixture.verdicts.size(); }
};

struct OnDraft {
  using Fixture = draft_worker::DraftFixture;
  using Commands = draft_worker::DraftCommands;
  using OpenMessage = draft_worker::OpenDraft;

  static OpenMessage Open(uint64_t id, std::vector<int32_t> prompt) {
    return draft_worker::MakeOpen(id, std::move(prompt), 5);
  }
  static void NoteOpening(const OpenMessage&, Fixture&) {}
  static size_t Said(Fixture& fixture) {
    size_t said = 0;
    for (const auto& [id, tails] : fixture.tails) said += tails.size();
    return said;
  }
};

template <typename Worker>
class SessionEngineTest : public ::testing::Test {
 protected:
  using Commands = typename Worker::Commands;

  static std::vector<int32_t> Prompt() { return {3, 1, 4, 1, 5, 9}; }

  static Commands Of(StreamId stream) {
    Commands commands;
    commands.stream = stream;
    return commands;
  }
  static void AddOpen(uint64_t id, Commands& commands,
                      typename Worker::Fixture& fixture) {
    commands.open.push_back(Worker::Open(id, Prompt()));
    Worker::NoteOpening(commands.open.back(), fixture);
  }
  static void Open(uint64_t id, typename Worker::Fixture& fixture,
                   StreamId stream = 1) {
    Commands commands = Of(stream);
    AddOpen(id, commands, fixture);
    fixture.engine->Push(std::move(commands));
  }

  // A model that calls `during` in its next forward, once.
  nacre::testing::TableModelOptions Calling(std::function<void()>* during) {
    nacre::testing::TableModelOptions options;
    options.on_forward = [during](int) {
      if (*during) std::exchange(*during, nullptr)();
      return absl::OkStatus();
    };
    return options;
  }
};

using Workers = ::testing::Types<OnTarget, OnDraft>;
struct WorkerNames {
  template <typename Worker>
  static std::string GetName(int) {
    return std::is_same_v<Worker, OnTarget> ? "Target" : "Draft";
  }
};
TYPED_TEST_SUITE(SessionEngineTest, Workers, WorkerNames);

TYPED_TEST(SessionEngineTest, FreesKvOnCloseAndWhenTheStreamEnds) {
  typename TypeParam::Fixture fixture;
  const int64_t free = fixture.model.kv_free_tokens();
  this->Open(1, fixture);
  this->Open(2, fixture, /*stream=*/2);
  fixture.Drain();
  EXPECT_EQ(fixture.model.kv_free_tokens(), free - 1000);
  auto close = this->Of(1);
  close.close = {1};
  fixture.engine->Push(close);
  fixture.Drain();
  EXPECT_THAT(fixture.closed, ElementsAre(1));
  EXPECT_EQ(fixture.model.kv_free_tokens(), free - 500);
  auto end = this->Of(2);
  end.stream_ended = true;
  fixture.engine->Push(end);
  fixture.Drain();
  EXPECT_EQ(fixture.model.kv_free_tokens(), free);
  EXPECT_EQ(fixture.engine->stats().sessions, 0);
  EXPECT_EQ(fixture.model.num_sequences(), 0);
}

TYPED_TEST(SessionEngineTest, AStreamMayEndDuringAForward) {
  std::function<void()> during;
  typename TypeParam::Fixture fixture(this->Calling(&during));
  const int64_t free = fixture.model.kv_free_tokens();
  during = [&] {
    auto end = this->Of(1);
    end.stream_ended = true;
    fixture.engine->Push(end);
  };
  this->Open(1, fixture);
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  EXPECT_EQ(TypeParam::Said(fixture), 0u);
  EXPECT_EQ(fixture.model.kv_free_tokens(), free);
}

TYPED_TEST(SessionEngineTest, ClosesWhatIsNotKept) {
  typename TypeParam::Fixture fixture;
  const int64_t free = fixture.model.kv_free_tokens();
  for (const uint64_t id : {1, 2, 3}) this->Open(id, fixture);
  this->Open(9, fixture, /*stream=*/2);
  fixture.Drain();
  const int64_t each = (free - fixture.model.kv_free_tokens()) / 4;

  // The close of session 2 was lost. What the same message opens is kept.
  auto kept = this->Of(1);
  kept.kept = {1, 3};
  this->AddOpen(4, kept, fixture);
  fixture.engine->Push(kept);
  fixture.Drain();
  EXPECT_THAT(fixture.closed, ElementsAre(2));
  EXPECT_EQ(fixture.engine->stats().sessions, 4);
  EXPECT_EQ(fixture.engine->stats().reaped_sessions, 1u);
  EXPECT_EQ(fixture.model.kv_free_tokens(), free - 4 * each);

  // Nothing is kept: but for another coordinator's stream nothing is left.
  kept.open.clear();
  kept.kept.emplace();
  fixture.engine->Push(kept);
  this->Open(5, fixture);
  fixture.Drain();
  EXPECT_THAT(fixture.closed, ElementsAre(2, 1, 3, 4));
  EXPECT_EQ(fixture.engine->stats().sessions, 2);
  EXPECT_EQ(fixture.engine->stats().reaped_sessions, 4u);
  EXPECT_EQ(fixture.engine->stats().rejected_messages, 0u);

  // Unknown ids, and saying it again, change nothing.
  kept.kept = {5, 77};
  fixture.engine->Push(kept);
  fixture.engine->Push(kept);
  fixture.Drain();
  EXPECT_EQ(fixture.engine->stats().sessions, 2);
  EXPECT_EQ(fixture.engine->stats().reaped_sessions, 4u);
  EXPECT_EQ(fixture.engine->stats().kept_lists, 4u);
}

// A close and a kept set may both arrive during the session's own step.
TYPED_TEST(SessionEngineTest, ReapsASessionWhoseStepRuns) {
  std::function<void()> during;
  typename TypeParam::Fixture fixture(this->Calling(&during));
  const int64_t free = fixture.model.kv_free_tokens();
  during = [&] {
    auto kept = this->Of(1);
    kept.kept.emplace();
    fixture.engine->Push(kept);
    fixture.engine->Push(kept);
  };
  this->Open(1, fixture);
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  EXPECT_THAT(fixture.closed, ElementsAre(1));
  EXPECT_EQ(fixture.model.kv_free_tokens(), free);
  EXPECT_EQ(fixture.engine->stats().reaped_sessions, 1u);
}

TYPED_TEST(SessionEngineTest, ClosesOfUnknownSessionsAreCounted) {
  typename TypeParam::Fixture fixture;
  this->Open(1, fixture);
  auto commands = this->Of(2);  // another stream: session 1 is not its own
  commands.close = {1};
  commands.malformed.resize(2);
  fixture.engine->Push(commands);
  fixture.Drain();
  EXPECT_THAT(fixture.closed, IsEmpty());
  EXPECT_EQ(fixture.engine->stats().sessions, 1);
  EXPECT_EQ(fixture.engine->stats().rejected_messages, 3u);
}

TYPED_TEST(SessionEngineTest, AFailedForwardFailsTheSessionsOfItsStep) {
  nacre::testing::TableModelOptions options;
  options.on_forward = [](int) { return absl::InternalError("out of luck"); };
  typename TypeParam::Fixture fixture(options);
  const int64_t free = fixture.model.kv_free_tokens();
  this->Open(1, fixture);
  EXPECT_EQ(fixture.engine->RunOnce().status(),
            absl::InternalError("out of luck"));
  EXPECT_EQ(fixture.failures[1],
            absl::InternalError("the forward failed: out of luck"));
  EXPECT_EQ(fixture.engine->stats().sessions, 0);
  EXPECT_EQ(fixture.model.kv_free_tokens(), free);
}

// A node of several is lost: nothing is wrong with the session.
TYPED_TEST(SessionEngineTest, SessionsOfALostPartMayGoOnElsewhere) {
  nacre::testing::TableModelOptions options;
  options.on_forward = [](int) { return absl::UnavailableError("it is lost"); };
  typename TypeParam::Fixture fixture(options);
  this->Open(1, fixture);
  EXPECT_EQ(fixture.engine->RunOnce().status(),
            absl::UnavailableError("it is lost"));
  EXPECT_EQ(fixture.failures[1],
            absl::AbortedError("the forward failed: it is lost"));
}

// The worker is busy meanwhile, but a step of as many rows does not take that.
TYPED_TEST(SessionEngineTest, WhatAPlanBringsBackIsNoPartOfItsStepsTime) {
  int64_t* now_ns = nullptr;
  nacre::testing::TableModelOptions options;
  options.on_take_over = [&now_ns] {
    *now_ns += 1'000'000;
    return false;
  };
  options.on_forward = [&now_ns](int) {
    *now_ns += 5'000;
    return absl::OkStatus();
  };
  typename TypeParam::Fixture fixture(options);
  now_ns = &fixture.now_ns;
  this->Open(1, fixture);
  ASSERT_TRUE(fixture.engine->RunOnce()->stepped);
  ASSERT_FALSE(fixture.spans.empty());
  const wire::Span& step = fixture.spans.front();
  EXPECT_GT(step.start_ns, 1'000'000);
  EXPECT_GE(step.duration_ns, 5'000);
  EXPECT_LT(step.duration_ns, 100'000);
  const TimePartition::Totals time = fixture.engine->stats().time;
  EXPECT_LT(time[WorkerState::kNoWork], 100'000);
  EXPECT_GT(time.elapsed_ns, 1'005'000);
}

TYPED_TEST(SessionEngineTest, BringingBackWithoutAStepIsNoWaiting) {
  int64_t* now_ns = nullptr;
  int more = 2;
  nacre::testing::TableModelOptions options;
  options.on_take_over = [&now_ns, &more] {
    *now_ns += 1'000'000;
    return --more > 0;
  };
  typename TypeParam::Fixture fixture(options);
  now_ns = &fixture.now_ns;
  this->Open(1, fixture);
  const auto outcome = fixture.engine->RunOnce();
  ASSERT_TRUE(outcome.ok());
  EXPECT_FALSE(outcome->stepped);
  ASSERT_TRUE(outcome->deadline_ns.has_value());
  EXPECT_LT(*outcome->deadline_ns, fixture.now_ns) << "it goes on at once";
  const TimePartition::Totals time = fixture.engine->stats().time;
  EXPECT_GE(time[WorkerState::kPrefill], 1'000'000);
  EXPECT_LT(time.elapsed_ns - time[WorkerState::kPrefill], 100'000);
  EXPECT_TRUE(fixture.engine->RunOnce()->stepped);
}

TYPED_TEST(SessionEngineTest, ASecondOpenOfASessionIsRefused) {
  typename TypeParam::Fixture fixture;
  this->Open(1, fixture);
  fixture.Drain();
  auto again = this->Of(1);
  again.open.push_back(TypeParam::Open(1, this->Prompt()));
  fixture.engine->Push(again);
  fixture.Drain();
  ASSERT_EQ(fixture.failures.size(), 1u);
  EXPECT_EQ(fixture.failures[1],
            absl::AlreadyExistsError("session 1 is already open"));
  EXPECT_EQ(fixture.engine->stats().sessions, 1);
}

TYPED_TEST(SessionEngineTest, RefusesWhatNoSessionCanBeOpenedWith) {
  using OpenMessage = typename TypeParam::OpenMessage;
  struct BadOpen {
    std::function<void(OpenMessage&)> change;
    const char* message;
  };
  const std::vector<BadOpen> bad = {
      {[](OpenMessage& o) { o.prompt_length = 0; },
       "prompt_length 0 is outside 1 to 6"},
      {[](OpenMessage& o) { o.prompt_length = 7; },
       "prompt_length 7 is outside 1 to 6"},
      {[](OpenMessage& o) { o.token_ids.clear(); }, "prompt_length 6"},
      {[](OpenMessage& o) { o.token_ids[3] = -1; }, "token_ids[3] is -1"},
      {[](OpenMessage& o) { o.token_ids[5] = 16; },
       "token_ids[5] is 16, outside the vocabulary of 16"},
      {[](OpenMessage& o) {
         o.sampling.temperature = std::numeric_limits<float>::quiet_NaN();
       },
       "temperature"},
      {[](OpenMessage& o) {
         o.refusal = absl::InvalidArgumentError("too many");
       },
       "too many"}};
  for (const BadOpen& each : bad) {
    SCOPED_TRACE(each.message);
    typename TypeParam::Fixture fixture;
    const int64_t free = fixture.model.kv_free_tokens();
    auto commands = this->Of(1);
    commands.open.push_back(TypeParam::Open(1, this->Prompt()));
    each.change(commands.open.back());
    fixture.engine->Push(commands);
    fixture.Drain();
    ASSERT_EQ(fixture.failures.size(), 1u);
    EXPECT_EQ(fixture.failures[1].code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(fixture.failures[1].message()),
                HasSubstr(each.message));
    EXPECT_THAT(fixture.opened, IsEmpty());
    EXPECT_EQ(fixture.model.kv_free_tokens(), free);
  }
}

}  // namespace
}  // namespace nacre::worker
