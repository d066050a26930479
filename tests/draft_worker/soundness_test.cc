// What the draft engine does about logits that are no numbers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/draft_worker/draft_fixture.h"

namespace nacre::draft_worker {
namespace {

using ::testing::HasSubstr;

TableModelOptions BadFrom(size_t length, bool draws) {
  TableModelOptions options;
  options.draws_tokens = draws;
  options.on_row = [length](absl::Span<const int32_t> tokens,
                            std::vector<float>* row) {
    if (tokens.size() < length || tokens[0] != 15) return;
    row->assign(row->size(), std::numeric_limits<float>::quiet_NaN());
  };
  return options;
}

OpenDraft Plain(uint64_t id, std::vector<int32_t> prompt) {
  OpenDraft open = MakeOpen(id, std::move(prompt), 8);
  open.sampling.repetition_penalty = 1.0f;
  return open;
}

// The target goes on without it: the session's, and no other's.
TEST(DraftSoundnessTest, ItDropsOutOfTheSession) {
  for (const bool draws : {false, true}) {
    DraftFixture fixture(BadFrom(7, draws));
    const OpenDraft bad = Plain(1, {15, 2, 3, 4, 5});
    const OpenDraft good = Plain(2, {1, 2, 3, 4, 5});
    fixture.Open(bad);
    fixture.Open(good);
    fixture.Drain();
    ASSERT_EQ(fixture.failures.size(), 1u);
    EXPECT_EQ(fixture.failures[1].code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(fixture.failures[1].message()),
                HasSubstr("NaN or infinite"));
    // Or a later opening of its number would take it for its own.
    EXPECT_EQ(fixture.failure_epochs[1], bad.epoch);
    EXPECT_EQ(fixture.TakeDrafted(1),
              Continue(fixture.model, bad, bad.token_ids, 2));
    EXPECT_EQ(fixture.TakeDrafted(2),
              Continue(fixture.model, good, good.token_ids, 8));
    EXPECT_EQ(fixture.engine->stats().nonfinite_logits, 1u);
    EXPECT_FALSE(fixture.engine->stats().computes_wrongly);
    EXPECT_EQ(fixture.engine->stats().sessions, 1);
  }
}

TEST(DraftSoundnessTest, APromptsKvIsSharedOnlyWhereItIsSound) {
  for (const bool draws : {false, true}) {
    DraftFixture fixture(BadFrom(20, draws), {.max_rows = 8});
    std::vector<int32_t> prompt = Prompt(50, 2);
    prompt[0] = 15;
    fixture.Open(Plain(1, prompt));
    fixture.Drain();
    EXPECT_EQ(fixture.failures.size(), 1u);
    EXPECT_EQ(fixture.model.most_shared(), 16);
  }
}

// Only where its own canary fails, too, is the device not to be trusted.
TEST(DraftSoundnessTest, StepAfterStepTheCanaryDecides) {
  for (const bool device_is_bad : {false, true}) {
    bool bad = false;
    TableModelOptions options = BadFrom(0, false);
    options.on_row = [&bad, prompt = options.on_row](
                         absl::Span<const int32_t> tokens,
                         std::vector<float>* row) {
      prompt(tokens, row);
      if (bad) (*row)[0] += 1.0f;
    };
    DraftFixture fixture(options);
    ASSERT_TRUE(fixture.engine->Prepare().ok());
    bad = device_is_bad;
    for (uint64_t id = 1; id <= 3; ++id) {
      EXPECT_FALSE(fixture.engine->stats().computes_wrongly);
      fixture.Open(Plain(id, {15, 2, 3}));
      fixture.Drain();
      EXPECT_EQ(fixture.failures.size(), id);
    }
    EXPECT_EQ(fixture.engine->stats().computes_wrongly, device_is_bad);
  }
}

// Its answer is to be had although a commit is waiting.
TEST(DraftSoundnessTest, NobodyInterruptsTheCanary) {
  DraftFixture* during = nullptr;
  TableModelOptions options = BadFrom(0, false);
  options.is_interruptible = true;
  options.on_forward = [&during](int rows) {
    if (during != nullptr && rows == 16) {
      DraftCommands ended;
      ended.stream = 1;
      ended.stream_ended = true;
      during->engine->Push(std::move(ended));
    }
    return absl::OkStatus();
  };
  DraftFixture fixture(options);
  ASSERT_TRUE(fixture.engine->Prepare().ok());
  during = &fixture;
  for (uint64_t id = 1; id <= 3; ++id) {
    fixture.Open(Plain(id, {15, 2, 3}));
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
  }
  EXPECT_EQ(fixture.engine->stats().abandoned_steps, 0u);
  EXPECT_FALSE(fixture.engine->stats().computes_wrongly);
}

// Opened after an end token, as after a move: it says something.
TEST(DraftSoundnessTest, AnEndAmongTheOpenedTokensDoesNotSilenceIt) {
  DraftFixture fixture;
  OpenDraft open = Plain(1, {1, 2, 3});
  open.token_ids.push_back(7);
  open.end_token_ids = {7};
  fixture.Open(open);
  OpenDraft full = open;  // as long as it may be
  full.session_id = 2;
  full.max_length = 4;
  fixture.Open(full);
  fixture.Drain();
  EXPECT_FALSE(fixture.TakeDrafted(1).empty());
  ASSERT_EQ(fixture.tails[2].size(), 1u);
  EXPECT_EQ(fixture.tails[2][0].stop, speculation::StopMark::kEnd);
}

}  // namespace
}  // namespace nacre::draft_worker
