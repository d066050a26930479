// The ratio test in the target engine: which row judges what, with which
// parameters, and steps that are held for the draft's next token.

#include <gtest/gtest.h>

#include <vector>

#include "model/sampler.h"
#include "speculation/ratio_test.h"
#include "tests/target_worker/target_fixture.h"

namespace nacre::target_worker {
namespace {

using speculation::DraftDistribution;
using speculation::StopMark;
using wire::Span;

constexpr uint64_t kId = 4;
const std::vector<int32_t> kPrompt = {3, 7, 1};

OpenTarget RatioOpen(speculation::TargetPlan plan, int max_tokens = 50) {
  OpenTarget open = MakeOpen(kId, kPrompt, max_tokens);
  open.sampling.temperature = 0.8f;
  open.sampling.seed = 77;
  open.verification = speculation::Verification::kRatio;
  open.has_draft = true;
  open.epoch = 1;
  open.plan = plan;
  return open;
}

// All tokens alike: the target's likeliest is always accepted.
DraftDistribution Even() {
  DraftDistribution law;
  for (int32_t id = 0; id < 16; ++id) {
    law.token_ids.push_back(id);
    law.weights.push_back(2.0f);
  }
  return law;
}

void SendTail(TargetFixture& fixture, int base_length, int first_position,
              const std::vector<int32_t>& ids,
              StopMark stop = StopMark::kNone) {
  TargetCommands commands;
  commands.stream = 1;
  speculation::Tail tail;
  tail.epoch = 1;
  tail.base_length = base_length;
  tail.first_position = first_position;
  tail.token_ids = ids;
  tail.stop = stop;
  tail.distributions.assign(ids.size(), Even());
  commands.tails.push_back({kId, tail});
  fixture.engine->Push(std::move(commands));
}

// What the target must say of `drafted` after `tokens`, written down again.
int32_t Judged(const TargetFixture& fixture, const OpenTarget& open,
               const std::vector<int32_t>& tokens, int32_t drafted) {
  model::Sampler sampler(open.sampling, 16);
  model::TokenHistory history(open.prompt_length);
  for (const int32_t id : tokens) history.Push(id);
  model::TokenWeights weights;
  const int position = static_cast<int>(tokens.size());
  sampler.FillWeights(fixture.model.Logits(tokens), position, history,
                      &weights);
  return speculation::JudgeByRatio({weights.token_ids, weights.weights},
                                   drafted, Even(), open.sampling.seed,
                                   position);
}

// A token that is accepted after `tokens`.
int32_t Accepted(const TargetFixture& fixture, const OpenTarget& open,
                 const std::vector<int32_t>& tokens) {
  for (int32_t id = 0; id < 16; ++id) {
    if (Judged(fixture, open, tokens, id) == id) return id;
  }
  ADD_FAILURE() << "nothing is accepted";
  return 0;
}

int32_t Rejected(const TargetFixture& fixture, const OpenTarget& open,
                 const std::vector<int32_t>& tokens) {
  for (int32_t id = 0; id < 16; ++id) {
    if (Judged(fixture, open, tokens, id) != id) return id;
  }
  ADD_FAILURE() << "everything is accepted";
  return 0;
}

std::vector<int32_t> With(std::vector<int32_t> tokens, int32_t id) {
  tokens.push_back(id);
  return tokens;
}

TEST(EngineVerifyTest, EachRowJudgesItsTokenAndTheLastTheOneBehind) {
  std::vector<SamplingParams> cases(3);
  cases[0].temperature = 1.3f;
  cases[1].temperature = 0.7f;
  cases[1].top_k = 9;
  cases[1].top_p = 0.95f;
  cases[2].temperature = 1.0f;
  cases[2].repetition_penalty = 1.3f;
  cases[2].presence_penalty = 0.4f;
  for (SamplingParams& sampling : cases) {
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      sampling.seed = seed;
      TargetFixture fixture;
      OpenTarget open = RatioOpen({3, 3, 2, 1'000'000});
      open.sampling = sampling;
      const int32_t first = Accepted(fixture, open, kPrompt);
      const auto behind = With(kPrompt, first);
      const int32_t second = Accepted(fixture, open, behind);
      const auto behind_both = With(behind, second);
      // Two rows, and a third token for the row after them.
      const int32_t third = static_cast<int32_t>(seed % 16);
      fixture.Open(open);
      SendTail(fixture, 3, 3, {first, second, third});
      fixture.Drain();
      ASSERT_EQ(fixture.verdicts.size(), 1u);
      EXPECT_EQ(fixture.verdicts[0].matched, 2);
      const int32_t judged = Judged(fixture, open, behind_both, third);
      EXPECT_EQ(fixture.tokens[kId], With(behind_both, judged));
      EXPECT_EQ(fixture.verdicts[0].accepted, judged == third ? 3 : 2);
    }
  }
}

TEST(EngineVerifyTest, ARejectedTokenIsReplacedAndEndsTheStep) {
  TargetFixture fixture;
  const OpenTarget open = RatioOpen({2, 2, 2, 1'000'000});
  const int32_t first = Rejected(fixture, open, kPrompt);
  fixture.Open(open);
  SendTail(fixture, 3, 3, {first, 5});
  fixture.Drain();
  ASSERT_EQ(fixture.verdicts.size(), 1u);
  EXPECT_EQ(fixture.tokens[kId],
            With(kPrompt, Judged(fixture, open, kPrompt, first)));
  EXPECT_EQ(fixture.verdicts[0].verified, 1);
  EXPECT_EQ(fixture.verdicts[0].accepted, 0);
}

TEST(EngineVerifyTest, WithoutADraftItIsTheSeededStream) {
  TargetFixture fixture;
  OpenTarget open = RatioOpen({0, 0, 0, 0}, 40);
  open.has_draft = false;
  fixture.Open(open);
  fixture.RunToEnd(kId);
  EXPECT_EQ(fixture.tokens[kId], Autoregressive(fixture.model, open));
}

// PEARL's pre-verify: the target steps at once, and its only row judges the
// draft's first token, whenever that comes.
TEST(EngineVerifyTest, HoldsAStepForTheTokenThatItsLastRowJudges) {
  TargetFixture fixture;
  OpenTarget open = RatioOpen({0, 2, 2, 1'000'000, true});
  open.logprobs = 2;
  fixture.Open(open);
  const worker::StepOutcome outcome = fixture.Drain();
  EXPECT_EQ(fixture.model.num_forwards(), 1);
  EXPECT_TRUE(fixture.verdicts.empty());
  EXPECT_TRUE(outcome.waits_for_peer);
  ASSERT_TRUE(outcome.deadline_ns.has_value());
  EXPECT_GT(*outcome.deadline_ns, fixture.now_ns);

  // Another session's steps leave the row as it is.
  fixture.Open(MakeOpen(9, {5, 5, 2}, 6));
  fixture.RunToEnd(9);
  fixture.verdicts.clear();
  const int64_t forwards = fixture.model.num_forwards();

  const int32_t drafted = Accepted(fixture, open, kPrompt);
  SendTail(fixture, 3, 3, {drafted});
  fixture.Drain();
  EXPECT_EQ(fixture.model.num_forwards(), forwards) << "the row was there";
  ASSERT_EQ(fixture.verdicts.size(), 1u);
  EXPECT_EQ(fixture.tokens[kId], With(kPrompt, drafted));
  EXPECT_EQ(fixture.verdicts[0].window, 0);
  EXPECT_EQ(fixture.verdicts[0].accepted, 1);
  EXPECT_FALSE(fixture.verdicts[0].degraded);
  ASSERT_EQ(fixture.logprobs[kId].size(), 1u);
  EXPECT_EQ(fixture.logprobs[kId][0].token_id, drafted);

  // The time until then is a wait, not a verify.
  int64_t verify_end = 0;
  for (const Span& span : fixture.spans) {
    if (span.session_id != kId) continue;
    if (span.kind == Span::Kind::kVerify) {
      verify_end = span.start_ns + span.duration_ns;
      EXPECT_EQ(span.accepted, 1);
    }
    if (span.kind == Span::Kind::kWaitDraftTokens) {
      EXPECT_GT(span.duration_ns, 0);
    }
  }
  EXPECT_GT(verify_end, 0);

  // In flow it holds after accepted tokens, which it tells before: here until
  // it is known that no other comes.
  const auto behind = With(kPrompt, drafted);
  const int32_t second = Accepted(fixture, open, behind);
  const auto both = With(behind, second);
  const int32_t third = Accepted(fixture, open, both);
  fixture.Acknowledge(kId);
  SendTail(fixture, 3, 4, {second, third});
  fixture.Drain();
  const auto all = With(both, third);
  ASSERT_EQ(fixture.verdicts.size(), 2u);
  EXPECT_TRUE(fixture.verdicts[1].holds_last_row());
  EXPECT_EQ(fixture.verdicts[1].matched, 2);
  EXPECT_EQ(fixture.tokens[kId], all);
  EXPECT_EQ(fixture.logprobs[kId].size(), 3u);
  SendTail(fixture, 6, 6, {}, StopMark::kLead);
  fixture.Drain();
  ASSERT_EQ(fixture.verdicts.size(), 3u);
  EXPECT_EQ(fixture.verdicts[2].window, 0);
  // One step, one span.
  EXPECT_EQ(fixture.spans.back().kind, Span::Kind::kVerify);
  EXPECT_EQ(fixture.spans.back().rows, 3);
  EXPECT_EQ(fixture.spans.back().matched, 2);
  EXPECT_EQ(fixture.spans.back().accepted, 2);
  EXPECT_EQ(fixture.spans.back().length, 7);
  // Its own token is the one that it would draw alone.
  model::Sampler sampler(open.sampling, 16);
  ASSERT_EQ(fixture.logprobs[kId].size(), 4u);
  EXPECT_EQ(fixture.tokens[kId],
            With(all, sampler.Sample(fixture.model.Logits(all), 6,
                                     model::TokenHistory(0))));
}

TEST(EngineVerifyTest, AHeldStepEndsAtItsDeadlineOrWithTheDraft) {
  for (const bool lost : {false, true}) {
    TargetFixture fixture;
    OpenTarget open = RatioOpen({0, 2, 2, 1'000'000, true});
    fixture.Open(open);
    const worker::StepOutcome outcome = fixture.Drain();
    ASSERT_TRUE(outcome.deadline_ns.has_value());
    if (lost) {
      TargetCommands commands;
      commands.stream = 1;
      commands.draft_lost.push_back(kId);
      fixture.engine->Push(std::move(commands));
    } else {
      fixture.now_ns = *outcome.deadline_ns;
    }
    fixture.RunToEnd(kId);
    OpenTarget alone = open;
    alone.has_draft = false;
    EXPECT_EQ(fixture.tokens[kId], Autoregressive(fixture.model, alone));
  }
}

TEST(EngineVerifyTest, AHeldSessionCanBeClosed) {
  TargetFixture fixture;
  fixture.Open(RatioOpen({0, 2, 2, 1'000'000, true}));
  fixture.Drain();
  EXPECT_EQ(fixture.model.num_sequences(), 1);
  TargetCommands commands;
  commands.stream = 1;
  commands.close.push_back(kId);
  fixture.engine->Push(std::move(commands));
  SendTail(fixture, 3, 3, {1});
  fixture.Drain();
  EXPECT_EQ(fixture.model.num_sequences(), 0);
  EXPECT_TRUE(fixture.verdicts.empty());
  EXPECT_EQ(fixture.engine->stats().rejected_messages, 1u);
}

TEST(EngineVerifyTest, CountsTailsWithoutDistributions) {
  TargetFixture fixture;
  fixture.Open(RatioOpen({1, 1, 1, 1'000'000'000}));
  TargetCommands commands;
  commands.stream = 1;
  speculation::Tail tail;
  tail.epoch = 1;
  tail.base_length = tail.first_position = 3;
  tail.token_ids = {1};
  commands.tails.push_back({kId, tail});
  fixture.engine->Push(std::move(commands));
  fixture.Drain();
  EXPECT_EQ(fixture.engine->stats().rejected_messages, 1u);
  EXPECT_TRUE(fixture.verdicts.empty());
}

}  // namespace
}  // namespace nacre::target_worker
