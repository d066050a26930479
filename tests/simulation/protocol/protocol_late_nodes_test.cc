// Messages that travel longer than a target's step starve no target: what comes
// late is compared with what is committed, and the draft's tokens go on to
// count. Real engines and a real dispatcher in virtual time.

#include <cstdint>
#include <cstdio>
#include <utility>

#include "gtest/gtest.h"
#include "tests/simulation/protocol/world.h"

namespace nacre::protocol {
namespace {

using coordinator::WorkerRole;
using speculation::Method;
using speculation::TreeShape;

constexpr int kSeeds = 8;
constexpr int64_t kTargetStepNs = 4 * kMillisecond;
// Steps take up to twice as long.
constexpr double kMeanTargetStepNs = 1.5 * kTargetStepNs;

struct Case {
  Method method = Method::kAsync;
  DraftKind draft = DraftKind::kGood;
  bool grows_tree = false;
  double hops = 0;  // from the draft to the target, in steps of the target
};

Schedule ScheduleOf(const Case& options, uint64_t seed) {
  Random random(seed * 2 + 1);
  Schedule schedule;
  schedule.seed = seed;
  schedule.table = static_cast<int>(seed % kNumTables);
  // There are two, each of which takes any time up to it.
  schedule.hop_ns = static_cast<int64_t>(options.hops * kMeanTargetStepNs);
  schedule.failover_timeout_ns = schedule.worker_timeout_ns =
      30'000 * kMillisecond;
  schedule.drafts_have_slots = options.grows_tree;
  schedule.draft_rows = options.grows_tree ? 4 : 1;
  schedule.tree_rows = options.grows_tree ? 16 : 0;
  WorkerOptions worker;
  worker.kv_capacity_tokens = 2048;
  worker.block_size = 4;
  worker.step_ns = kTargetStepNs;
  schedule.workers.push_back(worker);
  worker.role = WorkerRole::kDraft;
  worker.draft_kind = options.draft;
  worker.step_ns = kTargetStepNs / 5;
  worker.is_interruptible = true;
  schedule.workers.push_back(worker);
  RequestOptions request;
  request.arrival_ns = 100 * kMillisecond;  // all workers are there
  coordinator::RequestSpec& spec = request.spec;
  spec.request_id = "r";
  for (int i = 0; i < 4; ++i) {
    spec.prompt_ids.push_back(random.Below(kVocabSize));
  }
  spec.max_tokens = 300;
  spec.ignore_eos = true;
  spec.sampling.seed = random.Bits();
  spec.sampling.temperature = seed % 3 == 0 ? 0.0f : 0.8f;
  spec.method = options.method;
  spec.tree = options.grows_tree ? TreeShape::kBest : TreeShape::kChain;
  spec.stream = true;
  schedule.requests.push_back(std::move(request));
  return schedule;
}

struct Result {
  Counts counts;
  int64_t total_ns = 0;
  int64_t num_nodes() const {
    return counts.placed_nodes + counts.late_nodes + counts.stale_nodes;
  }
  double stale_share() const {
    return static_cast<double>(counts.stale_nodes) /
           static_cast<double>(num_nodes());
  }
  // Of the right nodes (right_nodes.h) whose places were committed.
  int64_t num_right() const { return counts.right_in_time + counts.right_late; }
  double late_share() const {
    return static_cast<double>(counts.right_late) /
           static_cast<double>(num_right());
  }
  double alpha() const {
    return static_cast<double>(counts.accepted) /
           static_cast<double>(counts.verified);
  }
};

Result RunAll(const Case& options) {
  Result result;
  uint64_t seed = 0;
  for (int i = 0; i < kSeeds; ++i, ++seed) {
    // Not those in which something is made up beside a chain.
    while (ScheduleOf(options, seed).GrowsTree(0)) ++seed;
    const Outcome outcome = RunSchedule(ScheduleOf(options, seed));
    EXPECT_EQ(outcome.failure, "") << "seed " << seed;
    EXPECT_EQ(outcome.counts.completed, 1) << "seed " << seed;
    result.counts.Add(outcome.counts);
    result.total_ns += outcome.end_ns;
  }
  return result;
}

// Of a case what it must reach beside ar. Virtual time: the same everywhere.
struct LeastGains {
  double hops = 0;
  double perfect_chain = 0;
  double perfect_tree = 0;
  double good_chain = 0;
  double good_tree = 0;
  double stale_of_good_chain = 0;  // at most
};
// Stale is what was on its way behind a wrong token, or a branch that was not
// taken: the longer the way, the more. Where late nodes were dropped, all would
// be stale, and no case would be faster than ar from a hop of a step on.
constexpr LeastGains kLeastGains[] = {{0.1, 3.5, 3.4, 2.4, 2.8, 0.06},
                                      {0.5, 3.5, 3.3, 2.2, 2.4, 0.16},
                                      {1.0, 3.4, 3.2, 2.0, 2.1, 0.28},
                                      {2.0, 3.2, 2.8, 1.6, 1.65, 0.48},
                                      {5.0, 2.5, 2.2, 1.2, 1.15, 0.72}};

double GainOf(const Case& options, const Result& alone, const Result& result) {
  const double gain = static_cast<double>(alone.total_ns) /
                      static_cast<double>(result.total_ns);
  std::printf(
      "hops %.1f, %s, %s: alpha %.3f, %.2f x ar; of %lld right nodes %.1f %% "
      "came late, %lld were thrown away; %.1f %% of all stale\n",
      options.hops, options.draft == DraftKind::kPerfect ? "perfect" : "good",
      options.grows_tree ? "tree" : "chain", result.alpha(), gain,
      static_cast<long long>(result.num_right()), 100.0 * result.late_share(),
      static_cast<long long>(result.counts.right_lost),
      100.0 * result.stale_share());
  // Nothing that is right is thrown away, however late it comes.
  EXPECT_GT(result.counts.right_in_time, 100);
  EXPECT_EQ(result.counts.right_lost, 0);
  return gain;
}

TEST(LateNodes, StarveNoTarget) {
  for (const LeastGains& expected : kLeastGains) {
    Case options = {Method::kAr, DraftKind::kPerfect, false, expected.hops};
    const Result alone = RunAll(options);
    options.method = Method::kAsync;
    const Result chain = RunAll(options);
    EXPECT_GT(GainOf(options, alone, chain), expected.perfect_chain);
    // What is never wrong is never stale, however late.
    EXPECT_EQ(chain.counts.stale_nodes, 0);
    options.grows_tree = true;
    EXPECT_GT(GainOf(options, alone, RunAll(options)), expected.perfect_tree);
    options.draft = DraftKind::kGood;
    EXPECT_GT(GainOf(options, alone, RunAll(options)), expected.good_tree);
    options.grows_tree = false;
    const Result good = RunAll(options);
    EXPECT_GT(GainOf(options, alone, good), expected.good_chain);
    EXPECT_LT(good.stale_share(), expected.stale_of_good_chain);
    if (expected.hops >= 1) {
      EXPECT_GT(good.counts.late_nodes, 0);
    }
  }
}

}  // namespace
}  // namespace nacre::protocol
