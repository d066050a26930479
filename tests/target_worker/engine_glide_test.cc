// A target engine whose sessions draft over its keys and values: with prefixes
// taken over from other sessions, and sessions that go on from where another
// worker stopped, every token is the one that the model alone says, and the
// draft sees the whole text.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/glide_model.h"
#include "tests/target_worker/features_fixture.h"
#include "tests/target_worker/real_engine.h"

namespace nacre::target_worker {
namespace {

using Ids = std::vector<int32_t>;

RealEngine::Make GlideOf(const std::string& kind) {
  return [kind](model::LanguageModel* model) {
    auto glide = model::GlideModel::Load(RealFolder("glide/" + kind), *model);
    EXPECT_TRUE(glide.ok()) << glide.status();
    return *std::move(glide);
  };
}

TEST(TargetEngineGlide, ChangesNoToken) {
  int accepted = 0;
  for (const float temperature : {0.0f, 0.8f, 1.0f}) {
    SCOPED_TRACE(temperature);
    RealEngine alone(nullptr);
    const auto said = SayThree(temperature, &alone);
    for (const std::string kind : {"one_layer", "two_layers"}) {
      SCOPED_TRACE(kind);
      RealEngine engine(GlideOf(kind));
      EXPECT_EQ(SayThree(temperature, &engine), said);
      accepted += engine.accepted;
    }
  }
  EXPECT_GT(accepted, 20);
}

// As of drafts over features; the drafter checks each row.
TEST(TargetEngineGlide, OfKnownTokensChangesNone) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    worker::StepBudget budget;
    if (seed % 5 == 0) budget.prefill_chunk = 5;
    Features fixture(ShowingModel(seed), static_cast<int>(seed % 3),
                     /*with_suffixes=*/seed % 2 == 0, budget, /*over_kv=*/true);
    fixture.drafter->percent_right = static_cast<int>(seed % 4) * 33;
    std::map<uint64_t, Ids> said;
    for (uint64_t id = 1; id <= 2; ++id) {
      OpenTarget open = OwnDraftsOpen(id, seed);
      open.sampling.temperature = kOwnDraftsTemperatures[seed % 3];
      open.num_slots = kOwnDraftsSlots[seed / 4 % 4];
      said[id] = fixture.Begin(open);
    }
    for (uint64_t id = 1; id <= 2; ++id) {
      fixture.RunToEnd(id);
      EXPECT_EQ(fixture.tokens[id], said[id]);
    }
    accepted += fixture.Accepted();
  }
  EXPECT_GT(accepted, 40 * 2 * 60 / 4);
}

TEST(TargetEngineGlide, EveryTokenIsFedOnce) {
  Features fixture(ShowingModel(2, 2048), /*percent_a_row=*/0, false, {},
                   /*over_kv=*/true);
  OpenTarget open = OwnDraftsOpen(1, 2, 50);
  open.ignore_eos = true;
  const Ids said = fixture.Begin(open);
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.tokens[1], said);
  const KnowingDrafter::Sequence& sequence = *fixture.drafter->last;
  EXPECT_EQ(sequence.num_rows, sequence.last_position + 1);
  EXPECT_EQ(sequence.num_clears, 0);
  EXPECT_GT(sequence.num_rows, 12 + 50 - 20);
  // Without slots the proposal is the chain of first candidates, each of which
  // is right: it was ranked after the text that the session has.
  for (const speculation::Verdict& verdict : fixture.verdicts) {
    EXPECT_EQ(verdict.suffix_accepted, verdict.suffix_proposed);
  }
  EXPECT_GT(fixture.Accepted(), 50 / 3);
}

// One step reads a prompt of up to 4,096 tokens.
struct LongTexts : Features {
  LongTexts()
      : Features(Model(), /*percent_a_row=*/0, false, Budget(),
                 /*over_kv=*/true) {}
  static nacre::testing::TableModelOptions Model() {
    nacre::testing::TableModelOptions model = ShowingModel(4, 2048);
    model.context_length = 4096;
    model.kv_capacity_tokens = 1 << 14;
    return model;
  }
  static worker::StepBudget Budget() {
    worker::StepBudget budget;
    budget.max_rows = budget.prefill_chunk = 4096;
    return budget;
  }
};

// No look feeds more of a long text than it may.
TEST(TargetEngineGlide, ALongTextIsFedInParts) {
  LongTexts fixture;
  OpenTarget open = MakeOpen(1, Prompt(1300, 4), 40);
  open.suffixes.emplace();
  open.ignore_eos = true;
  const Ids said = fixture.Begin(open);
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.tokens[1], said);
  EXPECT_EQ(fixture.drafter->last->num_clears, 0);
  EXPECT_GT(fixture.drafter->last->num_rows, 1300);
  EXPECT_EQ(fixture.drafter->most_rows, size_t{FeatureDrafts::kMostGiven});
  EXPECT_GT(fixture.Accepted(), 10);
}

// Nor is any of it paid for, however long calls take: none of it is forgotten.
TEST(TargetEngineGlide, ALongTextIsFedUnpaid) {
  LongTexts fixture;
  fixture.drafter->on_call = [&fixture](int) { fixture.now_ns += 2'000; };
  // A text that another worker has begun is given, too.
  OpenTarget open = MakeOpen(1, Prompt(1300, 4), 200);
  open.prompt_length = 1200;
  open.suffixes.emplace();
  open.ignore_eos = true;
  fixture.Open(open);
  fixture.RunToEnd(1);
  // What came later is forgotten.
  EXPECT_GE(fixture.drafter->last->first_cleared, 1299);
}

// Nor is it fed when its session has ended, and has no keys any more.
TEST(TargetEngineGlide, ALongTextWithAShortAnswer) {
  LongTexts fixture;
  int calls = 0;
  fixture.drafter->on_call = [&fixture, &calls](int) {
    fixture.now_ns += 2'000;
    ++calls;
  };
  OpenTarget open = MakeOpen(1, Prompt(1300, 4), 2);
  open.suffixes.emplace();
  open.ignore_eos = true;
  fixture.Open(open);
  fixture.RunToEnd(1);
  EXPECT_EQ(calls, 1) << "after the first step alone";
}

// What a session cannot pay to feed its draft forgets, and goes on where the
// text is.
TEST(TargetEngineGlide, WhatCannotBePaidForIsForgotten) {
  Features fixture(ShowingModel(2), /*percent_a_row=*/0, false, {},
                   /*over_kv=*/true);
  fixture.drafter->percent_right = 0;
  fixture.drafter->on_call = [&fixture](int) { fixture.now_ns += 200; };
  OpenTarget open = OwnDraftsOpen(1, 2, 400);
  open.ignore_eos = true;
  const Ids said = fixture.Begin(open);
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.tokens[1], said);
  EXPECT_GT(fixture.drafter->last->num_clears, 1);
}

}  // namespace
}  // namespace nacre::target_worker
