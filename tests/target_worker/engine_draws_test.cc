// Rows whose tokens the model draws itself: which they are, and that the tokens
// are the same ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "tests/target_worker/target_fixture.h"

namespace nacre::target_worker {
namespace {

using nacre::testing::TableModelOptions;
using speculation::FinishReason;

TableModelOptions Drawing(bool draws) {
  TableModelOptions options;
  options.eos_token_ids = {15};
  options.draws_tokens = draws;
  return options;
}

OpenTarget Sampled(uint64_t id, float temperature) {
  OpenTarget open = MakeOpen(id, Prompt(4, id), 60);
  open.sampling.temperature = temperature;
  open.sampling.seed = 40 + id;
  open.ignore_eos = true;
  open.has_draft = true;
  open.epoch = 1;
  open.plan = {2, 2, 5, 500};
  return open;
}

// Tails of which most tokens are right, for all sessions until they end.
void RunWithTails(TargetFixture& fixture, const std::vector<OpenTarget>& opens,
                  uint64_t seed) {
  std::mt19937_64 random(seed);
  std::map<uint64_t, std::vector<int32_t>> truths;
  for (const OpenTarget& open : opens) {
    truths[open.session_id] = Autoregressive(fixture.model, open);
    fixture.Open(open);
  }
  fixture.Drain();
  const auto running = [&](const OpenTarget& open) {
    return fixture.finish[open.session_id] == FinishReason::kNone;
  };
  for (int i = 0; i < 2000; ++i) {
    if (std::none_of(opens.begin(), opens.end(), running)) return;
    for (const OpenTarget& open : opens) {
      if (!running(open)) continue;
      const std::vector<int32_t>& truth = truths[open.session_id];
      const size_t length = fixture.tokens[open.session_id].size();
      speculation::Tail tail;
      tail.epoch = 1;
      tail.base_length = tail.first_position = static_cast<int>(length);
      for (size_t j = length; j < std::min(length + 4, truth.size()); ++j) {
        tail.token_ids.push_back(random() % 4 == 0 ? (truth[j] + 1) % 16
                                                   : truth[j]);
      }
      TargetCommands commands;
      commands.stream = 1;
      commands.tails.push_back({open.session_id, tail});
      fixture.engine->Push(std::move(commands));
      fixture.Acknowledge(open.session_id);
    }
    fixture.now_ns += 1000;
    fixture.Drain();
  }
  ADD_FAILURE() << "the sessions do not end";
}

void ExpectTheModelsTokens(TargetFixture& fixture,
                           const std::vector<OpenTarget>& opens) {
  for (const OpenTarget& open : opens) {
    EXPECT_EQ(fixture.tokens[open.session_id],
              Autoregressive(fixture.model, open))
        << "session " << open.session_id;
  }
}

TEST(TargetEngineDrawsTest, WhereOnlyTokensAreWantedNoLogitsCome) {
  TargetFixture fixture(Drawing(true));
  std::vector<OpenTarget> opens;
  for (const float temperature : {0.0f, 0.3f, 1.0f, 2.0f}) {
    opens.push_back(Sampled(opens.size() + 1, temperature));
  }
  opens[0].sampling.top_k = 3;  // greedy: it keeps the best
  RunWithTails(fixture, opens, 3);
  ExpectTheModelsTokens(fixture, opens);
  EXPECT_EQ(fixture.model.num_logit_rows(), 0);
  EXPECT_GT(fixture.model.num_draws(), 240);
  int matched = 0;
  for (const auto& verdict : fixture.verdicts) matched += verdict.matched;
  EXPECT_GT(matched, 50);
}

// Each of them changes what is drawn, or wants more than that.
TEST(TargetEngineDrawsTest, WhatNeedsLogitsGetsThem) {
  std::vector<OpenTarget> opens;
  for (uint64_t id = 1; id <= 9; ++id) opens.push_back(Sampled(id, 0.9f));
  opens[0].sampling.repetition_penalty = 1.5f;
  opens[1].sampling.frequency_penalty = 0.7f;
  opens[2].sampling.presence_penalty = 1.5f;
  opens[3].sampling.top_k = 3;
  opens[4].sampling.top_p = 0.6f;
  opens[5].sampling.min_p = 0.2f;
  opens[6].sampling.logit_bias = {{3, 4.0f}};
  opens[7].min_tokens = 60;  // all of them
  opens[7].ignore_eos = false;
  opens[8].logprobs = 2;
  for (const OpenTarget& open : opens) {
    TargetFixture fixture(Drawing(true));
    RunWithTails(fixture, {open}, 4);
    ExpectTheModelsTokens(fixture, {open});
    // A look at the prompt.
    EXPECT_EQ(fixture.model.num_draws(), 1) << "session " << open.session_id;
    EXPECT_GE(fixture.model.num_logit_rows(), 60);
  }
  // And together, with some that do not.
  std::vector<OpenTarget> mixed = opens;
  for (uint64_t id = 10; id <= 13; ++id) mixed.push_back(Sampled(id, 1.0f));
  std::mt19937_64 random(5);
  std::shuffle(mixed.begin(), mixed.end(), random);
  std::map<bool, std::vector<TokenLogprobs>> logprobs;
  for (const bool draws : {true, false}) {
    TargetFixture fixture(Drawing(draws));
    RunWithTails(fixture, mixed, 6);
    ExpectTheModelsTokens(fixture, mixed);
    EXPECT_EQ(fixture.model.num_draws() > 0, draws);
    logprobs[draws] = fixture.logprobs[9];
  }
  ASSERT_EQ(logprobs[true].size(), 60u);
  for (size_t i = 0; i < 60; ++i) {
    EXPECT_EQ(logprobs[true][i].token_id, logprobs[false][i].token_id);
    EXPECT_EQ(logprobs[true][i].logprob, logprobs[false][i].logprob);
  }
}

// The rows before the least length need their logits, those after it do not:
// both may stand in one step.
TEST(TargetEngineDrawsTest, AStepMayBeginBeforeAndEndBehindTheLeastLength) {
  for (int min_tokens = 1; min_tokens < 12; ++min_tokens) {
    TargetFixture fixture(Drawing(true));
    OpenTarget open = Sampled(1, 1.0f);
    open.max_tokens = 30;
    open.stop_token_ids = {2, 7};
    open.min_tokens = min_tokens;
    RunWithTails(fixture, {open}, 7);
    ExpectTheModelsTokens(fixture, {open});
    EXPECT_GT(fixture.model.num_logit_rows(), 0);
    EXPECT_GT(fixture.model.num_draws(), 0) << min_tokens;
  }
}

TEST(TargetEngineDrawsTest, TheRatioTestGetsItsLogits) {
  TargetFixture fixture(Drawing(true));
  OpenTarget open = Sampled(1, 0.8f);
  open.verification = speculation::Verification::kRatio;
  open.has_draft = false;
  fixture.Open(open);
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.tokens[1].size(), 64u);
  EXPECT_EQ(fixture.model.num_draws(), 0);
}

TEST(TargetEngineDrawsTest, AForwardThatFailsFailsItsSessions) {
  TableModelOptions options = Drawing(true);
  options.on_forward = [](int) { return absl::InternalError("no draws"); };
  TargetFixture fixture(options);
  OpenTarget open = Sampled(1, 0.8f);
  open.has_draft = false;
  fixture.Open(open);
  EXPECT_FALSE(fixture.engine->RunOnce().ok());
  EXPECT_EQ(fixture.failures[1].code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace nacre::target_worker
