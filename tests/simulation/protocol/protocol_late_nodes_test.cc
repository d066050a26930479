// Messages that travel longer than a target's step starve no target: what comes
// late is compared with what is committed, and the draft's tokens go on to
// count. Real engines and a real dispatcher in virtual time.

#include <cstdint>
#include <cstdio>
#include <vector>

#include "gtest/gtest.h"
#include "tests/simulation/protocol/world.h"

namespace nacre::protocol {
namespace {

using coordinator::WorkerRole;
using speculation::Method;
using speculation::TreeShape;

constexpr int kSeeds = 24;
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
  coordinator::RequestSpec& spec = request.spec;
  spec.request_id = "r";
  for (int i = 0; i < 4; ++i) {
    spec.prompt_ids.push_back(random.Below(kVocabSize));
  }
  spec.max_tokens = 400;
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
  double alpha() const {
    return static_cast<double>(counts.accepted) /
           static_cast<double>(counts.verified);
  }
};

Result RunAll(const Case& options) {
  Result result;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Outcome outcome = RunSchedule(ScheduleOf(options, seed));
    EXPECT_EQ(outcome.failure, "") << "seed " << seed;
    EXPECT_EQ(outcome.counts.completed, 1) << "seed " << seed;
    result.counts.Add(outcome.counts);
    result.total_ns += outcome.end_ns;
  }
  return result;
}

TEST(LateNodes, StarveNoTarget) {
  for (const double hops : {0.1, 0.5, 1.0, 2.0, 5.0}) {
    const Result alone = RunAll({Method::kAr, DraftKind::kGood, false, hops});
    for (const DraftKind draft : {DraftKind::kPerfect, DraftKind::kGood}) {
      for (const bool grows_tree : {false, true}) {
        const Result result = RunAll({Method::kAsync, draft, grows_tree, hops});
        const double gain = static_cast<double>(alone.total_ns) /
                            static_cast<double>(result.total_ns);
        std::printf(
            "hops %.1f, %s, %s: alpha %.3f, %.2f x ar; %lld nodes, late "
            "%.1f %%, stale %.1f %%\n",
            hops, draft == DraftKind::kPerfect ? "perfect" : "good",
            grows_tree ? "tree" : "chain", result.alpha(), gain,
            static_cast<long long>(result.num_nodes()),
            100.0 * static_cast<double>(result.counts.late_nodes) /
                static_cast<double>(result.num_nodes()),
            100.0 * result.stale_share());
      }
    }
  }
}

}  // namespace
}  // namespace nacre::protocol
