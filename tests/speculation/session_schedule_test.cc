#include "speculation/session_schedule.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace nacre::speculation {
namespace {

using Outcome = SessionSchedule::VerdictOutcome;
using Ids = std::vector<int32_t>;

SessionSchedule Open(Method method = Method::kAsync,
                     absl::optional<int> window = absl::nullopt) {
  return SessionSchedule({method, window, 0.7}, {10, 11, 12});
}

Verdict MakeVerdict(int base_length, Ids token_ids, int verified,
                    int accepted) {
  Verdict verdict;
  verdict.base_length = base_length;
  verdict.token_ids = std::move(token_ids);
  verdict.verified = verified;
  verdict.accepted = accepted;
  return verdict;
}

Tail MakeTail(uint32_t epoch, Ids token_ids) {
  Tail tail;
  tail.epoch = epoch;
  tail.token_ids = std::move(token_ids);
  return tail;
}

TEST(SessionSchedule, AVerdictIsCommittedAndBecomesTheDraftsCommit) {
  SessionSchedule schedule = Open();
  Commit commit;
  EXPECT_EQ(schedule.OnVerdict(MakeVerdict(3, {1, 2}, 2, 1), &commit),
            Outcome::kApplied);
  EXPECT_EQ(commit.first_position, 3);
  EXPECT_EQ(commit.token_ids, (Ids{1, 2}));
  EXPECT_EQ(schedule.committed(), (Ids{10, 11, 12, 1, 2}));
  EXPECT_EQ(schedule.prompt_length(), 3);
  EXPECT_EQ(schedule.generated(), 2);
}

TEST(SessionSchedule, ThePromptMayStayElsewhere) {
  SessionSchedule schedule(SessionSchedule::Options(), /*prompt_length=*/3);
  EXPECT_EQ(schedule.committed_length(), 3);
  Commit commit;
  EXPECT_EQ(schedule.OnVerdict(MakeVerdict(3, {1, 2}, 2, 1), &commit),
            Outcome::kApplied);
  EXPECT_EQ(schedule.OnVerdict(MakeVerdict(3, {1, 2}, 2, 1), &commit),
            Outcome::kRepeated);
  EXPECT_EQ(commit.first_position, 3);
  EXPECT_EQ(schedule.committed(), (Ids{1, 2}));
  EXPECT_EQ(schedule.committed_length(), 5);
  EXPECT_EQ(schedule.prompt_length(), 3);
  EXPECT_EQ(schedule.generated(), 2);
}

TEST(SessionSchedule, APlanIsAdoptedWhereItIsNews) {
  SessionSchedule schedule = Open();
  EXPECT_FALSE(schedule.has_plan());
  PipelinePlan plan;
  plan.target.gate_timeout_ns = 1000;
  EXPECT_EQ(schedule.Adopt(plan), plan);
  EXPECT_TRUE(schedule.has_plan());
  plan.target.gate_timeout_ns = 1999;  // not worth a message
  EXPECT_EQ(schedule.Adopt(plan), absl::nullopt);
  EXPECT_EQ(schedule.plan().target.gate_timeout_ns, 1000);
  plan.target.gate_timeout_ns = 500;
  EXPECT_EQ(schedule.Adopt(plan), plan);
  plan.window = 3;
  EXPECT_EQ(schedule.Adopt(plan)->window, 3);
  EXPECT_EQ(schedule.plan().window, 3);
}

TEST(SessionSchedule, WhatItMeasuredStandsWhateverItsPairIs) {
  SessionSchedule schedule = Open();
  schedule.SetPairAlpha(0.5);
  EXPECT_DOUBLE_EQ(schedule.alpha(), 0.5);
  Commit commit;
  schedule.OnVerdict(MakeVerdict(3, {1, 2}, 4, 0), &commit);
  const double measured = schedule.alpha();
  EXPECT_LT(measured, 0.5);
  schedule.SetPairAlpha(0.9);
  EXPECT_DOUBLE_EQ(schedule.alpha(), measured);
}

TEST(SessionSchedule, BeginsWithThePairsRanks) {
  SessionSchedule schedule = Open();
  const double usual = schedule.plan_inputs({}).next_three;
  schedule.SetPairAlpha(0.5, {0.9, 0.1});
  EXPECT_NEAR(schedule.plan_inputs({}).next_three, 1, 1e-12);
  schedule.AttachDraft();
  Commit commit;
  schedule.OnVerdict(MakeVerdict(3, {1}, 0, 0), &commit);
  const std::vector<int> ranks = {kBeyond};
  ASSERT_TRUE(schedule.OnRanks(schedule.epoch(), ranks));
  const double measured = schedule.plan_inputs({}).next_three;
  EXPECT_LT(measured, 1);
  schedule.SetPairAlpha(0.5);
  EXPECT_DOUBLE_EQ(schedule.plan_inputs({}).next_three, measured);
  EXPECT_NE(measured, usual);
}

TEST(SessionSchedule, RepeatedAndImpossibleVerdictsChangeNothing) {
  SessionSchedule schedule = Open();
  Commit commit;
  schedule.OnVerdict(MakeVerdict(3, {1, 2}, 2, 1), &commit);
  const double alpha = schedule.alpha();
  const std::vector<std::pair<Verdict, Outcome>> refused = {
      {MakeVerdict(3, {1, 2}, 2, 1), Outcome::kRepeated},
      {MakeVerdict(4, {2, 3}, 2, 1), Outcome::kRepeated},
      {MakeVerdict(6, {4}, 2, 1), Outcome::kMalformed},
      {MakeVerdict(5, {}, 2, 1), Outcome::kMalformed},
      {MakeVerdict(5, {3}, 1, 2), Outcome::kMalformed},
      {MakeVerdict(5, {3}, 1, -1), Outcome::kMalformed},
      {MakeVerdict(5, {3}, -1, -1), Outcome::kMalformed},
  };
  for (const auto& [verdict, outcome] : refused) {
    EXPECT_EQ(schedule.OnVerdict(verdict, &commit), outcome);
  }
  EXPECT_EQ(commit.token_ids, (Ids{1, 2}));
  EXPECT_EQ(schedule.committed().size(), 5u);
  EXPECT_EQ(schedule.alpha(), alpha);
  EXPECT_EQ(schedule.stats().rounds, 1);
  EXPECT_EQ(schedule.stats().verified, 2);
  EXPECT_EQ(schedule.stats().stale_messages, 7);
}

// Counts that no step reaches would make what counts them grow with them.
TEST(SessionSchedule, VerdictsWithCountsThatNoStepReachesChangeNothing) {
  constexpr int kMost = std::numeric_limits<int>::max();
  SessionSchedule schedule = Open();
  Commit commit;
  Verdict verdict = MakeVerdict(3, Ids(kMaxWindow + 1, 7), 0, 0);
  const auto is_refused = [&](auto change) {
    Verdict changed = verdict;
    change(&changed);
    return schedule.OnVerdict(changed, &commit) == Outcome::kMalformed;
  };
  EXPECT_TRUE(is_refused([](Verdict* v) { v->token_ids.push_back(7); }));
  EXPECT_TRUE(is_refused([](Verdict* v) { v->window = kMaxWindow + 1; }));
  EXPECT_TRUE(is_refused([](Verdict* v) { v->window = -1; }));
  EXPECT_TRUE(is_refused([](Verdict* v) { v->matched = kMaxWindow + 1; }));
  EXPECT_TRUE(is_refused([](Verdict* v) { v->matched = -1; }));
  EXPECT_TRUE(is_refused([](Verdict* v) { v->verified = kMost; }));
  EXPECT_TRUE(
      is_refused([](Verdict* v) { v->verified = v->accepted = kMost; }));
  // What was generated, and one tail more.
  constexpr int kCompared = kMaxWindow + 1 + kMaxLead + 1;
  EXPECT_TRUE(is_refused(
      [](Verdict* v) { v->verified = v->accepted = kCompared + 1; }));
  // Nothing asks for trees.
  EXPECT_TRUE(is_refused([](Verdict* v) { v->path = {1}; }));
  EXPECT_EQ(schedule.stats().stale_messages, 9);
  EXPECT_EQ(schedule.stats().rounds, 0);
  EXPECT_EQ(schedule.generated(), 0);

  verdict.window = verdict.matched = kMaxWindow;
  verdict.verified = verdict.accepted = kCompared;
  EXPECT_EQ(schedule.OnVerdict(verdict, &commit), Outcome::kApplied);
  // A tail that was held up on its way is compared with all of it.
  verdict.base_length += kMaxWindow + 1;
  verdict.verified = verdict.accepted = kCompared + kMaxWindow + 1;
  EXPECT_EQ(schedule.OnVerdict(verdict, &commit), Outcome::kApplied);
}

// Each part may be possible, and their sum not.
TEST(SessionSchedule, AStepTellsItsAcceptedTokensBeforeItsLastRowOnce) {
  SessionSchedule schedule = Open();
  Commit commit;
  Verdict held = MakeVerdict(3, {1}, 1, 1);
  held.window = held.matched = 1;
  ASSERT_TRUE(held.holds_last_row());
  EXPECT_EQ(schedule.OnVerdict(held, &commit), Outcome::kApplied);
  EXPECT_EQ(schedule.ended_step(), nullptr);
  held.base_length = 4;
  EXPECT_EQ(schedule.OnVerdict(held, &commit), Outcome::kMalformed);
  EXPECT_EQ(schedule.generated(), 1);
  EXPECT_EQ(schedule.OnVerdict(MakeVerdict(4, {2}, 0, 0), &commit),
            Outcome::kApplied);
  ASSERT_NE(schedule.ended_step(), nullptr);
  EXPECT_EQ(schedule.ended_step()->accepted, 1);
  EXPECT_EQ(schedule.ended_step()->token_ids, (Ids{1, 2}));
}

TEST(SessionSchedule, TailsThatNoDraftReachesAreNotRelayed) {
  constexpr int kMost = std::numeric_limits<int>::max();
  SessionSchedule schedule = Open();
  const uint32_t epoch = schedule.AttachDraft();
  const auto is_relayed = [&](int base_length, int first_position,
                              size_t count) {
    Tail tail = MakeTail(epoch, Ids(count, 7));
    tail.base_length = base_length;
    tail.first_position = first_position;
    return schedule.OnTail(tail);
  };
  EXPECT_TRUE(is_relayed(3, 3, kMaxLead + 1));
  EXPECT_TRUE(is_relayed(3, 3 + kMaxLead, 1));
  EXPECT_TRUE(is_relayed(0, 0, 0));
  const SpeculationStats before = schedule.stats();
  EXPECT_FALSE(is_relayed(3, 3, kMaxLead + 2));
  EXPECT_FALSE(is_relayed(3, 3 + kMaxLead + 1, 1));
  EXPECT_FALSE(is_relayed(3, kMost, 1));
  EXPECT_FALSE(is_relayed(3, kMost, 0));
  EXPECT_FALSE(is_relayed(3, -1, 1));
  EXPECT_FALSE(is_relayed(4, 3, 1));
  EXPECT_FALSE(is_relayed(-1, 3, 1));
  Tail tail = MakeTail(epoch, {7});
  tail.distributions.resize(kMaxLead + 2);
  EXPECT_FALSE(schedule.OnTail(tail));
  tail.distributions.resize(1);
  tail.distributions[0].token_ids.resize(kMaxDistribution + 1);
  EXPECT_FALSE(schedule.OnTail(tail));
  tail.distributions[0].token_ids.resize(1);
  tail.distributions[0].weights.resize(kMaxDistribution + 1);
  EXPECT_FALSE(schedule.OnTail(tail));
  tail = MakeTail(epoch, Ids(kMaxTailNodes + 1, 7));
  tail.parents.assign(kMaxTailNodes + 1, 0);
  tail.scores.assign(kMaxTailNodes + 1, -1.0f);
  tail.first_node = 1;
  EXPECT_FALSE(schedule.OnTail(tail));
  EXPECT_EQ(schedule.stats().stale_messages, before.stale_messages + 11);
  EXPECT_EQ(schedule.stats().drafted, before.drafted);
}

// A step that holds its last row is told in two parts and counts as one round.
TEST(SessionSchedule, JoinsTheTwoPartsOfAStep) {
  SessionSchedule schedule = Open();
  schedule.AttachDraft();
  Commit commit;
  Verdict accepted = MakeVerdict(3, {1, 2}, 2, 2);
  accepted.window = accepted.matched = 2;
  accepted.degraded = true;
  ASSERT_TRUE(accepted.holds_last_row());
  EXPECT_EQ(schedule.OnVerdict(accepted, &commit), Outcome::kApplied);
  EXPECT_EQ(commit.token_ids, (Ids{1, 2}));
  EXPECT_EQ(schedule.committed(), (Ids{10, 11, 12, 1, 2}));
  EXPECT_EQ(schedule.ended_step(), nullptr);
  EXPECT_EQ(schedule.stats().rounds, 0);
  EXPECT_EQ(schedule.stats().accepted, 2);

  Verdict last = MakeVerdict(5, {3}, 1, 0);
  last.finish = FinishReason::kLength;
  EXPECT_EQ(schedule.OnVerdict(last, &commit), Outcome::kApplied);
  EXPECT_EQ(commit.first_position, 5);
  EXPECT_EQ(commit.token_ids, (Ids{3}));
  ASSERT_NE(schedule.ended_step(), nullptr);
  const Verdict& step = *schedule.ended_step();
  EXPECT_EQ(step.base_length, 3);
  EXPECT_EQ(step.token_ids, (Ids{1, 2, 3}));
  EXPECT_EQ(step.window, 2);
  EXPECT_EQ(step.matched, 2);
  EXPECT_EQ(step.verified, 3);
  EXPECT_EQ(step.accepted, 2);
  EXPECT_EQ(step.finish, FinishReason::kLength);
  EXPECT_EQ(schedule.stats().rounds, 1);
  EXPECT_EQ(schedule.stats().degraded_rounds, 1);
  EXPECT_EQ(schedule.stats().verified, 3);
}

TEST(SessionSchedule, CountsTheRanksOfItsDraft) {
  SessionSchedule schedule = Open();
  EXPECT_FALSE(schedule.OnRanks(0, {1}));  // no draft is attached
  const uint32_t epoch = schedule.AttachDraft();
  EXPECT_FALSE(schedule.OnRanks(epoch, {1}));  // of no committed token
  Commit commit;
  EXPECT_EQ(schedule.OnVerdict(MakeVerdict(3, {1, 2, 3, 4, 5}, 4, 4), &commit),
            Outcome::kApplied);
  EXPECT_FALSE(schedule.OnRanks(epoch, {1, 1, 3, kBeyond}, /*prepared=*/3));
  EXPECT_FALSE(schedule.OnRanks(epoch, {1, 1, 3, kBeyond}, /*prepared=*/-1));
  EXPECT_EQ(schedule.stats().prepared, 0);
  EXPECT_TRUE(schedule.OnRanks(epoch, {1, 1, 3, kBeyond}, /*prepared=*/1));
  EXPECT_FALSE(schedule.OnRanks(epoch, {1, 1}));   // more than committed
  EXPECT_FALSE(schedule.OnRanks(epoch - 1, {1}));  // of an earlier draft
  EXPECT_FALSE(schedule.OnRanks(epoch, {2, 0}));
  EXPECT_FALSE(schedule.OnRanks(epoch, {kBeyond + 1}));
  EXPECT_EQ(schedule.stats().ranks,
            (std::array<int64_t, kBeyond>{2, 0, 1, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(schedule.stats().prepared, 1);
  EXPECT_EQ(schedule.stats().stale_messages, 8);
}

SessionSchedule OpenTree() {
  SessionSchedule::Options options;
  options.draft_rows = 4;
  return SessionSchedule(options, {10, 11, 12});
}

bool Tells(const SessionSchedule::Comparisons& news, int verified,
           int accepted) {
  return news.verified == verified && news.accepted == accepted;
}

// Verdicts come until the draft has told ranks, and its first ranks are of the
// same places.
TEST(SessionSchedule, EachPlaceTellsOfThePairOnce) {
  SessionSchedule schedule = OpenTree();
  const uint32_t epoch = schedule.AttachDraft();
  Commit commit;
  const Verdict first = MakeVerdict(3, {1, 2, 3}, 3, 2);
  const Verdict second = MakeVerdict(6, {4, 5}, 2, 1);
  for (const Verdict& verdict : {first, second}) {
    ASSERT_EQ(schedule.OnVerdict(verdict, &commit), Outcome::kApplied);
    EXPECT_TRUE(
        Tells(schedule.TakeNewsOfPair(), verdict.verified, verdict.accepted));
  }
  // Of the first verdict alone; then of the second, and of one after it.
  const Ids ranks = {1, 1, 2};
  ASSERT_TRUE(schedule.OnRanks(epoch, ranks));
  EXPECT_TRUE(Tells(schedule.TakeNewsOfPair(), 0, 0));
  const Verdict third = MakeVerdict(8, {6, 7, 8}, 3, 3);
  ASSERT_EQ(schedule.OnVerdict(third, &commit), Outcome::kApplied);
  EXPECT_TRUE(Tells(schedule.TakeNewsOfPair(), 0, 0));
  const Ids more = {1, 3, 1, 4};
  ASSERT_TRUE(schedule.OnRanks(epoch, more));
  EXPECT_TRUE(Tells(schedule.TakeNewsOfPair(), 2, 1));
  ASSERT_TRUE(schedule.OnRanks(epoch, {1}));
  EXPECT_TRUE(Tells(schedule.TakeNewsOfPair(), 1, 1));
}

// A verdict goes on along a branch, of which the draft tells no ranks. These
// places are not those of the next ranks.
TEST(SessionSchedule, PlacesOnABranchAreNotThoseOfTheNextRanks) {
  SessionSchedule schedule = OpenTree();
  const uint32_t epoch = schedule.AttachDraft();
  Commit commit;
  const Verdict first = MakeVerdict(3, {1, 2, 3, 4, 5}, 4, 4);
  ASSERT_EQ(schedule.OnVerdict(first, &commit), Outcome::kApplied);
  EXPECT_TRUE(Tells(schedule.TakeNewsOfPair(), 4, 4));
  ASSERT_TRUE(schedule.OnRanks(epoch, {1, 2}));
  EXPECT_TRUE(Tells(schedule.TakeNewsOfPair(), 0, 0));
  ASSERT_TRUE(schedule.OnRanks(epoch, {1, 1, 2}));
  EXPECT_TRUE(Tells(schedule.TakeNewsOfPair(), 3, 2));
}

// A draft that tells no ranks is told of by verdicts, also after one that did.
TEST(SessionSchedule, VerdictsTellOfTheNextDraftUntilItTellsRanks) {
  SessionSchedule schedule = OpenTree();
  ASSERT_TRUE(schedule.OnRanks(schedule.AttachDraft(), {}));
  Commit commit;
  ASSERT_EQ(schedule.OnVerdict(MakeVerdict(3, {1, 2}, 2, 1), &commit),
            Outcome::kApplied);
  schedule.OnDraftLost();
  const uint32_t epoch = schedule.AttachDraft();
  ASSERT_TRUE(schedule.OnRanks(epoch, {1}));
  schedule.TakeNewsOfPair();
  schedule.OnDraftLost();
  ASSERT_TRUE(schedule.OnRanks(schedule.AttachDraft(), {}));
  ASSERT_EQ(schedule.OnVerdict(MakeVerdict(5, {3, 4, 5}, 3, 2), &commit),
            Outcome::kApplied);
  EXPECT_TRUE(Tells(schedule.TakeNewsOfPair(), 3, 2));
}

// What verdicts told of a draft that was lost, the next one does not tell.
TEST(SessionSchedule, PlacesOfAnEarlierDraftAreNotTheNextOnes) {
  SessionSchedule schedule = OpenTree();
  schedule.AttachDraft();
  Commit commit;
  const Verdict verdict = MakeVerdict(3, {1, 2, 3}, 3, 2);
  ASSERT_EQ(schedule.OnVerdict(verdict, &commit), Outcome::kApplied);
  EXPECT_TRUE(Tells(schedule.TakeNewsOfPair(), 3, 2));
  schedule.OnDraftLost();
  const uint32_t epoch = schedule.AttachDraft();
  ASSERT_TRUE(schedule.OnRanks(epoch, {1, 2}));
  EXPECT_TRUE(Tells(schedule.TakeNewsOfPair(), 2, 1));
}

TEST(SessionSchedule, OfAChainVerdictsTellThroughout) {
  SessionSchedule schedule = Open();
  const uint32_t epoch = schedule.AttachDraft();
  Commit commit;
  for (const int base : {3, 4}) {
    const Verdict verdict = MakeVerdict(base, {1}, 1, 1);
    ASSERT_EQ(schedule.OnVerdict(verdict, &commit), Outcome::kApplied);
    EXPECT_TRUE(Tells(schedule.TakeNewsOfPair(), 1, 1));
    ASSERT_TRUE(schedule.OnRanks(epoch, {1}));
    EXPECT_TRUE(Tells(schedule.TakeNewsOfPair(), 0, 0));
  }
}

TEST(SessionSchedule, RelaysTreesAndTakesPaths) {
  SessionSchedule schedule = Open();
  Tail tree = MakeTail(schedule.AttachDraft(), {1, 2});
  tree.base_length = tree.first_position = 3;
  tree.parents = {0, 0};
  tree.scores = {-1.0f, -2.0f};
  tree.first_node = 1;
  EXPECT_TRUE(schedule.OnTail(tree));
  EXPECT_EQ(schedule.stats().drafted, 2);
  Tail displaced = tree;
  displaced.first_position = 4;
  EXPECT_FALSE(schedule.OnTail(displaced));
  Tail unscored = tree;
  unscored.scores.pop_back();
  EXPECT_FALSE(schedule.OnTail(unscored));
  Tail ahead = tree;
  ahead.base_length = ahead.first_position = 4;
  EXPECT_FALSE(schedule.OnTail(ahead));
  Commit commit;
  Verdict verdict = MakeVerdict(3, {1, 5}, 2, 1);
  verdict.window = verdict.matched = 1;
  verdict.path = {1, 2};
  EXPECT_EQ(schedule.OnVerdict(verdict, &commit), Outcome::kMalformed);
  verdict.path = {1};
  EXPECT_EQ(schedule.OnVerdict(verdict, &commit), Outcome::kApplied);
}

TEST(SessionSchedule, AStepWhoseTargetIsLostBetweenItsPartsHasEnded) {
  SessionSchedule schedule = Open();
  Commit commit;
  Verdict accepted = MakeVerdict(3, {1, 2}, 2, 2);
  accepted.window = accepted.matched = 2;
  schedule.OnVerdict(accepted, &commit);
  schedule.OnTargetLost();
  EXPECT_EQ(schedule.stats().rounds, 1);
  // Not a part of it: another target draws that token.
  schedule.OnVerdict(MakeVerdict(5, {3}, 0, 0), &commit);
  ASSERT_NE(schedule.ended_step(), nullptr);
  EXPECT_EQ(schedule.ended_step()->base_length, 5);
  EXPECT_EQ(schedule.stats().rounds, 2);
}

TEST(SessionSchedule, ALostTargetMakesEveryTailStaleUntilADraftIsOpenedAnew) {
  SessionSchedule schedule = Open();
  EXPECT_EQ(schedule.AttachDraft(), 1u);
  schedule.OnTargetLost();
  EXPECT_FALSE(schedule.draft_attached());
  EXPECT_EQ(schedule.epoch(), 2u);
  EXPECT_FALSE(schedule.OnTail(MakeTail(1, {1})));
  EXPECT_FALSE(schedule.OnTail(MakeTail(2, {1})));
  EXPECT_EQ(schedule.AttachDraft(), 3u);
  EXPECT_FALSE(schedule.OnTail(MakeTail(1, {1})));
  EXPECT_TRUE(schedule.OnTail(MakeTail(3, {1})));
  EXPECT_EQ(schedule.stats().stale_messages, 3);
  EXPECT_EQ(schedule.stats().drafted, 1);
}

TEST(SessionSchedule, AccountsForEveryRound) {
  SessionSchedule schedule = Open();
  EXPECT_EQ(schedule.AttachDraft(), 1u);
  EXPECT_TRUE(schedule.OnTail(MakeTail(1, {1, 2, 9})));
  Commit commit;
  schedule.OnVerdict(MakeVerdict(3, {1, 2, 3}, 3, 2), &commit);
  Verdict degraded = MakeVerdict(6, {4}, 0, 0);
  degraded.degraded = true;
  schedule.OnVerdict(degraded, &commit);
  const SpeculationStats& stats = schedule.stats();
  EXPECT_EQ(stats.rounds, 2);
  EXPECT_EQ(stats.drafted, 3);
  EXPECT_EQ(stats.verified, 3);
  EXPECT_EQ(stats.accepted, 2);
  EXPECT_EQ(stats.committed, 4);
  EXPECT_EQ(stats.degraded_rounds, 1);
  EXPECT_EQ(stats.stale_messages, 0);
  // A prior of 4 comparisons at 0.7.
  EXPECT_NEAR(schedule.alpha(), (2.8 + 2) / (4 + 3), 1e-12);
}

TEST(SessionSchedule, WhereNoDraftIsExpectedNoStepIsDegraded) {
  for (const bool expects_draft : {true, false}) {
    SessionSchedule::Options options;
    options.expects_draft = expects_draft;
    SessionSchedule schedule(options, {10, 11, 12});
    Verdict verdict = MakeVerdict(3, {1}, 0, 0);
    verdict.degraded = true;
    Commit commit;
    ASSERT_EQ(schedule.OnVerdict(verdict, &commit), Outcome::kApplied);
    EXPECT_EQ(schedule.stats().rounds, 1);
    EXPECT_EQ(schedule.stats().degraded_rounds, expects_draft ? 1 : 0);
  }
}

TEST(SessionSchedule, WhoAlwaysDraftsDoesNotRest) {
  StepTimeCurve steep;
  for (int rows = 1; rows <= 64; ++rows) steep.Add(rows, 1'000'000 * rows);
  StepCosts costs;
  costs.target = &steep;
  costs.draft_token_ns = 1e6;
  costs.other_rows = costs.other_sessions = costs.other_async_sessions = 8;
  SessionSchedule::Options options;
  for (const bool always_drafts : {true, false}) {
    options.always_drafts = always_drafts;
    SessionSchedule schedule(options, {1, 2, 3});
    schedule.Replan(costs);
    EXPECT_EQ(schedule.plan().window, 0);
    EXPECT_NE(schedule.plan().draft.rests(), always_drafts);
  }
}

TEST(SessionSchedule, WithoutDraftingNoRoundIsDegraded) {
  SessionSchedule schedule = Open(Method::kAr);
  EXPECT_FALSE(schedule.wants_draft());
  Verdict verdict = MakeVerdict(3, {1}, 0, 0);
  verdict.degraded = true;
  Commit commit;
  schedule.OnVerdict(verdict, &commit);
  EXPECT_EQ(schedule.stats().degraded_rounds, 0);
}

TEST(SessionSchedule, OnlyTheDraftOfTheLatestEpochSpeaks) {
  SessionSchedule schedule = Open();
  EXPECT_FALSE(schedule.OnTail(MakeTail(0, {1})));  // none is attached
  EXPECT_EQ(schedule.AttachDraft(), 1u);
  EXPECT_FALSE(schedule.OnTail(MakeTail(0, {1})));
  EXPECT_TRUE(schedule.OnTail(MakeTail(1, {1})));
  schedule.OnDraftLost();
  EXPECT_FALSE(schedule.draft_attached());
  EXPECT_FALSE(schedule.OnTail(MakeTail(1, {1})));
  EXPECT_EQ(schedule.AttachDraft(), 2u);
  EXPECT_EQ(schedule.epoch(), 2u);
  EXPECT_FALSE(schedule.OnTail(MakeTail(1, {1})));
  EXPECT_FALSE(schedule.OnTail(MakeTail(3, {1})));
  EXPECT_TRUE(schedule.OnTail(MakeTail(2, {1, 2})));
  EXPECT_EQ(schedule.stats().drafted, 3);
  EXPECT_EQ(schedule.stats().stale_messages, 5);
}

TEST(SessionSchedule, PlansOnceAndThenOnlyRealChanges) {
  SessionSchedule schedule = Open(Method::kSd, 4);
  StepTimeCurve target;
  target.Add(1, 10'000'000);
  StepCosts costs;
  costs.target = &target;
  costs.draft_token_ns = 1e6;
  const absl::optional<PipelinePlan> plan = schedule.Replan(costs);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(*plan, schedule.plan());
  EXPECT_EQ(plan->target.window, 4);
  EXPECT_EQ(schedule.Replan(costs), absl::nullopt);
  costs.draft_token_ns = 1.5e6;  // the timeout follows, not worth a message
  EXPECT_EQ(schedule.Replan(costs), absl::nullopt);
  EXPECT_EQ(*plan, schedule.plan());
  costs.draft_token_ns = 4e6;
  const absl::optional<PipelinePlan> slower = schedule.Replan(costs);
  ASSERT_TRUE(slower.has_value());
  EXPECT_GT(slower->target.gate_timeout_ns, 2 * plan->target.gate_timeout_ns);
}

TEST(SessionSchedule, ThePlanFollowsTheAcceptanceOfTheSession) {
  SessionSchedule schedule = Open();
  StepTimeCurve target;
  for (int rows = 1; rows <= 40; ++rows) {
    target.Add(rows, 10'000'000 + 1'000'000 * (rows - 1));
  }
  StepCosts costs;
  costs.target = &target;
  costs.draft_token_ns = 1e6;
  const int window = schedule.Replan(costs)->window;
  Commit commit;
  for (int i = 0; i < 20; ++i) {
    schedule.OnVerdict(MakeVerdict(3 + i, {1}, 1, 0), &commit);
  }
  EXPECT_LT(schedule.Replan(costs)->window, window);
}

TEST(SessionSchedule, ArNeedsNoPlanBeyondTheFirst) {
  SessionSchedule schedule = Open(Method::kAr);
  ASSERT_TRUE(schedule.Replan({}).has_value());
  EXPECT_EQ(schedule.plan(), PipelinePlan());
  EXPECT_EQ(schedule.Replan({}), absl::nullopt);
}

TEST(SessionSchedule, CountsWhatTheTargetProposedApart) {
  SessionSchedule schedule({}, {10, 11, 12});
  schedule.AttachDraft();
  Commit commit;
  Verdict verdict = MakeVerdict(3, {1, 2, 3}, 0, 0);
  verdict.window = 4;
  verdict.matched = 2;
  verdict.suffix_proposed = 5;
  EXPECT_EQ(schedule.OnVerdict(verdict, &commit), Outcome::kMalformed);
  verdict.suffix_proposed = 4;
  verdict.suffix_accepted = 5;
  EXPECT_EQ(schedule.OnVerdict(verdict, &commit), Outcome::kMalformed);
  verdict.suffix_accepted = -1;
  EXPECT_EQ(schedule.OnVerdict(verdict, &commit), Outcome::kMalformed);
  verdict.suffix_accepted = 2;
  verdict.branch_accepted = 3;
  EXPECT_EQ(schedule.OnVerdict(verdict, &commit), Outcome::kMalformed);
  verdict.branch_accepted = -1;
  EXPECT_EQ(schedule.OnVerdict(verdict, &commit), Outcome::kMalformed);
  verdict.branch_accepted = 0;
  EXPECT_EQ(schedule.OnVerdict(verdict, &commit), Outcome::kApplied);
  EXPECT_EQ(schedule.stats().suffix_proposed, 4);
  EXPECT_EQ(schedule.stats().suffix_accepted, 2);
  EXPECT_EQ(schedule.stats().verified, 0);
  EXPECT_EQ(schedule.stats().committed, 3);
}

}  // namespace
}  // namespace nacre::speculation
