// What the target engine does about logits that are no numbers.

#include "worker/engine/soundness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "speculation/ratio_test.h"
#include "tests/target_worker/target_fixture.h"

namespace nacre::target_worker {
namespace {

using nacre::testing::TableModelOptions;
using ::testing::HasSubstr;
using worker::Soundness;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows after `length` tokens and more become `value`, all or one of them.
TableModelOptions BadFrom(size_t length, float value, bool all = true) {
  TableModelOptions options;
  options.on_row = [=](absl::Span<const int32_t> tokens,
                       std::vector<float>* row) {
    if (tokens.size() < length) return;
    if (all) {
      row->assign(row->size(), value);
    } else {
      (*row)[5] = value;
    }
  };
  return options;
}

void ExpectUnsound(const TargetFixture& fixture, uint64_t session_id) {
  ASSERT_TRUE(fixture.failures.contains(session_id));
  const absl::Status& status = fixture.failures.at(session_id);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);  // it may move
  EXPECT_THAT(std::string(status.message()), HasSubstr("NaN or infinite"));
}

TEST(TargetSoundnessTest, ASessionFailsAtItsFirstUnsoundRow) {
  for (const bool draws : {false, true}) {
    for (const float value : {kNaN, kInfinity, -kInfinity}) {
      for (const float temperature : {0.0f, 0.8f}) {
        TableModelOptions options = BadFrom(9, value);
        options.draws_tokens = draws;
        TargetFixture fixture(options);
        const int64_t free = fixture.model.kv_free_tokens();
        OpenTarget open = MakeOpen(1, Prompt(5, 2), 40);
        open.sampling.temperature = temperature;
        const std::vector<int32_t> truth = Autoregressive(fixture.model, open);
        fixture.Open(open);
        fixture.RunToEnd(1);
        ExpectUnsound(fixture, 1);
        // What came before is the model's own; nothing of token 0.
        EXPECT_EQ(fixture.tokens[1],
                  std::vector<int32_t>(truth.begin(), truth.begin() + 9));
        EXPECT_EQ(fixture.model.most_shared(), 8);
        EXPECT_EQ(fixture.model.kv_free_tokens(), free);
        EXPECT_EQ(fixture.engine->stats().nonfinite_logits, 1u);
        EXPECT_EQ(fixture.engine->stats().sessions, 0);
      }
    }
  }
}

TEST(TargetSoundnessTest, OneValueIsEnough) {
  for (const bool draws : {false, true}) {
    for (const float value : {kNaN, kInfinity}) {
      TableModelOptions options = BadFrom(7, value, /*all=*/false);
      options.draws_tokens = draws;
      TargetFixture fixture(options);
      fixture.Open(MakeOpen(1, Prompt(5, 2), 40));
      fixture.RunToEnd(1);
      ExpectUnsound(fixture, 1);
      EXPECT_EQ(fixture.tokens[1].size(), 7u);
    }
  }
}

// Masks of a model, and what a request adds to its logits, are no fault.
TEST(TargetSoundnessTest, MasksBiasesAndPenaltiesAreSound) {
  TargetFixture fixture(BadFrom(0, -kInfinity, /*all=*/false));
  OpenTarget open = MakeOpen(1, Prompt(5, 2), 40);
  open.ignore_eos = true;
  open.min_tokens = 40;
  open.sampling.temperature = 1e-38f;
  open.sampling.repetition_penalty = 3e38f;
  for (int id = 0; id < 16; ++id) {
    open.sampling.logit_bias.push_back({id, -100.0f});
  }
  open.stop_token_ids = {1, 2, 3};
  fixture.Open(open);
  fixture.RunToEnd(1);
  EXPECT_TRUE(fixture.failures.empty());
  EXPECT_EQ(fixture.tokens[1].size(), 45u);
}

// Everything that could be drawn is forbidden: the request's own doing.
TEST(TargetSoundnessTest, ForbiddenEndsAreSound) {
  TableModelOptions options;
  options.on_row = [](absl::Span<const int32_t>, std::vector<float>* row) {
    row->assign(row->size(), -kInfinity);
    (*row)[3] = 1.0f;
  };
  TargetFixture fixture(options);
  OpenTarget open = MakeOpen(1, Prompt(5, 2), 10);
  open.stop_token_ids = {3};
  open.min_tokens = 10;
  fixture.Open(open);
  fixture.RunToEnd(1);
  EXPECT_TRUE(fixture.failures.empty());
  EXPECT_EQ(fixture.finish[1], speculation::FinishReason::kLength);
}

// Its coordinator has closed it and knows it no more, or has another of its id.
TEST(TargetSoundnessTest, ASessionThatIsClosedDuringItsUnsoundStepDoesNotFail) {
  TableModelOptions options = BadFrom(5, kNaN);
  std::function<void()> during;
  options.on_forward = [&during](int) {
    if (during) std::exchange(during, nullptr)();
    return absl::OkStatus();
  };
  TargetFixture fixture(options);
  const int64_t free = fixture.model.kv_free_tokens();
  fixture.Open(MakeOpen(1, Prompt(5, 2), 40));
  during = [&fixture] {
    TargetCommands commands;
    commands.stream = 1;
    commands.close.push_back(1);
    fixture.engine->Push(commands);
  };
  fixture.Drain();
  EXPECT_TRUE(fixture.failures.empty());
  EXPECT_EQ(fixture.closed, std::vector<uint64_t>({1}));
  EXPECT_EQ(fixture.engine->stats().nonfinite_logits, 1u);
  EXPECT_EQ(fixture.model.kv_free_tokens(), free);
}

// A chunk of a prompt has no token to draw, but its KV would be shared.
TEST(TargetSoundnessTest, APromptsKvIsSharedOnlyWhereItIsSound) {
  for (const bool draws : {false, true}) {
    TableModelOptions options = BadFrom(20, kNaN);
    options.draws_tokens = draws;
    TargetFixture fixture(options, {.max_rows = 8});
    fixture.Open(MakeOpen(1, Prompt(50, 2), 40));
    fixture.Drain();
    ExpectUnsound(fixture, 1);
    EXPECT_EQ(fixture.model.most_shared(), 16);
    EXPECT_EQ(fixture.engine->stats().nonfinite_logits, 1u);
    EXPECT_EQ(fixture.tokens[1].size(), 50u);
  }
}

// Rows after the first that differs are of no use, whatever they hold.
TEST(TargetSoundnessTest, RowsOfRejectedTokensDoNotCount) {
  TargetFixture fixture(BadFrom(7, kNaN));
  OpenTarget open = MakeOpen(1, Prompt(5, 2), 2);
  open.has_draft = true;
  open.plan.window = 4;
  open.max_tokens = 2;
  const std::vector<int32_t> truth = Autoregressive(fixture.model, open);
  open.max_tokens = 40;
  fixture.Open(open);
  TargetCommands commands;
  commands.stream = 1;
  speculation::Tail tail;
  tail.base_length = tail.first_position = 5;
  tail.token_ids = {truth[5], (truth[6] + 1) % 16, 3};
  commands.tails.push_back({1, tail});
  fixture.engine->Push(commands);
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  EXPECT_TRUE(fixture.failures.empty());
  EXPECT_EQ(fixture.tokens[1], truth);
  EXPECT_EQ(fixture.engine->stats().nonfinite_logits, 0u);
}

// Also the row that is judged last, before its KV is shared.
TEST(TargetSoundnessTest, TheRatioTestLooksAtEachOfItsRows) {
  for (const size_t bad_from : {5u, 6u}) {
    TargetFixture fixture(BadFrom(bad_from, kNaN));
    OpenTarget open = MakeOpen(1, Prompt(5, 2), 40);
    open.sampling.temperature = 0.8f;
    open.verification = speculation::Verification::kRatio;
    open.has_draft = true;
    open.epoch = 1;
    open.plan = {1, 1, 1, 1'000'000};
    open.plan.holds_last_row = true;
    fixture.Open(open);
    TargetCommands commands;
    commands.stream = 1;
    speculation::Tail tail;
    tail.epoch = 1;
    tail.base_length = tail.first_position = 5;
    // Accepted for certain: the target likes it better than the draft does.
    const std::vector<float> row = fixture.model.Logits(open.token_ids);
    const auto best = std::max_element(row.begin(), row.end()) - row.begin();
    tail.token_ids = {static_cast<int32_t>(best)};
    speculation::DraftDistribution even;
    for (int32_t id = 0; id < 16; ++id) {
      even.token_ids.push_back(id);
      even.weights.push_back(1.0f);
    }
    tail.distributions = {even};
    commands.tails.push_back({1, tail});
    fixture.engine->Push(commands);
    fixture.Drain();
    ExpectUnsound(fixture, 1);
    EXPECT_EQ(fixture.tokens[1].size(), 5u);
    EXPECT_LE(fixture.model.most_shared(), 4);
  }
}

TEST(TargetSoundnessTest, OtherSessionsOfTheStepGoOn) {
  TableModelOptions options;
  options.on_row = [](absl::Span<const int32_t> tokens,
                      std::vector<float>* row) {
    if (tokens[0] == 15) row->assign(row->size(), kNaN);
  };
  TargetFixture fixture(options);
  const OpenTarget good = MakeOpen(1, {1, 2, 3}, 30);
  fixture.Open(good);
  for (uint64_t id = 2; id < 20; ++id) {
    fixture.Open(MakeOpen(id, {15, 2, 3}, 30));
  }
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.tokens[1], Autoregressive(fixture.model, good));
  EXPECT_EQ(fixture.failures.size(), 18u);
  EXPECT_EQ(fixture.engine->stats().nonfinite_logits, 18u);
  EXPECT_FALSE(fixture.engine->stats().computes_wrongly);
}

// However often a client sends what makes a sound device compute no numbers.
TEST(TargetSoundnessTest, APoisonedPromptDoesNotCondemnTheDevice) {
  for (const bool draws : {false, true}) {
    TableModelOptions options;
    options.draws_tokens = draws;
    options.on_row = [](absl::Span<const int32_t> tokens,
                        std::vector<float>* row) {
      if (tokens[0] == 15) row->assign(row->size(), kNaN);
    };
    TargetFixture fixture(options);
    ASSERT_TRUE(fixture.engine->Prepare().ok());
    const int64_t free = fixture.model.kv_free_tokens();
    constexpr int kTimes = 3 * Soundness::kMaxUnsoundSteps;
    for (uint64_t id = 1; id <= kTimes; ++id) {
      fixture.Open(MakeOpen(id, {15, 2, 3}, 30));
      fixture.RunToEnd(id);
      ExpectUnsound(fixture, id);
      EXPECT_FALSE(fixture.engine->stats().computes_wrongly);
    }
    EXPECT_EQ(fixture.engine->stats().nonfinite_logits, uint64_t{kTimes});
    EXPECT_EQ(fixture.model.kv_free_tokens(), free);
    const OpenTarget good = MakeOpen(99, {1, 2, 3}, 30);
    fixture.Open(good);
    fixture.RunToEnd(99);
    EXPECT_EQ(fixture.tokens[99], Autoregressive(fixture.model, good));
  }
}

// A drawing that fails shows in no logits.
TEST(TargetSoundnessTest, TheCanaryIsDrawnToo) {
  bool bad = false;
  TableModelOptions options;
  options.draws_tokens = true;
  options.on_row = [&bad](absl::Span<const int32_t> tokens,
                          std::vector<float>* row) {
    // Of the canary's rows the one before the last is drawn.
    if (bad && tokens.size() != 16) row->assign(row->size(), kNaN);
  };
  TargetFixture fixture(options);
  ASSERT_TRUE(fixture.engine->Prepare().ok());
  bad = true;
  for (uint64_t id = 1; id <= Soundness::kMaxUnsoundSteps; ++id) {
    EXPECT_FALSE(fixture.engine->stats().computes_wrongly);
    fixture.Open(MakeOpen(id, {1, 2, 3}, 30));
    fixture.RunToEnd(id);
  }
  EXPECT_TRUE(fixture.engine->stats().computes_wrongly);
}

// As an error of a step.
TEST(TargetSoundnessTest, ADeviceThatFailsTheCanaryEndsTheEngine) {
  bool fails = false;
  TableModelOptions options = BadFrom(0, kNaN);
  options.on_forward = [&fails](int rows) {
    return fails && rows == 16 ? absl::InternalError("no device")
                               : absl::OkStatus();
  };
  TargetFixture fixture(options);
  fails = true;
  for (uint64_t id = 1; id <= Soundness::kMaxUnsoundSteps; ++id) {
    fixture.Open(MakeOpen(id, {1, 2, 3}, 30));
    const auto outcome = fixture.engine->RunOnce();
    EXPECT_EQ(outcome.ok(), id < Soundness::kMaxUnsoundSteps);
    ExpectUnsound(fixture, id);
  }
}

TEST(TargetSoundnessTest, StepAfterStepTheDeviceIsNotToBeTrusted) {
  bool bad = true;
  TableModelOptions options;
  options.on_row = [&bad](absl::Span<const int32_t>, std::vector<float>* row) {
    if (bad) row->assign(row->size(), kNaN);
  };
  TargetFixture fixture(options);
  uint64_t id = 0;
  const auto run = [&] {
    fixture.Open(MakeOpen(++id, {1, 2, 3}, 2));
    fixture.RunToEnd(id);
  };
  const auto computes_wrongly = [&fixture] {
    return fixture.engine->stats().computes_wrongly;
  };
  for (int i = 1; i < Soundness::kMaxUnsoundSteps; ++i) run();
  bad = false;
  run();
  bad = true;
  for (int i = 1; i < Soundness::kMaxUnsoundSteps; ++i) run();
  EXPECT_FALSE(computes_wrongly());
  run();
  EXPECT_TRUE(computes_wrongly());
  bad = false;
  run();
  EXPECT_TRUE(computes_wrongly());  // until it is restarted
}

}  // namespace
}  // namespace nacre::target_worker
