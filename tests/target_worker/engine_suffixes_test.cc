// The target's own drafts, from suffixes: they save steps and change no token,
// and no client's text is in another's.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/target_worker/target_fixture.h"

namespace nacre::target_worker {
namespace {

using Ids = std::vector<int32_t>;
using speculation::TextOwner;

constexpr TextOwner kNobody = {};
constexpr TextOwner kAlice = {1, 2};
constexpr TextOwner kBob = {1, 3};
constexpr int64_t kCacheBytes = 1 << 20;

struct Suffixes : TargetFixture {
  explicit Suffixes(int64_t cache_bytes = kCacheBytes,
                    nacre::testing::TableModelOptions model_options = {})
      : TargetFixture(std::move(model_options), {}, nullptr, nullptr, true,
                      cache_bytes) {}

  // What a row more costs, in percent of a step of one. (A step takes 10 ns of
  // this clock: where rows are free, no step changes the curve.)
  void SetRowPrice(int percent) {
    engine->LearnStepTimes(std::vector<worker::StepTime>{
        {1, 10}, {512, 10 + 511 * int64_t{percent} / 10}});
  }

  // A whole session. Returns (window, matched) of each step.
  std::vector<std::pair<int, int>> Run(const OpenTarget& open) {
    verdicts.clear();
    Open(open);
    RunToEnd(open.session_id);
    TargetCommands commands;
    commands.stream = 1;
    commands.close.push_back(open.session_id);
    engine->Push(std::move(commands));
    Drain();
    std::vector<std::pair<int, int>> steps;
    for (const speculation::Verdict& verdict : verdicts) {
      steps.emplace_back(verdict.window, verdict.matched);
    }
    return steps;
  }

  int Accepted() const {
    int accepted = 0;
    for (const speculation::Verdict& verdict : verdicts) {
      accepted += verdict.suffix_accepted;
    }
    return accepted;
  }
};

OpenTarget SuffixOpen(uint64_t id, TextOwner owner, uint64_t prompt,
                      int max_tokens = 60) {
  OpenTarget open = MakeOpen(id, Prompt(12, prompt), max_tokens);
  open.suffixes = owner;
  return open;
}

TEST(TargetEngineSuffixes, SaveStepsAndChangeNoToken) {
  int accepted = 0;
  int repeated = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    nacre::testing::TableModelOptions model;
    model.seed = seed;
    model.scale = seed % 2 == 0 ? 2.0f : 6.0f;
    Suffixes fixture(kCacheBytes, model);
    fixture.SetRowPrice(static_cast<int>(seed % 3));
    for (uint64_t id = 1; id <= 3; ++id) {
      OpenTarget open = SuffixOpen(id, kAlice, seed, 100);
      if (id == 2) {
        open.sampling.temperature = 0.5f;
        open.sampling.seed = seed;
        open.sampling.repetition_penalty = seed % 5 == 0 ? 1.2f : 1.0f;
      }
      if (seed % 4 == 0) open.num_slots = seed % 3 == 0 ? 64 : 8;
      if (seed % 8 == 0) open.logprobs = 2;
      fixture.Run(open);
      EXPECT_EQ(fixture.tokens[id], Autoregressive(fixture.model, open));
      (id < 3 ? accepted : repeated) += fixture.Accepted();
    }
  }
  EXPECT_GT(accepted, 40 * 2 * 100 / 20);
  EXPECT_GT(repeated, 40 * 100 / 2)
      << "the third answer is the first once more";
}

TEST(TargetEngineSuffixes, GoWithDraftsThatComeAndGo) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    nacre::testing::TableModelOptions model;
    model.seed = seed;
    model.scale = 6.0f;
    Suffixes fixture(kCacheBytes, model);
    fixture.SetRowPrice(1);
    OpenTarget open = SuffixOpen(1, kNobody, seed, 80);
    open.plan = {static_cast<int>(random() % 3), 0, 4, 0};
    open.has_draft = true;
    open.epoch = 1;
    const Ids said = Autoregressive(fixture.model, open);
    fixture.Open(open);
    fixture.RunWithTails(said, random);
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_EQ(fixture.tokens[1], said);
    accepted += fixture.Accepted();
  }
  EXPECT_GT(accepted, 100);
}

TEST(TargetEngineSuffixes, RowsMustPay) {
  for (const int percent : {1, 400}) {
    Suffixes fixture;
    fixture.SetRowPrice(percent);
    fixture.Run(SuffixOpen(1, kAlice, 1));
    fixture.Run(SuffixOpen(2, kAlice, 1));
    EXPECT_EQ(fixture.Accepted() > 0, percent == 1);
    EXPECT_EQ(fixture.engine->stats().suffix_proposed > 0, percent == 1);
  }
}

constexpr int kLength = 30;

// Says 0 to kLength - 1, again and again.
nacre::testing::TableModelOptions Counts() {
  nacre::testing::TableModelOptions model;
  model.vocab_size = 64;
  model.on_row = [](absl::Span<const int32_t> tokens,
                    std::vector<float>* logits) {
    (*logits)[tokens.size() % kLength] += 1000;
  };
  return model;
}

// The answer is the prompt once more, and no row comes before its session can
// pay for it: half a step at once, a hundredth for each step.
TEST(TargetEngineSuffixes, ASessionPaysForItsRows) {
  const nacre::testing::TableModelOptions model = Counts();
  const auto first_with_rows = [&model](int percent) {
    Suffixes fixture(/*cache_bytes=*/0, model);
    fixture.SetRowPrice(percent);
    Ids prompt(kLength);
    std::iota(prompt.begin(), prompt.end(), 0);
    OpenTarget open = MakeOpen(1, prompt, 60);
    open.suffixes = kNobody;
    open.ignore_eos = true;
    const auto steps = fixture.Run(open);
    return std::find_if(steps.begin(), steps.end(),
                        [](const auto& step) { return step.first > 0; }) -
           steps.begin();
  };
  EXPECT_LT(first_with_rows(40), 12);
  EXPECT_GE(first_with_rows(70), 19);
  EXPECT_LT(first_with_rows(70), 24);
}

// Two at once that want many rows each. After two rows for nothing the next
// costs 1.2 steps, more than one has at first, and those after it nothing: so
// each of both would pay nothing for what stands after the other's.
TEST(TargetEngineSuffixes, SessionsPayTogetherForWhatTheirRowsCost) {
  const nacre::testing::TableModelOptions model = Counts();
  Suffixes fixture(/*cache_bytes=*/0, model);
  fixture.engine->LearnStepTimes(
      std::vector<worker::StepTime>{{1, 10}, {4, 10}, {5, 16}, {512, 16}});
  for (const uint64_t id : {1, 2}) {
    Ids prompt;
    for (int i = 0; i < 2 * kLength; ++i) prompt.push_back(i % kLength);
    OpenTarget open = MakeOpen(id, prompt, 60);
    open.suffixes = kNobody;
    open.ignore_eos = true;
    fixture.Open(open);
  }
  int rows = 0;
  while (rows == 0) {
    fixture.verdicts.clear();
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
    for (const uint64_t id : {1, 2}) {
      ASSERT_EQ(fixture.finish[id], speculation::FinishReason::kNone);
      fixture.Acknowledge(id);
    }
    for (const auto& verdict : fixture.verdicts) rows += verdict.window;
  }
  EXPECT_EQ(rows, 2);
}

// The first step shares the forward of the prompt, so the second one is the
// first to be measured, and nothing is known before it.
TEST(TargetEngineSuffixes, NoRowIsKnownToPayBeforeAStepWasMeasured) {
  int proposed = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const OpenTarget open = SuffixOpen(1, kNobody, seed);
    Suffixes measured;
    measured.SetRowPrice(0);
    proposed += measured.Run(open)[1].first > 0 ? 1 : 0;
    Suffixes unmeasured;
    EXPECT_EQ(unmeasured.Run(open)[1].first, 0) << seed;
  }
  EXPECT_GT(proposed, 0);
}

TEST(TargetEngineSuffixes, NoClientsTextIsInAnothersDrafts) {
  Suffixes fixture;
  fixture.SetRowPrice(0);
  const auto first = fixture.Run(SuffixOpen(1, kAlice, 1));
  const auto again = fixture.Run(SuffixOpen(2, kAlice, 1));
  EXPECT_LT(again.size(), first.size() / 2) << "it is remembered";
  // To others every step looks as if nothing were: what is verified, and when.
  EXPECT_EQ(fixture.Run(SuffixOpen(3, kBob, 1)), first);
  EXPECT_EQ(fixture.Run(SuffixOpen(4, kNobody, 1)), first);
  EXPECT_EQ(fixture.Run(SuffixOpen(5, kNobody, 1)), first)
      << "without a name nothing is kept";
  EXPECT_LT(fixture.Run(SuffixOpen(6, kBob, 1)).size(), first.size() / 2);
}

// Only answers are: to have asked with a text says nothing of what follows it.
TEST(TargetEngineSuffixes, PromptsAreNotRemembered) {
  Suffixes fixture;
  Suffixes unused;
  fixture.SetRowPrice(0);
  unused.SetRowPrice(0);
  const OpenTarget open = SuffixOpen(2, kAlice, 1);
  OpenTarget longer = SuffixOpen(1, kAlice, 1);
  longer.token_ids.push_back(
      Autoregressive(fixture.model, open)[open.prompt_length]);
  longer.token_ids.insert(longer.token_ids.end(), 3, 7);
  longer.prompt_length += 4;
  longer.sampling.logit_bias = {{15, 100.0f}};  // all that it answers
  fixture.Run(longer);
  ASSERT_EQ(fixture.tokens[1].back(), 15);
  // The first step proposes nothing: its forward is that of the prompt.
  EXPECT_EQ(fixture.Run(open)[1], unused.Run(open)[1]);
}

TEST(TargetEngineSuffixes, ARequestMayKeepItsTextToItself) {
  Suffixes fixture;
  fixture.SetRowPrice(0);
  const auto first = fixture.Run(SuffixOpen(1, kNobody, 1));
  OpenTarget off = SuffixOpen(2, kAlice, 1);
  off.suffixes.reset();
  for (const auto& [window, matched] : fixture.Run(off)) EXPECT_EQ(window, 0);
  EXPECT_EQ(fixture.Run(SuffixOpen(3, kAlice, 1)), first)
      << "it was not kept either";
  OpenTarget ratio = SuffixOpen(4, kAlice, 1);
  ratio.verification = speculation::Verification::kRatio;
  for (const auto& [window, matched] : fixture.Run(ratio)) EXPECT_EQ(window, 0);
}

TEST(TargetEngineSuffixes, WithoutACacheNothingIsRemembered) {
  Suffixes fixture(/*cache_bytes=*/0);
  fixture.SetRowPrice(0);
  const auto first = fixture.Run(SuffixOpen(1, kAlice, 1));
  EXPECT_EQ(fixture.Run(SuffixOpen(2, kAlice, 1)), first);
}

TEST(TargetEngineSuffixes, TheOldestAnswersMakeRoom) {
  Suffixes fixture(SuffixMemory::kLeastBytes);
  fixture.SetRowPrice(0);
  const auto first = fixture.Run(SuffixOpen(1, kAlice, 1));
  // 64 KiB hold less than 2048 tokens.
  for (uint64_t id = 2; id < 40; ++id) fixture.Run(SuffixOpen(id, kBob, id));
  EXPECT_EQ(fixture.Run(SuffixOpen(100, kAlice, 1)), first);
}

TEST(TargetEngineSuffixes, AreCounted) {
  Suffixes fixture;
  fixture.SetRowPrice(0);
  uint64_t proposed = 0;
  uint64_t accepted = 0;
  for (uint64_t id = 1; id <= 2; ++id) {
    fixture.Run(SuffixOpen(id, kAlice, 1));
    for (const speculation::Verdict& verdict : fixture.verdicts) {
      proposed += static_cast<uint64_t>(verdict.suffix_proposed);
      accepted += static_cast<uint64_t>(verdict.suffix_accepted);
      EXPECT_EQ(verdict.verified, 0);
    }
  }
  EXPECT_GT(accepted, 0u);
  EXPECT_EQ(fixture.engine->stats().suffix_proposed, proposed);
  EXPECT_EQ(fixture.engine->stats().suffix_accepted, accepted);
}

}  // namespace
}  // namespace nacre::target_worker
