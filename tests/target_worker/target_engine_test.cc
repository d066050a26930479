#include "target_worker/target_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "model/logprobs.h"
#include "tests/target_worker/target_fixture.h"

namespace nacre::target_worker {
namespace {

using ::testing::HasSubstr;
using wire::Span;
using worker::WorkerState;

std::vector<SamplingParams> SamplingCases() {
  SamplingParams greedy;
  SamplingParams sampled;
  sampled.temperature = 0.8f;
  sampled.seed = 7;
  SamplingParams filtered = sampled;
  filtered.temperature = 1.0f;
  filtered.top_k = 5;
  filtered.top_p = 0.9f;
  SamplingParams penalized = sampled;
  penalized.repetition_penalty = 1.2f;
  penalized.frequency_penalty = 0.5f;
  penalized.presence_penalty = -0.5f;
  return {greedy, sampled, filtered, penalized};
}

int CountSpans(const std::vector<Span>& spans, Span::Kind kind) {
  return static_cast<int>(
      std::count_if(spans.begin(), spans.end(),
                    [kind](const Span& span) { return span.kind == kind; }));
}

TEST(TargetEngineTest, WithoutADraftItIsAutoregressive) {
  for (const SamplingParams& sampling : SamplingCases()) {
    for (const int prompt_length : {1, 2, 17}) {
      TargetFixture fixture;
      OpenTarget open = MakeOpen(5, Prompt(prompt_length, 3), 150);
      open.sampling = sampling;
      fixture.Open(open);
      fixture.RunToEnd(5);
      EXPECT_EQ(fixture.tokens[5], Autoregressive(fixture.model, open));
      EXPECT_EQ(fixture.finish[5], speculation::FinishReason::kLength);
    }
  }
}

TEST(TargetEngineTest, EndsAtEosUnlessIgnoredAndAtStopIds) {
  nacre::testing::TableModelOptions options;
  options.eos_token_ids = {3};
  OpenTarget open = MakeOpen(1, Prompt(4, 1), 200);
  open.sampling.temperature = 1.0f;
  OpenTarget ignoring = open;
  ignoring.session_id = 2;
  ignoring.ignore_eos = true;
  OpenTarget stopping = ignoring;
  stopping.session_id = 3;
  stopping.stop_token_ids = {9, 11};

  TargetFixture fixture(options);
  for (const OpenTarget& each : {open, ignoring, stopping}) {
    fixture.Open(each);
    fixture.RunToEnd(each.session_id);
    EXPECT_EQ(fixture.tokens[each.session_id],
              Autoregressive(fixture.model, each));
  }
  EXPECT_EQ(fixture.finish[1], speculation::FinishReason::kEos);
  EXPECT_EQ(fixture.finish[2], speculation::FinishReason::kLength);
  EXPECT_EQ(fixture.finish[3], speculation::FinishReason::kStop);
}

// It would never step: its coordinator would wait for ever.
TEST(TargetEngineTest, ASessionThatHasEndedIsRefused) {
  nacre::testing::TableModelOptions options;
  options.eos_token_ids = {3};
  TargetFixture fixture(options);
  const int64_t free = fixture.model.kv_free_tokens();
  OpenTarget open = MakeOpen(1, {1, 2}, 5);
  open.token_ids = {1, 2, 4, 3};
  OpenTarget stopped = open;
  stopped.session_id = 2;
  stopped.token_ids = {1, 2, 4};
  stopped.stop_token_ids = {4};
  OpenTarget full = open;
  full.session_id = 3;
  full.token_ids = {1, 2, 4, 4, 4, 4, 4};
  for (const OpenTarget& each : {open, stopped, full}) {
    fixture.Open(each);
    fixture.Drain();
    ASSERT_TRUE(fixture.failures.contains(each.session_id));
    const absl::Status& status = fixture.failures[each.session_id];
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("nothing is left to generate"));
  }
  EXPECT_EQ(fixture.model.kv_free_tokens(), free);
  // An end among the tokens of the prompt, or one that is ignored, is none.
  OpenTarget prompt = MakeOpen(4, {1, 3}, 5);
  OpenTarget ignoring = open;
  ignoring.session_id = 5;
  ignoring.ignore_eos = true;
  for (const OpenTarget& each : {prompt, ignoring}) {
    fixture.Open(each);
    fixture.RunToEnd(each.session_id);
    EXPECT_FALSE(fixture.failures.contains(each.session_id));
  }
}

TEST(TargetEngineTest, DoesNotEndBeforeItsLeastTokens) {
  nacre::testing::TableModelOptions options;
  options.eos_token_ids = {3};
  OpenTarget open = MakeOpen(1, Prompt(4, 1), 200);
  open.sampling.temperature = 1.0f;
  open.sampling.logit_bias = {{3, 4.0f}, {9, 2.0f}};
  open.stop_token_ids = {9, 11};
  for (const int min_tokens : {0, 1, 50, 200}) {
    TargetFixture fixture(options);
    open.min_tokens = min_tokens;
    fixture.Open(open);
    fixture.RunToEnd(1);
    EXPECT_EQ(fixture.tokens[1], Autoregressive(fixture.model, open));
    EXPECT_GE(fixture.tokens[1].size(), 4u + static_cast<size_t>(min_tokens));
  }
}

TEST(TargetEngineTest, LogprobsAreThoseOfTheModelForEveryToken) {
  OpenTarget open = MakeOpen(1, Prompt(4, 1), 40);
  open.sampling.temperature = 0.7f;
  open.sampling.repetition_penalty = 1.5f;  // not in the logprobs
  open.logprobs = 3;
  open.has_draft = true;
  open.plan.window = 4;
  TargetFixture fixture;
  const std::vector<int32_t> truth = Autoregressive(fixture.model, open);
  fixture.Open(open);
  fixture.Drain();
  while (fixture.finish[1] == speculation::FinishReason::kNone) {
    speculation::Tail tail;
    tail.base_length = tail.first_position =
        static_cast<int>(fixture.tokens[1].size());
    const auto next = truth.begin() + tail.first_position;
    tail.token_ids.assign(next, std::min(next + 3, truth.end()));
    TargetCommands commands;
    commands.stream = 1;
    commands.tails.push_back({1, tail});
    fixture.engine->Push(commands);
    fixture.Drain();
    fixture.now_ns += 1'000'000'000;  // the gate of the last token
    fixture.Drain();
  }
  EXPECT_EQ(fixture.tokens[1], truth);
  const std::vector<TokenLogprobs>& got = fixture.logprobs[1];
  ASSERT_EQ(got.size(), truth.size() - 4);
  model::SamplingScratch scratch;
  for (size_t i = 0; i < got.size(); ++i) {
    const TokenLogprobs expected = model::ComputeLogprobs(
        fixture.model.Logits(absl::MakeConstSpan(truth).first(4 + i)),
        truth[4 + i], 3, &scratch);
    EXPECT_EQ(got[i].token_id, expected.token_id);
    EXPECT_EQ(got[i].logprob, expected.logprob);
    EXPECT_EQ(got[i].top, expected.top);
  }
}

// The step verifies what stands after an end token, too.
TEST(TargetEngineTest, LogprobsEndWithTheVerdict) {
  OpenTarget open = MakeOpen(1, Prompt(4, 1), 40);
  open.sampling.temperature = 0.7f;
  open.logprobs = 1;
  open.has_draft = true;
  open.plan.window = 6;
  open.ignore_eos = true;
  const std::vector<int32_t> beyond =
      Autoregressive(nacre::testing::TableModel({}), open);
  nacre::testing::TableModelOptions options;
  options.eos_token_ids = {beyond[6]};
  open.ignore_eos = false;
  TargetFixture fixture(options);
  const std::vector<int32_t> truth = Autoregressive(fixture.model, open);
  ASSERT_LE(truth.size(), 7u);
  fixture.Open(open);
  TargetCommands commands;
  commands.stream = 1;
  speculation::Tail tail;
  tail.base_length = tail.first_position = 4;
  tail.token_ids.assign(beyond.begin() + 4, beyond.begin() + 10);
  commands.tails.push_back({1, tail});
  fixture.engine->Push(commands);
  fixture.Drain();
  ASSERT_EQ(fixture.verdicts.size(), 1u);
  EXPECT_EQ(fixture.finish[1], speculation::FinishReason::kEos);
  EXPECT_EQ(fixture.tokens[1], truth);
  EXPECT_EQ(fixture.logprobs[1].size(), truth.size() - 4);
}

// A hostile draft: tails of any length that are right up to a random point,
// repeated, stale, out of place or of ids that do not exist.
TEST(TargetEngineTest, NoTailChangesTheTokens) {
  std::mt19937_64 random(11);
  for (const SamplingParams& sampling : SamplingCases()) {
    TargetFixture fixture;
    OpenTarget open = MakeOpen(1, Prompt(9, 5), 300);
    open.sampling = sampling;
    open.has_draft = true;
    open.epoch = 4;
    open.plan.window = 6;
    const std::vector<int32_t> truth = Autoregressive(fixture.model, open);
    fixture.Open(open);
    fixture.Drain();
    int matched = 0;
    while (fixture.finish[1] == speculation::FinishReason::kNone) {
      const int length = static_cast<int>(fixture.tokens[1].size());
      TargetCommands commands;
      commands.stream = 1;
      for (int i = 0; i < 3; ++i) {
        speculation::Tail tail;
        tail.epoch =
            static_cast<uint32_t>(random() % 8 == 0 ? random() % 6 : 4);
        tail.base_length = length - static_cast<int>(random() % 3);
        tail.first_position = length + static_cast<int>(random() % 4) - 2;
        const int right = static_cast<int>(random() % 8);
        for (int j = 0; j < static_cast<int>(random() % 8); ++j) {
          const size_t position = static_cast<size_t>(tail.first_position + j);
          tail.token_ids.push_back(j < right && position < truth.size()
                                       ? truth[position]
                                       : static_cast<int32_t>(random() % 17));
        }
        commands.tails.push_back({1, tail});
      }
      fixture.engine->Push(commands);
      fixture.Acknowledge(1);
      ASSERT_TRUE(fixture.engine->RunOnce().ok());
      if (!fixture.verdicts.empty()) matched += fixture.verdicts.back().matched;
    }
    EXPECT_EQ(fixture.tokens[1], truth);
    EXPECT_GT(matched, 20);
    EXPECT_GT(fixture.engine->stats().rejected_messages, 10u);
  }
}

TEST(TargetEngineTest, WaitsForTheGateAndTellsSo) {
  TargetFixture fixture;
  OpenTarget open = MakeOpen(1, Prompt(5, 2), 40);
  open.has_draft = true;
  open.plan.window = 4;
  open.plan.gate_after_mismatch = 2;
  open.plan.gate_timeout_ns = 1'000'000;
  const std::vector<int32_t> truth = Autoregressive(fixture.model, open);
  fixture.Open(open);
  const worker::StepOutcome outcome = fixture.Drain();
  EXPECT_TRUE(fixture.verdicts.empty());
  ASSERT_TRUE(outcome.deadline_ns.has_value());
  EXPECT_NEAR(static_cast<double>(*outcome.deadline_ns),
              static_cast<double>(fixture.now_ns) + 1e6, 1000);

  fixture.now_ns += 5000;
  TargetCommands commands;
  commands.stream = 1;
  speculation::Tail tail;
  tail.base_length = tail.first_position = 5;
  tail.token_ids = {truth[5], truth[6]};
  commands.tails.push_back({1, tail});
  fixture.engine->Push(commands);
  ASSERT_TRUE(fixture.engine->RunOnce()->stepped);
  ASSERT_EQ(fixture.verdicts.size(), 1u);
  EXPECT_EQ(fixture.verdicts[0].matched, 2);
  ASSERT_EQ(CountSpans(fixture.spans, Span::Kind::kWaitDraftTokens), 1);
  for (const Span& span : fixture.spans) {
    if (span.kind != Span::Kind::kWaitDraftTokens) continue;
    EXPECT_GE(span.duration_ns, 5000);
    EXPECT_LT(span.duration_ns, 6000);
    EXPECT_TRUE(span.after_miss);  // so a session begins
  }
}

TEST(TargetEngineTest, AWaitSaysWhetherTheDraftHadMissed) {
  for (const bool misses : {false, true}) {
    TargetFixture fixture;
    OpenTarget open = MakeOpen(1, Prompt(5, 2), 40);
    open.has_draft = true;
    open.plan.window = 4;
    open.plan.gate_in_flow = open.plan.gate_after_mismatch = 2;
    open.plan.gate_timeout_ns = 1'000'000;
    const std::vector<int32_t> truth = Autoregressive(fixture.model, open);
    fixture.Open(open);
    TargetCommands commands;
    commands.stream = 1;
    speculation::Tail tail;
    tail.base_length = tail.first_position = 5;
    tail.token_ids = {truth[5], misses ? truth[6] ^ 1 : truth[6]};
    commands.tails.push_back({1, tail});
    fixture.engine->Push(commands);
    const worker::StepOutcome outcome = fixture.Drain();
    ASSERT_EQ(fixture.verdicts.size(), 1u);
    EXPECT_EQ(fixture.verdicts[0].matched, misses ? 1 : 2);
    fixture.spans.clear();
    ASSERT_TRUE(outcome.deadline_ns.has_value());
    fixture.now_ns = *outcome.deadline_ns;
    ASSERT_TRUE(fixture.engine->RunOnce()->stepped);
    ASSERT_EQ(CountSpans(fixture.spans, Span::Kind::kWaitDraftTokens), 1);
    for (const Span& span : fixture.spans) {
      EXPECT_EQ(span.after_miss,
                misses && span.kind == Span::Kind::kWaitDraftTokens);
    }
  }
}

TEST(TargetEngineTest, AClosedGateOpensAtItsDeadline) {
  TargetFixture fixture;
  OpenTarget open = MakeOpen(1, Prompt(5, 2), 40);
  open.has_draft = true;
  open.plan.window = 4;
  open.plan.gate_after_mismatch = 4;
  open.plan.gate_timeout_ns = 1'000'000;
  fixture.Open(open);
  const worker::StepOutcome outcome = fixture.Drain();
  fixture.now_ns = *outcome.deadline_ns;
  EXPECT_TRUE(fixture.engine->RunOnce()->stepped);
  EXPECT_EQ(fixture.verdicts.size(), 1u);
  EXPECT_TRUE(fixture.verdicts[0].degraded);
}

TEST(TargetEngineTest, TheEngineWaitsForTheEarliestGate) {
  for (const bool shortest_first : {true, false}) {
    TargetFixture fixture;
    for (uint64_t id = 1; id <= 2; ++id) {
      OpenTarget open = MakeOpen(id, Prompt(5, id), 40);
      open.has_draft = true;
      open.plan.window = 4;
      open.plan.gate_after_mismatch = 2;
      open.plan.gate_timeout_ns =
          (id == 1) == shortest_first ? 1'000'000 : 1'000'000'000;
      fixture.Open(open);
    }
    const worker::StepOutcome outcome = fixture.Drain();
    ASSERT_TRUE(outcome.deadline_ns.has_value());
    EXPECT_LE(*outcome.deadline_ns, fixture.now_ns + 1'000'000);
    fixture.now_ns = *outcome.deadline_ns;
    EXPECT_TRUE(fixture.engine->RunOnce()->stepped);
    EXPECT_EQ(fixture.tokens[shortest_first ? 1 : 2].size(), 6u);
    EXPECT_EQ(fixture.tokens[shortest_first ? 2 : 1].size(), 5u);
  }
}

// It is taken over before the first step, which then shares a forward with the
// last of the prompt.
TEST(TargetEngineTest, APlanMayComeWhileThePromptIsFed) {
  TargetFixture fixture({}, {.max_rows = 8});
  OpenTarget open = MakeOpen(1, Prompt(20, 8), 1);
  open.has_draft = true;
  open.plan = {2, 2, 4, 1'000'000'000};
  fixture.Open(open);
  ASSERT_TRUE(fixture.engine->RunOnce()->stepped);
  TargetCommands commands;
  commands.stream = 1;
  commands.plans.push_back({1, {0, 0, 4, 1'000'000'000}});
  fixture.engine->Push(commands);
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.model.num_forwards(), 3);
  EXPECT_EQ(fixture.model.num_rows(), 20);
}

// Neither the plan that it begins with nor a later one has a timeout.
TEST(TargetEngineTest, WithoutGateTimeoutsItWaitsForItsTokens) {
  TargetFixture fixture({}, {}, nullptr, nullptr, /*gate_timeouts=*/false);
  OpenTarget open = MakeOpen(1, Prompt(5, 2), 40);
  open.has_draft = true;
  open.plan = {2, 2, 4, 1'000'000};
  fixture.Open(open);
  for (const bool anew : {false, true}) {
    if (anew) {
      TargetCommands commands;
      commands.stream = 1;
      commands.plans.push_back({1, {2, 2, 3, 1'000'000}});
      fixture.engine->Push(commands);
    }
    fixture.Drain();
    fixture.now_ns += 3'600'000'000'000;
    EXPECT_FALSE(fixture.engine->RunOnce()->stepped);
    EXPECT_EQ(fixture.tokens[1].size(), 5u);
  }
}

TEST(TargetEngineTest, StopsAheadOfTheAcknowledgement) {
  TargetFixture fixture;
  fixture.Open(MakeOpen(1, Prompt(3, 2), 200));
  fixture.Drain();
  EXPECT_EQ(fixture.tokens[1].size(), 3u + 64u);
  fixture.now_ns += 1000;
  EXPECT_GE(fixture.engine->stats().time[WorkerState::kWaitAcknowledge], 1000);
  fixture.Acknowledge(1);
  fixture.Drain();
  EXPECT_EQ(fixture.tokens[1].size(), 3u + 128u);
  EXPECT_EQ(CountSpans(fixture.spans, Span::Kind::kWaitAcknowledge), 1);
}

TEST(TargetEngineTest, TokensDoNotDependOnHowThePromptIsSplit) {
  const OpenTarget open = MakeOpen(1, Prompt(61, 8), 30);
  std::vector<int32_t> first;
  for (const int max_step_rows : {1, 2, 7, 60, 61, 512}) {
    TargetFixture fixture({}, {.max_rows = max_step_rows});
    fixture.Open(open);
    fixture.RunToEnd(1);
    if (first.empty()) first = Autoregressive(fixture.model, open);
    EXPECT_EQ(fixture.tokens[1], first) << max_step_rows;
    int prefilled = 0;
    for (const Span& span : fixture.spans) {
      if (span.kind == Span::Kind::kPrefill) prefilled += span.rows;
      EXPECT_LE(span.rows, max_step_rows);
    }
    EXPECT_EQ(prefilled, 60);
  }
}

TEST(TargetEngineTest, TheLastPromptRowsAndTheFirstStepShareAForward) {
  TargetFixture fixture;
  fixture.Open(MakeOpen(1, Prompt(20, 8), 1));
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.model.num_forwards(), 1);
  EXPECT_EQ(fixture.model.num_rows(), 20);
}

TEST(TargetEngineTest, BatchesSessionsAndSendsOneMessageAStep) {
  TargetFixture fixture;
  std::vector<OpenTarget> opens;
  for (uint64_t id = 1; id <= 7; ++id) {
    opens.push_back(MakeOpen(id, Prompt(static_cast<int>(id), id), 33));
    opens.back().sampling.temperature = 0.9f;
    opens.back().sampling.seed = id;
    fixture.Open(opens.back());
  }
  fixture.Drain();
  for (const OpenTarget& open : opens) {
    EXPECT_EQ(fixture.tokens[open.session_id],
              Autoregressive(fixture.model, open));
  }
  EXPECT_EQ(fixture.model.num_forwards(), 33);
  // One for the opened sessions, one a step.
  EXPECT_EQ(fixture.num_messages, 1 + 33);
}

TEST(TargetEngineTest, ASmallBudgetStarvesNobody) {
  TargetFixture fixture({}, {.max_rows = 2});
  std::vector<OpenTarget> opens;
  for (uint64_t id = 1; id <= 5; ++id) {
    opens.push_back(MakeOpen(id, Prompt(3, id), 20));
    fixture.Open(opens.back());
  }
  fixture.Drain();
  for (const OpenTarget& open : opens) {
    EXPECT_EQ(fixture.tokens[open.session_id],
              Autoregressive(fixture.model, open));
  }
}

TEST(TargetEngineTest, WhatArrivesDuringAForwardIsAppliedBeforeItsVerdict) {
  nacre::testing::TableModelOptions options;
  std::function<void()> during;
  options.on_forward = [&during](int) {
    if (during) std::exchange(during, nullptr)();
    return absl::OkStatus();
  };
  TargetFixture fixture(options);
  OpenTarget open = MakeOpen(1, Prompt(5, 2), 40);
  open.has_draft = true;
  open.plan.window = 4;
  const std::vector<int32_t> truth = Autoregressive(fixture.model, open);
  during = [&] {
    TargetCommands commands;
    commands.stream = 1;
    speculation::Tail tail;
    tail.base_length = tail.first_position = 5;
    tail.token_ids = {truth[5], truth[6], truth[7]};
    commands.tails.push_back({1, tail});
    fixture.engine->Push(commands);
  };
  fixture.Open(open);
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  ASSERT_EQ(fixture.verdicts.size(), 1u);
  EXPECT_EQ(fixture.verdicts[0].window, 0);
  EXPECT_EQ(fixture.verdicts[0].accepted, 1);  // the token after the last row
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  EXPECT_EQ(fixture.verdicts[1].matched, 2);
}

// Its number may be another opening's by the time a verdict comes.
TEST(TargetEngineTest, ASessionClosedDuringItsStepSaysNothingMore) {
  nacre::testing::TableModelOptions options;
  std::function<void()> during;
  options.on_forward = [&during](int) {
    if (during) std::exchange(during, nullptr)();
    return absl::OkStatus();
  };
  TargetFixture fixture(options);
  during = [&fixture] {
    TargetCommands commands;
    commands.stream = 1;
    commands.close = {1};
    fixture.engine->Push(commands);
  };
  fixture.Open(MakeOpen(1, Prompt(5, 2), 40));
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  EXPECT_TRUE(fixture.verdicts.empty());
  EXPECT_EQ(fixture.engine->stats().sessions, 0);
}

TEST(TargetEngineTest, ADeviceErrorFailsTheSessionsOfTheStep) {
  nacre::testing::TableModelOptions options;
  bool broken = false;
  options.on_forward = [&broken](int) {
    return broken ? absl::InternalError("the device is gone")
                  : absl::OkStatus();
  };
  TargetFixture fixture(options);
  const int64_t free = fixture.model.kv_free_tokens();
  fixture.Open(MakeOpen(1, Prompt(5, 2), 40));
  fixture.Open(MakeOpen(2, Prompt(5, 2), 40));
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  broken = true;
  EXPECT_EQ(fixture.engine->RunOnce().status().code(),
            absl::StatusCode::kInternal);
  ASSERT_EQ(fixture.failures.size(), 2u);
  EXPECT_EQ(fixture.failures[1].code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(fixture.failures[2].message()),
              HasSubstr("the device is gone"));
  EXPECT_EQ(fixture.model.kv_free_tokens(), free);
  EXPECT_EQ(fixture.engine->stats().sessions, 0);
}

TEST(TargetEngineTest, BusyAndWaitingTimesAddUp) {
  TargetFixture fixture;
  OpenTarget open = MakeOpen(1, Prompt(50, 2), 40);
  open.has_draft = true;
  open.plan.gate_after_mismatch = 2;
  open.plan.window = 4;
  open.plan.gate_timeout_ns = 5000;
  fixture.Open(open);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
    if (i % 10 == 0) fixture.Acknowledge(1);
    fixture.now_ns += 700;
  }
  const worker::TimePartition::Totals totals = fixture.engine->stats().time;
  EXPECT_EQ(std::accumulate(totals.by_state_ns.begin(),
                            totals.by_state_ns.end(), int64_t{0}),
            totals.elapsed_ns);
  EXPECT_GT(totals[WorkerState::kPrefill], 0);
  EXPECT_GT(totals[WorkerState::kVerify], 0);
  EXPECT_GT(totals[WorkerState::kWaitDraftTokens], 0);
  EXPECT_GT(totals[WorkerState::kNoWork], 0);
  EXPECT_EQ(totals[WorkerState::kDraft], 0);
}

}  // namespace
}  // namespace nacre::target_worker
