// Which get the target's steps when there is too much to do: 64 sessions, long
// prompts, windows. In steps and rows, the engine's own time.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "tests/target_worker/target_fixture.h"

namespace nacre::target_worker {
namespace {

constexpr uint64_t kLong = 1000;  // the id of the session with a long prompt

class FairnessTest : public ::testing::Test {
 protected:
  static nacre::testing::TableModelOptions ModelOptions(
      std::vector<int>* step_rows) {
    nacre::testing::TableModelOptions options;
    options.context_length = 1 << 16;
    options.on_forward = [step_rows](int rows) {
      step_rows->push_back(rows);
      return absl::OkStatus();
    };
    return options;
  }

  void OpenMany(uint64_t first_id, int count, int prompt_length,
                int max_tokens) {
    for (int i = 0; i < count; ++i) {
      const uint64_t id = first_id + static_cast<uint64_t>(i);
      opens_.push_back(MakeOpen(id, Prompt(prompt_length, id), max_tokens));
      fixture_.Open(opens_.back());
    }
  }

  void Step() {
    for (const OpenTarget& open : opens_) fixture_.Acknowledge(open.session_id);
    ASSERT_TRUE(fixture_.engine->RunOnce().ok());
  }

  int Generated(uint64_t id) {
    for (const OpenTarget& open : opens_) {
      if (open.session_id != id) continue;
      return static_cast<int>(fixture_.tokens[id].size()) - open.prompt_length;
    }
    return -1;
  }

  void ExpectExact() {
    for (const OpenTarget& open : opens_) {
      EXPECT_EQ(fixture_.tokens[open.session_id],
                Autoregressive(fixture_.model, open))
          << open.session_id;
    }
  }

  std::vector<int> step_rows_;  // of each forward
  TargetFixture fixture_{ModelOptions(&step_rows_)};
  std::vector<OpenTarget> opens_;
};

TEST_F(FairnessTest, ALongPromptHoldsUpNoShortOne) {
  OpenMany(kLong, 1, 20000, 3);
  OpenMany(1, 64, 50, 10);
  // 64 x 49 rows, half of each step's budget for them.
  for (int i = 0; i < 64 * 50 / 64 + 2; ++i) Step();
  for (uint64_t id = 1; id <= 64; ++id) EXPECT_GE(Generated(id), 1) << id;
  EXPECT_EQ(Generated(kLong), 0);
  // And is not held up by them for ever.
  for (int i = 0; i < 20000 / 64; ++i) Step();
  EXPECT_EQ(Generated(kLong), 3);
  ExpectExact();
}

TEST_F(FairnessTest, ALongPromptHoldsUpNoDecodingSession) {
  OpenMany(1, 64, 1, 400);
  Step();
  OpenMany(kLong, 1, 20000, 3);
  step_rows_.clear();
  int steps = 0;
  for (; Generated(kLong) == 0; ++steps) {
    const int before = Generated(7);
    Step();
    if (before < 400) {
      EXPECT_EQ(Generated(7), before + 1);
    }
  }
  // A token for each in every step, and no step longer than decoding and a
  // chunk.
  EXPECT_EQ(step_rows_.front(), 64 + 128);
  EXPECT_LE(*std::max_element(step_rows_.begin(), step_rows_.end()), 64 + 128);
  EXPECT_LE(steps, 20000 / 128 + 2);
}

TEST_F(FairnessTest, AloneAPromptGetsTheWholeStep) {
  OpenMany(kLong, 1, 20000, 1);
  for (int i = 0; i < 20000 / 512 + 1; ++i) Step();
  EXPECT_EQ(Generated(kLong), 1);
  EXPECT_EQ(step_rows_.front(), 512);
}

// Its steps cost those that decode about as much at its end as at its
// beginning, and no token is another one.
TEST(TargetFairnessTest, FarIntoALongPromptStepsHaveFewerRows) {
  std::vector<int> step_rows;
  nacre::testing::TableModelOptions model;
  model.context_length = 1 << 16;
  model.on_forward = [&](int rows) {
    step_rows.push_back(rows);
    return absl::OkStatus();
  };
  TargetFixture fixture(model, {.even_positions = 1000});
  const OpenTarget decodes = MakeOpen(1, Prompt(1, 1), 2000);
  fixture.Open(decodes);
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  const OpenTarget prompt = MakeOpen(kLong, Prompt(9000, 2), 3);
  fixture.Open(prompt);
  step_rows.clear();
  int position = 0;
  while (fixture.tokens[kLong].size() == 9000) {
    fixture.Acknowledge(1);
    const size_t before = fixture.tokens[1].size();
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
    EXPECT_EQ(fixture.tokens[1].size(), before + 1);
    const int rows = step_rows.back() - 1;
    EXPECT_LE(rows * (1 + position / 1000.0), 128 + 1) << position;
    position += rows;
  }
  EXPECT_EQ(step_rows.front(), 1 + 128);
  EXPECT_GE(*std::min_element(step_rows.begin(), step_rows.end() - 2), 1 + 12);
  fixture.Drain();
  EXPECT_EQ(fixture.tokens[kLong], Autoregressive(fixture.model, prompt));
}

TEST_F(FairnessTest, ASessionThatWaitsForItsDraftCountsAsDecoding) {
  opens_.push_back(MakeOpen(1, Prompt(1, 1), 10));
  opens_.back().has_draft = true;
  opens_.back().plan.gate_after_mismatch = 4;
  opens_.back().plan.window = 4;
  opens_.back().plan.gate_timeout_ns = int64_t{1} << 40;
  fixture_.Open(opens_.back());
  OpenMany(kLong, 1, 2000, 1);
  Step();
  EXPECT_EQ(step_rows_, std::vector<int>{128});
}

// Sessions that could fill every step with decoding leave prompts an eighth.
TEST(TargetFairnessTest, AFullHouseDoesNotHoldUpPrompts) {
  std::vector<int> step_rows;
  nacre::testing::TableModelOptions options;
  options.on_forward = [&](int rows) {
    step_rows.push_back(rows);
    return absl::OkStatus();
  };
  TargetFixture fixture(options, {.max_rows = 16, .prefill_chunk = 8});
  std::vector<OpenTarget> opens;
  for (uint64_t id = 1; id <= 40; ++id) {
    opens.push_back(MakeOpen(id, Prompt(1, id), 60));
    fixture.Open(opens.back());
  }
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  opens.push_back(MakeOpen(kLong, Prompt(41, 3), 60));
  fixture.Open(opens.back());
  // 40 rows at 2 a step, then its turn among 41 sessions at 16 a step.
  for (int i = 0; i < 20 + 3; ++i) {
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
  }
  EXPECT_GT(fixture.tokens[kLong].size(), 41u);
  // Decoding goes on in turns meanwhile: 14 of 40 a step.
  size_t least = 1000;
  size_t most = 0;
  for (uint64_t id = 1; id <= 40; ++id) {
    least = std::min(least, fixture.tokens[id].size());
    most = std::max(most, fixture.tokens[id].size());
  }
  EXPECT_GE(least, 1u + 23 * 14 / 41);
  EXPECT_LE(most - least, 1u);
  EXPECT_LE(*std::max_element(step_rows.begin(), step_rows.end()), 16);
  fixture.Drain();
  for (const OpenTarget& open : opens) {
    EXPECT_EQ(fixture.tokens[open.session_id],
              Autoregressive(fixture.model, open));
  }
}

// A first step that finds draft tokens takes more rows than its prompt's share.
TEST(TargetFairnessTest, WhatATailTakesIsMissingForLaterPrompts) {
  std::vector<int> step_rows;
  nacre::testing::TableModelOptions options;
  options.on_forward = [&](int rows) {
    step_rows.push_back(rows);
    return absl::OkStatus();
  };
  TargetFixture fixture(options, {.max_rows = 16, .prefill_chunk = 16});
  OpenTarget open = MakeOpen(1, Prompt(4, 1), 10);
  open.has_draft = true;
  open.plan.window = 4;
  const std::vector<int32_t> truth = Autoregressive(fixture.model, open);
  fixture.Open(open);
  TargetCommands commands;
  commands.stream = 1;
  speculation::Tail tail;
  tail.base_length = tail.first_position = 4;
  tail.token_ids.assign(truth.begin() + 4, truth.begin() + 8);
  commands.tails.push_back({1, tail});
  fixture.engine->Push(commands);
  fixture.Open(MakeOpen(kLong, Prompt(100, 2), 10));
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  EXPECT_EQ(step_rows, std::vector<int>{16});
  EXPECT_EQ(fixture.tokens[1].size(), 4u + 5);
}

// Windows differ: a step passes its budget by one window at most, and every
// session has its turn.
TEST(TargetFairnessTest, WideWindowsTakeTurns) {
  std::vector<int> step_rows;
  nacre::testing::TableModelOptions options;
  options.on_forward = [&](int rows) {
    step_rows.push_back(rows);
    return absl::OkStatus();
  };
  TargetFixture fixture(options, {.max_rows = 32, .prefill_chunk = 32});
  std::vector<OpenTarget> opens;
  std::map<uint64_t, std::vector<int32_t>> truth;
  for (uint64_t id = 1; id <= 24; ++id) {
    OpenTarget open = MakeOpen(id, Prompt(1, id), 60);
    open.has_draft = true;
    open.plan.window = 4;
    truth[id] = Autoregressive(fixture.model, open);
    opens.push_back(open);
    fixture.Open(open);
  }
  for (int i = 0; i < 24; ++i) {
    // An oracle's drafts: every window is full.
    TargetCommands commands;
    commands.stream = 1;
    for (const OpenTarget& open : opens) {
      const uint64_t id = open.session_id;
      const int length = static_cast<int>(fixture.tokens[id].size());
      speculation::Tail tail;
      tail.base_length = tail.first_position = length;
      for (int j = length; j < std::min(length + 5, 61); ++j) {
        tail.token_ids.push_back(truth[id][static_cast<size_t>(j)]);
      }
      commands.tails.push_back({id, tail});
    }
    fixture.engine->Push(commands);
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
  }
  EXPECT_LE(*std::max_element(step_rows.begin(), step_rows.end()), 32 + 4);
  size_t least = 1000;
  for (const OpenTarget& open : opens) {
    least = std::min(least, fixture.tokens[open.session_id].size());
  }
  // 7 of 24 a step: each had at least 6 of 24 steps, up to 5 tokens each.
  EXPECT_GE(least, 1u + 6 * 5);
  fixture.Drain();
  for (const OpenTarget& open : opens) {
    fixture.RunToEnd(open.session_id);
    EXPECT_EQ(fixture.tokens[open.session_id], truth[open.session_id]);
  }
}

}  // namespace
}  // namespace nacre::target_worker
