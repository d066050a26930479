#include "draft_worker/draft_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "tests/draft_worker/draft_fixture.h"

namespace nacre::draft_worker {
namespace {

using speculation::StopMark;
using wire::Span;
using worker::WorkerState;

TEST(DraftEngineTest, DraftsItsLeadThenSaysThatItStopped) {
  for (const int prompt_length : {1, 2, 19}) {
    DraftFixture fixture;
    const OpenDraft open = MakeOpen(1, Prompt(prompt_length, 4), 5);
    fixture.Open(open);
    fixture.Drain();
    ASSERT_EQ(fixture.tails[1].size(), 5u);  // as soon as each is there
    EXPECT_EQ(fixture.tails[1][3].stop, StopMark::kNone);
    EXPECT_EQ(fixture.tails[1][4].stop, StopMark::kLead);
    EXPECT_EQ(fixture.tails[1][0].epoch, 3u);
    EXPECT_EQ(fixture.tails[1][0].base_length, prompt_length);
    EXPECT_EQ(fixture.tails[1][0].first_position, prompt_length);
    EXPECT_EQ(fixture.TakeDrafted(1),
              Continue(fixture.model, open, open.token_ids, 5));
  }
}

TEST(DraftEngineTest, GoesOnAfterAMatchingCommit) {
  DraftFixture fixture;
  const OpenDraft open = MakeOpen(1, Prompt(7, 4), 4);
  fixture.Open(open);
  fixture.Drain();
  const std::vector<int32_t> drafted = fixture.TakeDrafted(1);
  fixture.Commit(1, 7, {drafted[0], drafted[1], drafted[2]});
  fixture.Drain();
  EXPECT_EQ(fixture.TakeDrafted(1),
            Continue(fixture.model, open, Joined(open.token_ids, drafted), 3));
  EXPECT_EQ(std::count_if(fixture.spans.begin(), fixture.spans.end(),
                          [](const Span& span) {
                            return span.kind == Span::Kind::kWaitVerdict;
                          }),
            1);
}

TEST(DraftEngineTest, FollowsACorrection) {
  DraftFixture fixture;
  const OpenDraft open = MakeOpen(1, Prompt(7, 4), 6);
  fixture.Open(open);
  fixture.Drain();
  const std::vector<int32_t> drafted = fixture.TakeDrafted(1);
  const int32_t correction = (drafted[2] + 1) % 16;
  const std::vector<int32_t> commit = {drafted[0], drafted[1], correction};
  fixture.Commit(1, 7, commit);
  fixture.Drain();
  EXPECT_EQ(fixture.tails[1][0].base_length, 10);
  EXPECT_EQ(fixture.TakeDrafted(1),
            Continue(fixture.model, open, Joined(open.token_ids, commit), 6));
  const auto rollback = std::find_if(
      fixture.spans.begin(), fixture.spans.end(),
      [](const Span& span) { return span.kind == Span::Kind::kRollback; });
  ASSERT_NE(rollback, fixture.spans.end());
  EXPECT_EQ(rollback->length, 9);
  EXPECT_EQ(rollback->rows, 3);  // of 12 fed positions
}

// KV after the first difference is of other tokens, however far the commit
// goes on.
TEST(DraftEngineTest, FollowsACommitThatGoesOnBehindItsCorrection) {
  DraftFixture fixture;
  const OpenDraft open = MakeOpen(1, Prompt(7, 4), 6);
  fixture.Open(open);
  fixture.Drain();
  const std::vector<int32_t> drafted = fixture.TakeDrafted(1);
  const std::vector<int32_t> commit = {drafted[0], (drafted[1] + 1) % 16,
                                       (drafted[1] + 2) % 16, drafted[3]};
  fixture.Commit(1, 7, commit);
  fixture.Drain();
  EXPECT_EQ(fixture.TakeDrafted(1),
            Continue(fixture.model, open, Joined(open.token_ids, commit), 6));
}

TEST(DraftEngineTest, CatchesUpWithCommitsAheadOfIt) {
  DraftFixture fixture;
  const OpenDraft open = MakeOpen(1, Prompt(7, 4), 0);
  fixture.Open(open);
  fixture.Drain();
  ASSERT_EQ(fixture.tails[1].size(), 1u);  // it tells that nothing will come
  EXPECT_EQ(fixture.tails[1][0].stop, StopMark::kLead);
  fixture.tails[1].clear();
  const std::vector<int32_t> commit = Prompt(30, 9);
  fixture.Commit(1, 7, commit);
  DraftCommands plan;
  plan.stream = 1;
  plan.plans.push_back({1, {3, 3}});
  fixture.engine->Push(plan);
  fixture.Drain();
  EXPECT_EQ(fixture.TakeDrafted(1),
            Continue(fixture.model, open, Joined(open.token_ids, commit), 3));
}

TEST(DraftEngineTest, ACommitDuringAForwardDropsTheTokenItMakesPointless) {
  TableModelOptions options;
  std::function<void()> during;
  options.on_forward = [&during](int) {
    if (during) std::exchange(during, nullptr)();
    return absl::OkStatus();
  };
  DraftFixture fixture(options);
  const OpenDraft open = MakeOpen(1, Prompt(1, 4), 4);
  fixture.Open(open);
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  const std::vector<int32_t> first = fixture.TakeDrafted(1);
  ASSERT_EQ(first.size(), 1u);
  const std::vector<int32_t> commit = {(first[0] + 1) % 16};
  during = [&] { fixture.Commit(1, 1, commit); };
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  EXPECT_TRUE(fixture.tails[1].empty());
  fixture.Drain();
  EXPECT_EQ(fixture.TakeDrafted(1),
            Continue(fixture.model, open, Joined(open.token_ids, commit), 4));
}

TEST(DraftEngineTest, AMatchingCommitDuringAForwardCostsNoRow) {
  TableModelOptions options;
  std::function<void()> during;
  options.on_forward = [&during](int) {
    if (during) std::exchange(during, nullptr)();
    return absl::OkStatus();
  };
  DraftFixture fixture(options);
  const OpenDraft open = MakeOpen(1, Prompt(1, 4), 4);
  const std::vector<int32_t> said =
      Continue(fixture.model, open, open.token_ids, 6);
  fixture.Open(open);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(fixture.engine->RunOnce().ok());
  during = [&] { fixture.Commit(1, 1, {said[0], said[1]}); };
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  EXPECT_EQ(fixture.model.num_rows(), 3);
  fixture.Drain();
  EXPECT_EQ(fixture.TakeDrafted(1), said);
  EXPECT_EQ(fixture.model.num_rows(), 6);  // one a token
}

TEST(DraftEngineTest, APlanThatEndsTheDraftDuringAForwardDropsItsToken) {
  TableModelOptions options;
  std::function<void()> during;
  options.on_forward = [&during](int) {
    if (during) std::exchange(during, nullptr)();
    return absl::OkStatus();
  };
  DraftFixture fixture(options);
  const OpenDraft open = MakeOpen(1, Prompt(1, 4), 4);
  const auto set_lead = [&](int lead) {
    DraftCommands commands;
    commands.stream = 1;
    commands.plans.push_back({1, {lead, lead}});
    fixture.engine->Push(std::move(commands));
  };
  const std::vector<int32_t> said =
      Continue(fixture.model, open, open.token_ids, 3);
  fixture.Open(open);
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  during = [&] { set_lead(1); };
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  EXPECT_EQ(fixture.TakeDrafted(1), std::vector<int32_t>({said[0]}));
  set_lead(3);
  fixture.Drain();
  EXPECT_EQ(fixture.TakeDrafted(1), std::vector<int32_t>({said[1], said[2]}));
}

// Random commits, right and wrong, short and long, several sessions and small
// budgets: every draft is what the model says after the session's sequence.
TEST(DraftEngineTest, EveryDraftIsTheModelsOwnContinuation) {
  std::mt19937_64 random(3);
  for (const int max_step_rows : {5, 512}) {
    DraftFixture fixture({}, {.max_rows = max_step_rows});
    std::map<uint64_t, OpenDraft> opens;
    std::map<uint64_t, std::vector<int32_t>> sequences;  // as the draft has it
    std::map<uint64_t, int> committed;
    for (uint64_t id = 1; id <= 3; ++id) {
      opens[id] = MakeOpen(id, Prompt(static_cast<int>(4 * id - 3), id),
                           static_cast<int>(id) + 1);
      sequences[id] = opens[id].token_ids;
      committed[id] = static_cast<int>(sequences[id].size());
      fixture.Open(opens[id]);
    }
    for (int round = 0; round < 60; ++round) {
      fixture.Drain();
      for (uint64_t id = 1; id <= 3; ++id) {
        const std::vector<int32_t> drafted = fixture.TakeDrafted(id);
        ASSERT_EQ(drafted, Continue(fixture.model, opens[id], sequences[id],
                                    static_cast<int>(drafted.size())));
        std::vector<int32_t>& sequence = sequences[id];
        sequence.insert(sequence.end(), drafted.begin(), drafted.end());
        ASSERT_EQ(static_cast<int>(sequence.size()) - committed[id],
                  static_cast<int>(id) + 1);
        std::vector<int32_t> commit;
        for (int i = 0; i < 1 + static_cast<int>(random() % 5); ++i) {
          const size_t position = static_cast<size_t>(committed[id] + i);
          const bool right = random() % 4 != 0 && position < sequence.size();
          commit.push_back(right ? sequence[position]
                                 : static_cast<int32_t>(random() % 16));
          if (position < sequence.size() &&
              sequence[position] != commit.back()) {
            sequence.resize(position);
          }
          if (position >= sequence.size()) sequence.push_back(commit.back());
        }
        fixture.Commit(id, committed[id], commit);
        committed[id] += static_cast<int>(commit.size());
      }
    }
  }
}

TEST(DraftEngineTest, StopsAtEndTokensAndAtMaxLength) {
  DraftFixture fixture;
  OpenDraft open = MakeOpen(1, Prompt(7, 4), 50);
  open.max_length = 20;
  fixture.Open(open);
  fixture.Drain();
  EXPECT_EQ(fixture.tails[1].back().stop, StopMark::kEnd);
  const std::vector<int32_t> drafted = fixture.TakeDrafted(1);
  EXPECT_EQ(drafted.size(), 13u);

  open.session_id = 2;
  open.end_token_ids = {drafted[4]};
  fixture.Open(open);
  fixture.Drain();
  EXPECT_EQ(fixture.tails[2].back().stop, StopMark::kEnd);
  EXPECT_EQ(fixture.TakeDrafted(2).back(), drafted[4]);
}

TEST(DraftEngineTest, ADraftOfASmallerContextStopsShort) {
  TableModelOptions options;
  options.context_length = 10;
  DraftFixture fixture(options);
  fixture.Open(MakeOpen(1, Prompt(7, 4), 50));
  fixture.Drain();
  EXPECT_EQ(fixture.tails[1].back().stop, StopMark::kEnd);
  EXPECT_EQ(fixture.TakeDrafted(1).size(), 3u);
  // The target goes on without it, past what the draft can hold.
  fixture.Commit(1, 7, Prompt(40, 6));
  fixture.Drain();
  EXPECT_TRUE(fixture.failures.empty());
  EXPECT_TRUE(fixture.TakeDrafted(1).empty());
}

TEST(DraftEngineTest, NeverDrawsMaskedIds) {
  DraftFixture fixture;
  OpenDraft open = MakeOpen(1, Prompt(7, 4), 100);
  open.sampling.temperature = 5.0f;
  open.vocab_limit = 9;
  fixture.Open(open);
  fixture.Drain();
  const std::vector<int32_t> drafted = fixture.TakeDrafted(1);
  EXPECT_EQ(drafted.size(), 100u);
  EXPECT_LT(*std::max_element(drafted.begin(), drafted.end()), 9);
}

TEST(DraftEngineTest, OneStepGivesOneTokenToEverySession) {
  DraftFixture fixture;
  for (uint64_t id = 1; id <= 5; ++id) {
    fixture.Open(MakeOpen(id, Prompt(1, id), 8));
  }
  fixture.Drain();
  EXPECT_EQ(fixture.model.num_forwards(), 8);
  EXPECT_EQ(fixture.model.num_rows(), 40);
}

TEST(DraftEngineTest, ADeviceErrorFailsTheSessionsOfTheStep) {
  TableModelOptions options;
  options.on_forward = [](int) { return absl::InternalError("gone"); };
  DraftFixture fixture(options);
  fixture.Open(MakeOpen(1, Prompt(6, 4), 3));
  EXPECT_EQ(fixture.engine->RunOnce().status().code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(fixture.failures[1].code(), absl::StatusCode::kInternal);
  EXPECT_EQ(fixture.engine->stats().sessions, 0);
}

TEST(DraftEngineTest, BusyAndWaitingTimesAddUp) {
  DraftFixture fixture;
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  fixture.now_ns += 500;
  fixture.Open(MakeOpen(1, Prompt(60, 2), 4));
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
    fixture.now_ns += 700;
  }
  const worker::TimePartition::Totals totals = fixture.engine->stats().time;
  EXPECT_EQ(std::accumulate(totals.by_state_ns.begin(),
                            totals.by_state_ns.end(), int64_t{0}),
            totals.elapsed_ns);
  EXPECT_GT(totals[WorkerState::kPrefill], 0);
  EXPECT_GT(totals[WorkerState::kDraft], 0);
  EXPECT_GT(totals[WorkerState::kWaitVerdict], 0);
  EXPECT_GT(totals[WorkerState::kNoWork], 0);
  EXPECT_EQ(totals[WorkerState::kVerify], 0);
}

}  // namespace
}  // namespace nacre::draft_worker
