#include "simulation/fleet.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::simulation {
namespace {

using speculation::Method;
using ::testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

// A target step of 10 ms, a draft token of 2 ms.
FleetOptions Fleet(Method method) {
  FleetOptions options;
  options.method.method = method;
  options.alpha = 0.8;
  options.output_tokens = 500;
  return options;
}

FleetResult Simulated(const FleetOptions& options) {
  const FleetResult result = SimulateFleet(options);
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.failed_requests, 0) << result.first_failure;
  EXPECT_EQ(result.requests, int64_t{1} * options.streams * options.requests);
  EXPECT_EQ(result.output_tokens, result.requests * options.output_tokens);
  EXPECT_EQ(result.stats.committed, result.output_tokens);
  EXPECT_LE(result.stats.accepted, result.stats.verified);
  const auto sum = [](const WorkerTime& time) {
    return time.busy_ns + time.wait_ns + time.no_work_ns + time.down_ns;
  };
  EXPECT_EQ(sum(result.target), options.targets * result.virtual_ns);
  EXPECT_EQ(sum(result.draft), options.method.method == Method::kAr
                                   ? 0
                                   : options.drafts * result.virtual_ns);
  return result;
}

std::shared_ptr<const MatchTrace> Trace(MatchTrace trace) {
  return std::make_shared<const MatchTrace>(std::move(trace));
}

TEST(SimulateFleet, OneSeedDecidesEverything) {
  FleetOptions options = Fleet(Method::kAsync);
  options.streams = 3;
  options.drafts = 2;
  options.target_hop = options.draft_hop = {100'000, 900'000};
  const FleetResult first = Simulated(options);
  const FleetResult second = Simulated(options);
  EXPECT_EQ(first.virtual_ns, second.virtual_ns);
  EXPECT_EQ(first.events, second.events);
  options.seed = 2;
  EXPECT_NE(Simulated(options).virtual_ns, first.virtual_ns);
}

TEST(SimulateFleet, MeasuresTheAlphaItWasGiven) {
  for (const Method method : {Method::kSd, Method::kPearl, Method::kAsync}) {
    FleetOptions options = Fleet(method);
    options.output_tokens = 10'000;
    EXPECT_NEAR(Simulated(options).acceptance_rate(), 0.8, 0.01);
  }
}

// A mismatch finds the draft in the middle of a token where c is no whole
// number.
TEST(SimulateFleet, AbandonedStepsSaveTime) {
  FleetOptions options = Fleet(Method::kAsync);
  options.draft_step = StepTimes::Flat(3e6);
  const FleetResult finished = Simulated(options);
  options.abandons_steps = true;
  const FleetResult abandoned = Simulated(options);
  EXPECT_LT(abandoned.virtual_ns, finished.virtual_ns);
  EXPECT_GT(abandoned.virtual_ns, finished.virtual_ns * 85 / 100);
}

// A step goes on that another session needs, and with `sd` the draft waits for
// each verdict.
TEST(SimulateFleet, NothingElseIsAbandoned) {
  FleetOptions options = Fleet(Method::kSd);
  const FleetResult finished = Simulated(options);
  options.abandons_steps = true;
  EXPECT_EQ(Simulated(options).virtual_ns, finished.virtual_ns);
  options = Fleet(Method::kAsync);
  options.abandons_steps = true;
  options.streams = 8;
  options.drafts = 2;
  options.failures.push_back({.role = Role::kDraft,
                              .after_ns = 300 * kMs,
                              .repeats = true,
                              .back_after_ns = 50 * kMs});
  Simulated(options);
}

TEST(SimulateFleet, RequestsFollowEachOther) {
  FleetOptions options = Fleet(Method::kAr);
  options.requests = 3;
  EXPECT_EQ(Simulated(options).virtual_ns, 3 * 500 * 10 * kMs);
}

TEST(SimulateFleet, ReplaysRequestsAsTheyWere) {
  FleetOptions options = Fleet(Method::kSd);
  options.method.window = 2;
  options.requests = 99;  // none of them: these three
  options.replay = {{1, 6, Trace({true, true, false, false, true, false})},
                    {1, 1, Trace({false})},
                    {1, 3, Trace({true, true})}};
  const FleetResult result = SimulateFleet(options);
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.requests, 3);
  EXPECT_EQ(result.output_tokens, 10);
  // 1: two match and the third is the target's; a mismatch; one of one. 2: one
  // step. 3: two match and the third ends it.
  EXPECT_EQ(result.stats.rounds, 3 + 1 + 1);
  EXPECT_EQ(result.stats.accepted, 2 + 0 + 1 + 0 + 2);
  EXPECT_EQ(result.stats.verified, 2 + 1 + 1 + 0 + 2);
  // Each step 10 ms, each token drafted before it 2.
  EXPECT_EQ(result.virtual_ns, (5 * 10 + (2 + 2 + 1 + 0 + 2) * 2) * kMs);
}

TEST(SimulateFleet, FreeStreamsTakeTheNextReplayedRequest) {
  FleetOptions options = Fleet(Method::kAr);
  options.streams = 2;
  options.target_step = StepTimes({{1, 10e6}, {2, 12e6}});
  const auto matches = Trace({false});
  options.replay = {{1, 5, matches}, {1, 2, matches}, {1, 1, matches}};
  const FleetResult result = SimulateFleet(options);
  EXPECT_EQ(result.output_tokens, 8);
  // Three steps of both streams, then two of the one left.
  EXPECT_EQ(result.virtual_ns, (3 * 12 + 2 * 10) * kMs);
}

TEST(SimulateFleet, ReplayedPromptsAreFed) {
  FleetOptions options = Fleet(Method::kAr);
  options.target_step = StepTimes({{1, 10e6}, {101, 30e6}});
  options.replay = {{101, 2, Trace({true})}};
  // The last prompt token is a row of the first step, which shares the forward.
  EXPECT_EQ(SimulateFleet(options).virtual_ns, (30 + 10) * kMs);
}

TEST(SimulateFleet, StreamsShareSteps) {
  FleetOptions options = Fleet(Method::kAr);
  options.streams = 8;
  EXPECT_EQ(Simulated(options).virtual_ns, 500 * 10 * kMs);
  options.target_step = StepTimes({{1, 10e6}, {8, 17e6}});
  EXPECT_EQ(Simulated(options).virtual_ns, 500 * 17 * kMs);
  options.targets = 2;  // 4 rows each
  EXPECT_EQ(Simulated(options).virtual_ns, 500 * 13 * kMs);
  options.budget.max_rows = 1;  // in turn
  EXPECT_EQ(Simulated(options).virtual_ns, 4 * 500 * 10 * kMs);
}

TEST(SimulateFleet, DraftingStreamsShareSteps) {
  FleetOptions options = Fleet(Method::kAsync);
  options.output_tokens = 200;
  const FleetResult alone = Simulated(options);
  options.streams = 4;
  const FleetResult shared = Simulated(options);
  EXPECT_LT(shared.virtual_ns, 2 * alone.virtual_ns);
  EXPECT_EQ(shared.stats.committed, 4 * alone.stats.committed);
}

TEST(SimulateFleet, DraftTokensOfManySessionsTakeTheirTime) {
  FleetOptions options = Fleet(Method::kPearl);
  options.method.window = 5;
  options.streams = 4;
  const FleetResult flat = Simulated(options);
  options.draft_step = StepTimes({{1, 2e6}, {4, 8e6}});
  const FleetResult shared = Simulated(options);
  options.drafts = 4;
  const FleetResult own = Simulated(options);
  EXPECT_GT(shared.virtual_ns, 2 * flat.virtual_ns);
  EXPECT_LT(own.virtual_ns, 1.3 * flat.virtual_ns);
  EXPECT_GT(shared.target.wait_share(), own.target.wait_share());
}

TEST(SimulateFleet, PromptsAreFedInChunksOfTheStepBudget) {
  FleetOptions options = Fleet(Method::kAr);
  options.output_tokens = 100;
  options.target_step = StepTimes({{1, 10e6}, {512, 50e6}});
  options.prompt_tokens = 1025;  // 1024 rows and the first of the first step
  EXPECT_EQ(Simulated(options).virtual_ns, (2 * 50 + 100 * 10) * kMs);
  // What the draft still has to read costs nothing but its help.
  options.method.method = Method::kAsync;
  options.draft_step = StepTimes({{1, 2e6}, {512, 100e6}});
  EXPECT_LT(Simulated(options).virtual_ns, (2 * 50 + 100 * 10) * kMs);
}

TEST(SimulateFleet, PromptsBesideOtherSessionsComeInSmallerChunks) {
  FleetOptions options = Fleet(Method::kAr);
  options.streams = 2;
  options.target_step = StepTimes({{1, 1e6}, {512, 512e6}});  // 1 ms a row
  const auto matches = Trace({false});
  options.replay = {{1, 6, matches}, {257, 1, matches}};
  // Alone the prompt would take one step of its 257 rows: it comes beside the
  // first session's row, with 128, 128, and the last token, its first step.
  options.budget.prefill_chunk = 128;
  const FleetResult result = SimulateFleet(options);
  EXPECT_EQ(result.virtual_ns, (129 + 129 + 2 + 1 + 1 + 1) * kMs);
  options.budget.prefill_chunk = 400;
  EXPECT_EQ(SimulateFleet(options).virtual_ns, (258 + 5) * kMs);
}

TEST(SimulateFleet, LatencyCostsAndIsHiddenBestByStreaming) {
  const auto slowdown = [](Method method) {
    FleetOptions options = Fleet(method);
    options.output_tokens = 4000;
    const FleetResult near = Simulated(options);
    options.target_hop = options.draft_hop = {1 * kMs, 1 * kMs};
    return static_cast<double>(Simulated(options).virtual_ns) /
           static_cast<double>(near.virtual_ns);
  };
  // One way is two hops. sd pays a round trip a round.
  EXPECT_NEAR(slowdown(Method::kAr), 1.0, 0.001);
  EXPECT_GT(slowdown(Method::kSd), 1.15);
  EXPECT_GT(slowdown(Method::kAsync), 1.02);
  EXPECT_LT(slowdown(Method::kAsync), slowdown(Method::kSd));
}

TEST(SimulateFleet, SdPaysARoundTripARound) {
  FleetOptions options = Fleet(Method::kSd);
  options.method.window = 4;
  options.recorded = {Trace({true})};
  const FleetResult near = Simulated(options);
  options.target_hop = {100'000, 100'000};
  options.draft_hop = {300'000, 300'000};
  const FleetResult far = Simulated(options);
  ASSERT_EQ(far.stats.rounds, near.stats.rounds);
  EXPECT_NEAR(
      static_cast<double>(far.virtual_ns - near.virtual_ns) / near.stats.rounds,
      2 * 400'000, 10'000);
}

FleetOptions Trees(double cost_ratio) {
  FleetOptions options = Fleet(Method::kAsync);
  options.alpha = 0.7;
  options.output_tokens = 3000;
  options.target_step = StepTimes::Flat(cost_ratio * 2e6);
  options.draft_rows = 8;
  return options;
}

TEST(Trees, OneSeedDecidesEverything) {
  FleetOptions options = Trees(5);
  options.target_hop = options.draft_hop = {100'000, 900'000};
  const FleetResult first = Simulated(options);
  const FleetResult second = Simulated(options);
  EXPECT_EQ(first.virtual_ns, second.virtual_ns);
  EXPECT_EQ(first.stats.ranks, second.stats.ranks);
  EXPECT_EQ(first.stats.prepared, second.stats.prepared);
}

TEST(Trees, RanksAreThoseOfTheSource) {
  FleetOptions options = Trees(5);
  options.rank_shares = {0.6, 0.3};
  const FleetResult result = Simulated(options);
  const std::array<int64_t, speculation::kBeyond>& ranks = result.stats.ranks;
  const double matches = static_cast<double>(ranks[0]);
  const double mismatches = static_cast<double>(ranks[1] + ranks[2]);
  // Only what the draft compared, so nearly all.
  EXPECT_NEAR(matches / (matches + mismatches), 0.7, 0.03);
  EXPECT_NEAR(static_cast<double>(ranks[1]) / mismatches, 0.6 / 0.9, 0.05);
  for (size_t i = 3; i + 1 < ranks.size(); ++i) EXPECT_EQ(ranks[i], 0);
}

// What the rows of a draft are for, and those of a target.
TEST(Trees, BranchesAndTheirRowsSaveTime) {
  for (const double cost_ratio : {5.0, 10.0}) {
    FleetOptions options = Trees(cost_ratio);
    const double trees = Simulated(options).tokens_per_second();
    options.tree_rows = 0;
    const FleetResult branches = Simulated(options);
    options.draft_rows = 1;
    const FleetResult chain = Simulated(options);
    EXPECT_GT(branches.tokens_per_second(), 1.15 * chain.tokens_per_second());
    EXPECT_GT(trees, 1.05 * branches.tokens_per_second());
    EXPECT_GT(*branches.hit_rate(), 0.4);
    EXPECT_FALSE(chain.hit_rate().has_value());
  }
}

TEST(Trees, MoreRowsThanTwoOfADraftFindMoreMismatches) {
  const auto hits = [](int rows) {
    FleetOptions options = Trees(10);
    options.draft_rows = rows;
    options.tree_rows = 0;
    return *Simulated(options).hit_rate();
  };
  const double two = hits(2);
  for (const int rows : {4, 8, 32}) {
    const double more = hits(rows);
    EXPECT_GT(more, two) << rows;
    EXPECT_LT(more, 0.87);  // the others are of none of the 8 candidates
  }
}

// However long the chains are that pay: of a draft that is nearly always right,
// many times as fast as its target.
TEST(Trees, AreNeverBelowChains) {
  for (const double alpha : {0.8, 0.97, 0.99, 0.995}) {
    for (const double cost_ratio : {10.0, 20.0, 40.0}) {
      for (const int tree_rows : {1, 2, 8, 16}) {
        FleetOptions options = Trees(cost_ratio);
        options.alpha = alpha;
        options.tree_rows = tree_rows;
        const double trees = Simulated(options).tokens_per_second();
        options.draft_rows = 1;
        const double chain = Simulated(options).tokens_per_second();
        EXPECT_GT(trees, 0.98 * chain)
            << "alpha " << alpha << " c " << cost_ratio << " of " << tree_rows;
      }
    }
  }
}

// A message that is longer on its way than a target's step: late nodes are
// those of tokens that have been committed meanwhile, and count all the same.
TEST(Trees, HopsStarveNoTarget) {
  for (const double steps : {0.1, 0.5, 1.0, 2.0, 5.0}) {
    FleetOptions options = Trees(5);
    options.alpha = 0.95;
    const auto hop = static_cast<int64_t>(steps * 10e6 / 2);
    options.target_hop = options.draft_hop = {hop, hop};
    EXPECT_GT(Simulated(options).tokens_per_second(), 1.02 * 100.0) << steps;
  }
}

TEST(Trees, SurviveWhatHappensToFleets) {
  for (const bool abandons_steps : {false, true}) {
    FleetOptions options = Trees(5);
    options.abandons_steps = abandons_steps;
    options.streams = 3;
    options.requests = 2;
    options.drafts = 2;
    options.targets = 2;
    options.prompt_tokens = 300;
    options.output_tokens = 400;
    options.target_hop = options.draft_hop = {30'000, 400'000};
    options.failures = {{.role = Role::kDraft,
                         .after_ns = 300 * kMs,
                         .repeats = true,
                         .back_after_ns = 100 * kMs},
                        {.role = Role::kTarget,
                         .after_ns = 2000 * kMs,
                         .repeats = true,
                         .back_after_ns = 50 * kMs}};
    EXPECT_GT(Simulated(options).lost_drafts, 0);
  }
}

// As with a trace that tells matches alone: each node has one child.
TEST(Trees, ATraceWithoutRanksGivesChains) {
  FleetOptions options = Trees(5);
  MatchTrace matches;
  for (int i = 0; i < 997; ++i) matches.push_back(i % 4 != 3 && i % 7 != 0);
  options.recorded = {Trace(matches)};
  const FleetResult trees = Simulated(options);
  EXPECT_EQ(trees.stats.prepared, 0);
  options.draft_rows = 1;
  const FleetResult chain = Simulated(options);
  EXPECT_NEAR(trees.tokens_per_second() / chain.tokens_per_second(), 1.0, 0.05);
}

FleetOptions Shared(Method method, int coordinators) {
  FleetOptions options = Fleet(method);
  options.coordinators = coordinators;
  options.streams = 24;
  options.drafts = 6;
  options.targets = 3;
  options.requests = 2;
  options.output_tokens = 200;
  options.target_hop = options.draft_hop = {50'000, 80'000};
  return options;
}

// As before there could be several: these numbers are of a build without them.
TEST(SeveralCoordinators, OneIsAsIfThereCouldBeNoOther) {
  FleetOptions options = Shared(Method::kAsync, 1);
  options.failures = {
      {.worker = 1, .after_ns = 300 * kMs, .back_after_ns = 100 * kMs}};
  const FleetResult result = Simulated(options);
  EXPECT_EQ(result.virtual_ns, 2'183'756'069);
  EXPECT_EQ(result.events, 32'124);
  EXPECT_EQ(result.stats.rounds, 4609);
  EXPECT_EQ(result.lost_drafts, 4);
}

// All tokens come, and the account of the workers is whole: Simulated checks.
TEST(SeveralCoordinators, ServeWhatOneServes) {
  for (const Method method :
       {Method::kAr, Method::kSd, Method::kPearl, Method::kAsync}) {
    const double one = Simulated(Shared(method, 1)).tokens_per_second();
    for (const int coordinators : {2, 3}) {
      const FleetResult result = Simulated(Shared(method, coordinators));
      EXPECT_EQ(result.lost_targets, 0);
      // Each knows what the others' requests do from heartbeats alone.
      EXPECT_GT(result.tokens_per_second(), 0.8 * one) << coordinators;
      EXPECT_LT(result.tokens_per_second(), 1.05 * one) << coordinators;
    }
  }
}

TEST(SeveralCoordinators, OneSeedDecidesEverything) {
  const FleetOptions options = Shared(Method::kAsync, 3);
  const FleetResult first = Simulated(options);
  const FleetResult second = Simulated(options);
  EXPECT_EQ(first.virtual_ns, second.virtual_ns);
  EXPECT_EQ(first.events, second.events);
}

// 9 streams on 3 targets: each of the 3 coordinators has one on each target.
// Where one had more than its turn, a target would have a fourth row.
TEST(SeveralCoordinators, TakeRequestsInTurn) {
  FleetOptions options = Shared(Method::kAr, 3);
  options.streams = 9;
  options.requests = 1;
  options.target_hop = options.draft_hop = {};
  options.target_step = StepTimes({{1, 10e6}, {3, 10e6}, {4, 30e6}});
  EXPECT_EQ(Simulated(options).virtual_ns, 200 * 10 * kMs);
}

TEST(SeveralCoordinators, EachLosesTheSessionsOfALostWorker) {
  FleetOptions options = Shared(Method::kAsync, 2);
  options.failures = {
      {.role = Role::kTarget,
       .worker = 0,
       .after_ns = 500 * kMs,
       .back_after_ns = 200 * kMs},
      {.worker = 2, .after_ns = 300 * kMs, .back_after_ns = 100 * kMs}};
  const FleetResult result = Simulated(options);
  // 24 streams on 3 targets and 6 drafts.
  EXPECT_EQ(result.lost_targets, 8);
  EXPECT_EQ(result.lost_drafts, 4);
  EXPECT_EQ(result.target.down_ns, 200 * kMs);
  EXPECT_EQ(result.draft.down_ns, 100 * kMs);
}

TEST(SeveralCoordinators, SurviveWhatHappensToFleets) {
  FleetOptions options = Shared(Method::kAsync, 3);
  options.draft_rows = 8;
  options.failures = {{.role = Role::kDraft,
                       .after_ns = 300 * kMs,
                       .repeats = true,
                       .back_after_ns = 100 * kMs},
                      {.role = Role::kTarget,
                       .after_ns = 8000 * kMs,
                       .repeats = true,
                       .back_after_ns = 50 * kMs}};
  EXPECT_GT(Simulated(options).lost_drafts, 0);
}

TEST(SimulateFleet, ReplaysARecordedTrace) {
  FleetOptions options = Fleet(Method::kPearl);
  options.method.window = 5;
  options.recorded = {Trace({true})};
  const FleetResult all = Simulated(options);
  EXPECT_NEAR(all.tokens_per_second(), 500, 5);  // c = 5 tokens a step
  EXPECT_DOUBLE_EQ(all.acceptance_rate(), 1.0);
  options.recorded = {Trace({false})};
  const FleetResult none = Simulated(options);
  EXPECT_EQ(none.virtual_ns, 500 * 10 * kMs);
  EXPECT_EQ(none.stats.accepted, 0);
  // One trace a stream, in turn.
  options.recorded = {Trace({true}), Trace({false})};
  options.streams = 2;
  EXPECT_NEAR(Simulated(options).acceptance_rate(), 500.0 / 1000, 0.05);
}

// The more streams share a step, the less a verified token is worth its row.
TEST(Load, AsyncBacksOffAndKeepsUpWithTheBestWindowOfEachMethod) {
  for (const double alpha : {0.5, 0.7, 0.85}) {
    for (const int streams : {2, 4, 16, 64}) {
      FleetOptions options = Fleet(Method::kAr);
      options.alpha = alpha;
      options.streams = streams;
      options.output_tokens = 400;
      options.target_step =
          StepTimes({{1, 10e6}, {8, 11e6}, {16, 14e6}, {64, 40e6}});
      options.draft_step = StepTimes({{1, 2e6}, {16, 3e6}, {64, 8e6}});
      options.target_hop = options.draft_hop = {30'000, 60'000};
      double best = Simulated(options).tokens_per_second();
      for (const FleetMethod& method :
           std::vector<FleetMethod>{{Method::kSd, 2},
                                    {Method::kSd, 4},
                                    {Method::kPearl, 1},
                                    {Method::kPearl, 2},
                                    {Method::kPearl}}) {
        options.method = method;
        best = std::max(best, Simulated(options).tokens_per_second());
      }
      options.method = {Method::kAsync};
      EXPECT_GE(Simulated(options).tokens_per_second(), 0.97 * best)
          << "alpha " << alpha << ", " << streams << " streams";
    }
  }
}

// Invariant 7: a draft that is of no use costs `async` at most 5 %.

FleetOptions Realistic(Method method) {
  FleetOptions options = Fleet(method);
  options.target_step = StepTimes({{1, 10e6}, {6, 11e6}, {16, 20e6}});
  options.target_hop = options.draft_hop = {50'000, 80'000};
  return options;
}

void ExpectNearlyAr(const FleetOptions& options) {
  FleetOptions ar = options;
  ar.method = {Method::kAr};
  ar.failures.clear();
  EXPECT_LE(Simulated(options).virtual_ns, 1.05 * Simulated(ar).virtual_ns);
}

TEST(WorthlessDraft, NoneCostsAsyncAtMostFivePercent) {
  FleetOptions options = Realistic(Method::kAsync);
  options.drafts = 0;
  ExpectNearlyAr(options);
}

TEST(WorthlessDraft, OneThatHangsCostsAsyncAtMostFivePercent) {
  for (const int64_t after_ms : {0, 3, 40, 1000}) {
    FleetOptions options = Realistic(Method::kAsync);
    options.failures = {{.after_ns = after_ms * kMs, .hangs = true}};
    ExpectNearlyAr(options);
  }
}

TEST(WorthlessDraft, OneThatIsNeverRightCostsAsyncAtMostFivePercent) {
  for (const int streams : {1, 16}) {
    FleetOptions options = Realistic(Method::kAsync);
    options.alpha = 0.0;
    options.streams = streams;
    ExpectNearlyAr(options);
  }
}

// Each row that it has verified in vain costs half a step.
TEST(WorthlessDraft, OneThatIsNeverRightCostsNoMoreWhereRowsAreDear) {
  FleetOptions options = Realistic(Method::kAsync);
  options.alpha = 0.0;
  options.target_step = StepTimes({{1, 10e6}, {2, 15e6}});
  ExpectNearlyAr(options);
}

TEST(WorthlessDraft, OneSlowerThanTheTargetCostsAsyncAtMostFivePercent) {
  FleetOptions options = Realistic(Method::kAsync);
  options.draft_step = StepTimes::Flat(40e6);
  ExpectNearlyAr(options);
}

TEST(WorthlessDraft, OneThatDiesAllTheTimeCostsAsyncAtMostFivePercent) {
  FleetOptions options = Realistic(Method::kAsync);
  for (const int64_t after_ns : {2 * kMs, 5 * kMs}) {  // a token takes 2 ms
    for (const int64_t back_after_ns : {5 * kMs, 27 * kMs}) {
      options.failures = {{.after_ns = after_ns,
                           .repeats = true,
                           .back_after_ns = back_after_ns}};
      ExpectNearlyAr(options);
    }
  }
}

TEST(Failures, ADraftThatReturnsIsTakenAgain) {
  FleetOptions options = Fleet(Method::kPearl);
  options.method.window = 5;
  options.failures = {{.after_ns = 500 * kMs, .back_after_ns = 300 * kMs}};
  const FleetResult result = Simulated(options);
  EXPECT_EQ(result.lost_drafts, 1);
  EXPECT_EQ(result.draft.down_ns, 300 * kMs);
  EXPECT_NEAR(result.stats.degraded_rounds, 30, 2);
  const FleetResult quiet = Simulated(Fleet(Method::kPearl));
  EXPECT_GT(result.virtual_ns, quiet.virtual_ns);
  EXPECT_LT(result.virtual_ns, quiet.virtual_ns + 300 * kMs);
}

TEST(Failures, AnotherDraftTakesOverAtOnce) {
  FleetOptions options = Fleet(Method::kPearl);
  options.drafts = 2;
  options.failures = {{.worker = 0, .after_ns = 500 * kMs}};
  const FleetResult result = Simulated(options);
  EXPECT_EQ(result.lost_drafts, 1);
  EXPECT_LE(result.stats.degraded_rounds, 2);
}

TEST(Failures, ALostTargetIsReplaced) {
  FleetOptions options = Fleet(Method::kAsync);
  options.streams = 4;
  options.targets = 2;
  options.failures = {
      {.role = Role::kTarget, .worker = 1, .after_ns = 500 * kMs}};
  const FleetResult result = Simulated(options);
  EXPECT_EQ(result.lost_targets, 2);
  EXPECT_GT(result.target.down_ns, 0);
}

TEST(Failures, SessionsWaitForTheOnlyTarget) {
  for (const Method method : {Method::kAr, Method::kSd, Method::kAsync}) {
    FleetOptions options = Fleet(method);
    const FleetResult quiet = Simulated(options);
    options.failures = {{.role = Role::kTarget,
                         .after_ns = 505 * kMs,
                         .back_after_ns = 2000 * kMs}};
    const FleetResult result = Simulated(options);
    EXPECT_EQ(result.lost_targets, 1);
    // The step that it died in is lost as well.
    EXPECT_NEAR(static_cast<double>(result.virtual_ns - quiet.virtual_ns),
                2005.0 * kMs, 60.0 * kMs);
  }
}

TEST(Failures, NobodyWaitsForATargetThatIsGone) {
  FleetOptions options = Fleet(Method::kAsync);
  options.failures = {
      {.role = Role::kTarget, .after_ns = 500 * kMs},
      {.after_ns = 10 * kMs, .repeats = true, .back_after_ns = 1 * kMs}};
  const FleetResult result = SimulateFleet(options);
  EXPECT_FALSE(result.finished);
  EXPECT_EQ(result.requests, 0);
}

TEST(Failures, AgainAndAgainAtTheRateGiven) {
  FleetOptions options = Fleet(Method::kAr);
  options.output_tokens = 20'000;  // 200 s
  options.failures = {{.role = Role::kTarget,
                       .after_ns = 900 * kMs,
                       .repeats = true,
                       .back_after_ns = 100 * kMs}};
  const FleetResult result = Simulated(options);
  const double seconds = static_cast<double>(result.virtual_ns) * 1e-9;
  EXPECT_NEAR(static_cast<double>(result.lost_targets) / seconds, 1.0, 0.2);
  EXPECT_NEAR(static_cast<double>(result.target.down_ns) * 1e-9 / seconds, 0.1,
              0.02);
}

FleetOptions FailingFleet(Method method) {
  FleetOptions options = Realistic(method);
  options.streams = 12;
  options.requests = 2;
  options.drafts = 2;
  options.targets = 3;
  options.prompt_tokens = 700;
  options.output_tokens = 200;
  options.failures = {{.role = Role::kDraft,
                       .after_ns = 300 * kMs,
                       .repeats = true,
                       .back_after_ns = 100 * kMs},
                      {.role = Role::kTarget,
                       .after_ns = 8000 * kMs,
                       .repeats = true,
                       .back_after_ns = 50 * kMs}};
  return options;
}

TEST(Failures, AllWorkersUnderLoad) {
  for (const Method method :
       {Method::kAr, Method::kSd, Method::kPearl, Method::kAsync}) {
    EXPECT_GT(Simulated(FailingFleet(method)).lost_targets, 0);
  }
}

// A prompt takes longer than the targets live: after six in a row the
// dispatcher gives the request up, and its stream goes on with the next.
TEST(Failures, TheServiceGivesUpWhatLosesTargetAfterTarget) {
  FleetOptions options = FailingFleet(Method::kAsync);
  options.failures[1].after_ns = 800 * kMs;
  const FleetResult result = SimulateFleet(options);
  EXPECT_TRUE(result.finished);
  EXPECT_GT(result.failed_requests, 0);
  EXPECT_EQ(result.requests + result.failed_requests, 24);
  EXPECT_THAT(result.first_failure, HasSubstr("targets in a row"));
}

}  // namespace
}  // namespace nacre::simulation
