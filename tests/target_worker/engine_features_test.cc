// The target's own drafts, from a drafter over its features: right or wrong,
// they change no token, the drafter sees each position once and in order, and
// what it costs is bounded.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "target_worker/feature_drafts.h"
#include "tests/target_worker/features_fixture.h"

namespace nacre::target_worker {
namespace {

using Ids = std::vector<int32_t>;

// Two at a time, at each temperature, with slots and without, whole prompts and
// small chunks, from a drafter that is never right, sometimes and always, with
// suffixes beside it and without.
TEST(TargetEngineFeatures, ChangeNoToken) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    worker::StepBudget budget;
    if (seed % 5 == 0) budget.prefill_chunk = 5;
    Features fixture(ShowingModel(seed), static_cast<int>(seed % 3),
                     /*with_suffixes=*/seed % 2 == 0, budget);
    fixture.drafter->percent_right = static_cast<int>(seed % 4) * 33;
    std::map<uint64_t, Ids> said;
    for (uint64_t id = 1; id <= 2; ++id) {
      OpenTarget open = OwnDraftsOpen(id, seed);
      open.sampling.temperature = kOwnDraftsTemperatures[seed % 3];
      open.sampling.repetition_penalty = seed % 7 == 0 ? 1.2f : 1.0f;
      open.num_slots = kOwnDraftsSlots[seed / 4 % 4];
      if (seed % 8 == 0) open.logprobs = 2;
      if (seed % 9 == 0) {
        open.prompt_logprobs = 1;
        open.first_prompt_logprob = 3;
      }
      said[id] = fixture.Begin(open);
    }
    for (uint64_t id = 1; id <= 2; ++id) {
      fixture.RunToEnd(id);
      EXPECT_EQ(fixture.tokens[id], said[id]);
    }
    accepted += fixture.Accepted();
  }
  EXPECT_GT(accepted, 60 * 2 * 60 / 4);
}

TEST(TargetEngineFeatures, GoWithDraftsThatComeAndGo) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Features fixture(ShowingModel(seed));
    fixture.drafter->percent_right = 60;
    OpenTarget open = OwnDraftsOpen(1, seed, 80);
    open.sampling.temperature = kOwnDraftsTemperatures[seed % 3];
    open.plan = {static_cast<int>(random() % 3), 0, 4, 0};
    open.has_draft = true;
    open.epoch = 1;
    open.num_slots = kOwnDraftsSlots[seed % 4];
    const Ids said = fixture.Begin(open);
    fixture.RunWithTails(said, random);
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_EQ(fixture.tokens[1], said);
    accepted += fixture.Accepted();
  }
  EXPECT_GT(accepted, 100);
}

// A drafter that says the target's own logits after each path: ranked by the
// noise of the position the first candidate is the target's token at any
// temperature, all the way down. By any other noise or path it is not.
TEST(TargetEngineFeatures, ACandidateIsRankedByTheNoiseOfItsPosition) {
  for (const float temperature : kOwnDraftsTemperatures) {
    for (const float penalty : {1.0f, 1.3f}) {
      SCOPED_TRACE(temperature);
      Features fixture(ShowingModel(4, 2048));
      OpenTarget open = OwnDraftsOpen(1, 4, 100);
      open.sampling.temperature = temperature;
      open.sampling.repetition_penalty = penalty;
      open.ignore_eos = true;
      const Ids said = fixture.Begin(open);
      fixture.RunToEnd(1);
      EXPECT_EQ(fixture.tokens[1], said);
      for (const speculation::Verdict& verdict : fixture.verdicts) {
        EXPECT_EQ(verdict.suffix_accepted, verdict.suffix_proposed)
            << "without slots the proposal is the chain of first candidates";
      }
      EXPECT_GT(fixture.Accepted(), 100 / 3);
    }
  }
}

// More than fit one call.
TEST(TargetEngineFeatures, EachSessionHasItsOwnRows) {
  Features fixture(ShowingModel(6, 1024), /*percent_a_row=*/0);
  std::map<uint64_t, Ids> said;
  for (uint64_t id = 1; id <= 2 * LookTurns::kMaxSessions + 3; ++id) {
    OpenTarget open = OwnDraftsOpen(id, 6, 40);
    open.sampling.temperature = 1.0f;
    open.ignore_eos = true;
    if (id % 2 == 0) open.num_slots = 64;
    said[id] = fixture.Begin(open);
  }
  for (const auto& [id, tokens] : said) {
    fixture.RunToEnd(id);
    EXPECT_EQ(fixture.tokens[id], tokens);
  }
  EXPECT_EQ(fixture.drafter->most_sessions, size_t{LookTurns::kMaxSessions});
  EXPECT_GT(fixture.Accepted(), static_cast<int>(said.size()) * 40 / 3);
}

// The drafter sees all of the text but what it took over: the first row stands
// at position 0, and none comes twice (KnowingDrafter checks each row).
TEST(TargetEngineFeatures, EveryPositionIsFedOnce) {
  Features fixture(ShowingModel(2), /*percent_a_row=*/0);
  OpenTarget open = OwnDraftsOpen(1, 2, 50);
  open.ignore_eos = true;
  open.num_slots = 64;
  fixture.Begin(open);
  fixture.RunToEnd(1);
  const KnowingDrafter::Sequence& sequence = *fixture.drafter->last;
  EXPECT_EQ(sequence.num_rows, sequence.last_position + 1);
  EXPECT_EQ(sequence.num_clears, 0);
  EXPECT_GT(sequence.num_rows, 12 + 50 - 20);
}

// A session that cannot pay to look, nor for what has come meanwhile, begins
// anew with the last row.
TEST(TargetEngineFeatures, WhatCannotBePaidForIsForgotten) {
  Features fixture(ShowingModel(2), /*percent_a_row=*/0);
  fixture.drafter->percent_right = 0;
  fixture.drafter->on_call = [&fixture](int) { fixture.now_ns += 200; };
  OpenTarget open = OwnDraftsOpen(1, 2, 400);
  open.ignore_eos = true;
  const Ids said = fixture.Begin(open);
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.tokens[1], said);
  EXPECT_GT(fixture.drafter->last->num_clears, 1);
}

TEST(TargetEngineFeatures, WhatALookCostsIsBounded) {
  const auto calls = [](int percent_of_a_step, int percent_right) {
    Features fixture(ShowingModel(2), /*percent_a_row=*/0);
    fixture.drafter->percent_right = percent_right;
    fixture.drafter->on_call = [&fixture, percent_of_a_step](int reads) {
      fixture.now_ns += percent_of_a_step / 10 - 10 * reads;
    };
    OpenTarget open = OwnDraftsOpen(1, 2, 200);
    open.ignore_eos = true;
    const Ids said = fixture.Begin(open);
    fixture.RunToEnd(1);
    EXPECT_EQ(fixture.tokens[1], said);
    EXPECT_GT(fixture.drafter->num_calls, 0);
    return fixture.drafter->num_calls;
  };
  // A look is a call and one for each level, none of which is worth so much.
  EXPECT_LE(calls(200, 0), 12);
  EXPECT_GT(calls(20, 100), 40);
}

// A tree of half a step, of a drafter that was right and no longer is.
TEST(TargetEngineFeatures, ARequestLooksWithWhatOthersHaveEarned) {
  const auto calls = [](bool closes) {
    Features fixture(ShowingModel(2, 1024), /*percent_a_row=*/0);
    fixture.drafter->on_call = [&fixture](int reads) {
      fixture.now_ns += 2 - 10 * reads;
    };
    OpenTarget first = OwnDraftsOpen(1, 2, 12);
    fixture.Begin(first);
    fixture.RunToEnd(1);
    if (closes) RunAndClose(&fixture, 1);
    const int before = fixture.drafter->num_calls;
    fixture.drafter->percent_right = 0;
    fixture.Begin(OwnDraftsOpen(2, 2, 100));
    fixture.RunToEnd(2);
    return fixture.drafter->num_calls - before;
  };
  EXPECT_GE(calls(true), calls(false) + 3);
}

TEST(TargetEngineFeatures, OnlyOfRequestsThatAllowThem) {
  Features fixture(ShowingModel(2));
  OpenTarget off = OwnDraftsOpen(1, 2);
  off.suffixes.reset();
  OpenTarget ratio = OwnDraftsOpen(2, 2);
  ratio.verification = speculation::Verification::kRatio;
  for (const OpenTarget& open : {off, ratio}) {
    fixture.Begin(open);
    fixture.RunToEnd(open.session_id);
  }
  EXPECT_EQ(fixture.drafter->num_calls, 0);
  EXPECT_EQ(fixture.Proposed(), 0);
}

TEST(TargetEngineFeatures, ADrafterWithoutRoomDraftsNothing) {
  for (const bool at_the_start : {true, false}) {
    Features fixture(ShowingModel(2));
    fixture.drafter->has_room = !at_the_start;
    fixture.drafter->fails = true;
    OpenTarget open = OwnDraftsOpen(1, 2);
    const Ids said = fixture.Begin(open);
    fixture.RunToEnd(1);
    EXPECT_EQ(fixture.tokens[1], said);
    // Of the prompt, and of the first tree.
    EXPECT_EQ(fixture.drafter->num_calls, at_the_start ? 0 : 2);
    EXPECT_EQ(fixture.Proposed(), 0);
  }
}

// Of a prompt, a root, a level; for want of room and for another reason.
TEST(TargetEngineFeatures, ACallThatFailsChangesNoToken) {
  for (const absl::StatusCode error :
       {absl::StatusCode::kResourceExhausted, absl::StatusCode::kInternal}) {
    for (int call = 1; call <= 10; ++call) {
      SCOPED_TRACE(call);
      Features fixture(ShowingModel(4, 2048), /*percent_a_row=*/0);
      fixture.drafter->fails_at = call;
      fixture.drafter->error = error;
      std::map<uint64_t, Ids> said;
      for (uint64_t id = 1; id <= 2; ++id) {
        OpenTarget open = OwnDraftsOpen(id, 4, 60);
        open.ignore_eos = true;
        open.num_slots = 64;
        said[id] = fixture.Begin(open);
      }
      for (uint64_t id = 1; id <= 2; ++id) {
        fixture.RunToEnd(id);
        EXPECT_EQ(fixture.tokens[id], said[id]);
      }
      EXPECT_GE(fixture.drafter->num_calls, call);
    }
  }
}

// Then the draft goes on after it.
TEST(TargetEngineFeatures, APromptWithoutRoomIsForgotten) {
  Features fixture(ShowingModel(4, 2048), /*percent_a_row=*/0);
  fixture.drafter->fails_at = 1;
  OpenTarget open = OwnDraftsOpen(1, 4, 60);
  open.ignore_eos = true;
  const Ids said = fixture.Begin(open);
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.tokens[1], said);
  EXPECT_EQ(fixture.drafter->last->num_clears, 1);
  EXPECT_GT(fixture.Accepted(), 0);
}

// Nodes that no step could verify would cost time.
TEST(TargetEngineFeatures, GrowAChainInFewerSlotsThanALevelHasNodes) {
  for (const int num_slots : {0, 1, 3, 4, 16}) {
    Features fixture(ShowingModel(4, 2048), /*percent_a_row=*/0);
    OpenTarget open = OwnDraftsOpen(1, 4, 60);
    open.num_slots = num_slots;
    open.ignore_eos = true;
    fixture.Begin(open);
    fixture.RunToEnd(1);
    EXPECT_GT(fixture.Accepted(), 0);
    if (num_slots < FeatureDrafts::kRows) {
      EXPECT_EQ(fixture.drafter->most_nodes, 1u) << num_slots;
    } else {
      EXPECT_GT(fixture.drafter->most_nodes, 1u) << num_slots;
    }
  }
}

TEST(TargetEngineFeatures, IsNoDeeperThanTheDrafterWasTrainedFor) {
  Features fixture(ShowingModel(4, 2048), /*percent_a_row=*/0);
  fixture.drafter->depth = 2;
  OpenTarget open = OwnDraftsOpen(1, 4, 60);
  open.ignore_eos = true;
  fixture.Begin(open);
  fixture.RunToEnd(1);
  EXPECT_GT(fixture.Accepted(), 0);
  for (const speculation::Verdict& verdict : fixture.verdicts) {
    EXPECT_LE(verdict.suffix_proposed, 2);
  }
}

}  // namespace
}  // namespace nacre::target_worker
