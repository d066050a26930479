// Steps that are abandoned because what they draft has become pointless.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "draft_worker/draft_engine.h"
#include "tests/draft_worker/draft_fixture.h"

namespace nacre::draft_worker {
namespace {

using wire::Span;

// What happens during the next forward, of a model that asks afterwards
// whether to go on.
class InterruptTest : public ::testing::Test {
 protected:
  InterruptTest() : fixture_(ModelOptions()) {}

  TableModelOptions ModelOptions() {
    TableModelOptions options;
    options.is_interruptible = true;
    options.on_forward = [this](int) {
      if (during_) std::exchange(during_, nullptr)();
      return absl::OkStatus();
    };
    options.on_row = [this](absl::Span<const int32_t>, std::vector<float>*) {
      if (late_) std::exchange(late_, nullptr)();
    };
    return options;
  }

  // Opens a session and lets it draft one token, which is returned.
  int32_t OpenAndDraftOne(const OpenDraft& open) {
    fixture_.Open(open);
    EXPECT_TRUE(fixture_.engine->RunOnce().ok());
    const std::vector<int32_t> drafted = fixture_.TakeDrafted(open.session_id);
    EXPECT_EQ(drafted.size(), 1u);
    return drafted.empty() ? -1 : drafted[0];
  }

  uint64_t abandoned() const {
    return fixture_.engine->stats().abandoned_steps;
  }

  std::function<void()> during_;
  std::function<void()> late_;  // after the model has asked
  DraftFixture fixture_;
};

TEST_F(InterruptTest, AMismatchAbandonsTheStep) {
  const OpenDraft open = MakeOpen(1, Prompt(1, 4), 4);
  const int32_t drafted = OpenAndDraftOne(open);
  const std::vector<int32_t> commit = {(drafted + 1) % 16};
  fixture_.spans.clear();
  during_ = [&] { fixture_.Commit(1, 1, commit); };
  ASSERT_TRUE(fixture_.engine->RunOnce().ok());
  EXPECT_EQ(abandoned(), 1u);
  EXPECT_EQ(fixture_.engine->stats().steps, 1u);
  EXPECT_TRUE(fixture_.tails[1].empty());
  int num_spans = 0;
  for (const Span& span : fixture_.spans) {
    if (span.kind != Span::Kind::kDraft) continue;
    ++num_spans;
    EXPECT_TRUE(span.abandoned);
    EXPECT_EQ(span.length, 0);
  }
  EXPECT_EQ(num_spans, 1);

  fixture_.Drain();
  EXPECT_EQ(fixture_.TakeDrafted(1),
            Continue(fixture_.model, open, Joined(open.token_ids, commit), 4));
  EXPECT_EQ(abandoned(), 1u);
}

TEST_F(InterruptTest, ACommitBeyondTheDraftAbandonsTheStep) {
  const OpenDraft open = MakeOpen(1, Prompt(1, 4), 4);
  const std::vector<int32_t> commit = {OpenAndDraftOne(open), 3};
  during_ = [&] { fixture_.Commit(1, 1, commit); };
  ASSERT_TRUE(fixture_.engine->RunOnce().ok());
  EXPECT_EQ(abandoned(), 1u);
  fixture_.Drain();
  EXPECT_EQ(fixture_.TakeDrafted(1),
            Continue(fixture_.model, open, Joined(open.token_ids, commit), 4));
}

TEST_F(InterruptTest, AMatchAndAPlanDoNot) {
  const OpenDraft open = MakeOpen(1, Prompt(1, 4), 4);
  const int32_t drafted = OpenAndDraftOne(open);
  during_ = [&] {
    fixture_.Commit(1, 1, {drafted});
    DraftCommands plan;
    plan.stream = 1;
    plan.plans.push_back({1, {5, 5}});
    fixture_.engine->Push(std::move(plan));
  };
  ASSERT_TRUE(fixture_.engine->RunOnce().ok());
  EXPECT_EQ(abandoned(), 0u);
  EXPECT_EQ(fixture_.TakeDrafted(1).size(), 1u);
}

// The order in which commands came is the one in which they apply, those that
// were looked at during the step first.
TEST_F(InterruptTest, CommandsApplyInTheirOrder) {
  const OpenDraft open = MakeOpen(1, Prompt(1, 4), 4);
  const int32_t drafted = OpenAndDraftOne(open);
  const std::vector<int32_t> commit = {drafted, 5, 6, 7};
  during_ = [&] {
    fixture_.Commit(1, 1, {commit[0], commit[1]});
    fixture_.Commit(1, 3, {commit[2]});
  };
  ASSERT_TRUE(fixture_.engine->RunOnce().ok());
  EXPECT_EQ(abandoned(), 1u);
  fixture_.Commit(1, 4, {commit[3]});
  fixture_.Drain();
  EXPECT_EQ(fixture_.engine->stats().rejected_messages, 0u);
  EXPECT_EQ(fixture_.TakeDrafted(1),
            Continue(fixture_.model, open, Joined(open.token_ids, commit), 4));
}

// Those that came in the same step, but after the look at the others, too.
TEST_F(InterruptTest, WhatWasLookedAtAppliesBeforeWhatCameLaterInTheStep) {
  const OpenDraft open = MakeOpen(1, Prompt(1, 4), 4);
  const int32_t drafted = OpenAndDraftOne(open);
  const std::vector<int32_t> commit = {drafted, 5, 6};
  during_ = [&] { fixture_.Commit(1, 1, {commit[0]}); };
  late_ = [&] { fixture_.Commit(1, 2, {commit[1], commit[2]}); };
  ASSERT_TRUE(fixture_.engine->RunOnce().ok());
  EXPECT_EQ(late_, nullptr);
  EXPECT_EQ(fixture_.engine->stats().rejected_messages, 0u);
  fixture_.TakeDrafted(1);
  fixture_.Drain();
  EXPECT_EQ(fixture_.engine->stats().rejected_messages, 0u);
  EXPECT_EQ(fixture_.TakeDrafted(1),
            Continue(fixture_.model, open, Joined(open.token_ids, commit), 4));
}

TEST_F(InterruptTest, AnotherSessionsStepGoesOn) {
  const OpenDraft first = MakeOpen(1, Prompt(1, 4), 4);
  const OpenDraft second = MakeOpen(2, Prompt(1, 3), 4);
  const int32_t drafted = OpenAndDraftOne(first);
  fixture_.Open(second);
  ASSERT_TRUE(fixture_.engine->RunOnce().ok());
  const std::vector<int32_t> more = fixture_.TakeDrafted(1);
  ASSERT_EQ(more.size(), 1u);
  const std::vector<int32_t> commit = {(drafted + 1) % 16};
  during_ = [&] { fixture_.Commit(1, 1, commit); };
  ASSERT_TRUE(fixture_.engine->RunOnce().ok());
  EXPECT_EQ(abandoned(), 0u);
  fixture_.Drain();
  EXPECT_EQ(
      fixture_.TakeDrafted(1),
      Continue(fixture_.model, first, Joined(first.token_ids, commit), 4));
  EXPECT_EQ(fixture_.TakeDrafted(2),
            Continue(fixture_.model, second, second.token_ids, 4));
}

TEST_F(InterruptTest, APromptsRowsAreOfUseWhateverIsCommitted) {
  fixture_.Open(MakeOpen(1, Prompt(40, 4), 4));
  // The draft has not said anything yet: the commit goes beyond what it has.
  during_ = [&] { fixture_.Commit(1, 40, {3}); };
  ASSERT_TRUE(fixture_.engine->RunOnce().ok());
  EXPECT_EQ(fixture_.model.num_rows(), 39);
  EXPECT_EQ(abandoned(), 0u);
  fixture_.Drain();
  EXPECT_FALSE(fixture_.tails[1].empty());
}

TEST_F(InterruptTest, AClosedSessionsStepIsAbandoned) {
  const int64_t free = fixture_.model.kv_free_tokens();
  OpenAndDraftOne(MakeOpen(1, Prompt(1, 4), 4));
  during_ = [&] {
    DraftCommands close;
    close.stream = 1;
    close.close.push_back(1);
    fixture_.engine->Push(std::move(close));
  };
  ASSERT_TRUE(fixture_.engine->RunOnce().ok());
  EXPECT_EQ(abandoned(), 1u);
  EXPECT_THAT(fixture_.closed, ::testing::ElementsAre(1));
  EXPECT_EQ(fixture_.model.kv_free_tokens(), free);
}

TEST_F(InterruptTest, ALostStreamsPromptIsAbandoned) {
  const int64_t free = fixture_.model.kv_free_tokens();
  during_ = [&] {
    DraftCommands end;
    end.stream = 1;
    end.stream_ended = true;
    fixture_.engine->Push(std::move(end));
  };
  fixture_.Open(MakeOpen(1, Prompt(40, 4), 4));
  ASSERT_TRUE(fixture_.engine->RunOnce().ok());
  EXPECT_EQ(abandoned(), 1u);
  EXPECT_EQ(fixture_.engine->stats().sessions, 0);
  EXPECT_EQ(fixture_.model.kv_free_tokens(), free);
}

}  // namespace
}  // namespace nacre::draft_worker
