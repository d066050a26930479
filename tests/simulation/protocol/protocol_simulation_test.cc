// Random schedules of the whole service (docs/testing.md): each checks the
// invariants of checks.h after every event.
//
//   protocol_simulation_test [--first=SEED] [--count=N] [--drains|--many]
//   protocol_simulation_test --replay=SEED      one schedule, with its trace
//
// --drains passes over the schedules in which no worker drains, --many over
// those in which none drains under 12, 40 or 64 requests.

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "tests/simulation/protocol/world.h"

namespace nacre::protocol {
namespace {

uint64_t first_seed = 0;
uint64_t num_seeds = 10'000;
bool only_drains = false;
bool only_many = false;
char replay_command[64];  // of the running seed, for OnAbort

Outcome RunSeed(uint64_t seed, bool keep_trace = false) {
  std::snprintf(replay_command, sizeof(replay_command),
                "replay: protocol_simulation_test --replay=%llu\n",
                static_cast<unsigned long long>(seed));
  return RunSchedule(RandomSchedule(seed), keep_trace);
}

bool IsChosen(uint64_t seed) {
  if (only_many) return DrainsMany(seed);
  if (!only_drains) return true;
  const std::vector<Fault> faults = RandomSchedule(seed).faults;
  return std::any_of(faults.begin(), faults.end(), [](const Fault& fault) {
    return fault.kind == Fault::Kind::kDrain;
  });
}

std::string Report(uint64_t seed, const Outcome& outcome) {
  return absl::StrCat("seed ", seed, ": ", outcome.failure, "\n",
                      Describe(RandomSchedule(seed)), "the last events:\n",
                      outcome.trace, replay_command);
}

TEST(ProtocolSimulation, KeepsTheInvariantsInRandomSchedules) {
  Counts total;
  int failures = 0;
  uint64_t seed = first_seed;
  for (uint64_t i = 0; i < num_seeds; ++i, ++seed) {
    while (!IsChosen(seed)) ++seed;
    const Outcome outcome = RunSeed(seed);
    total.Add(outcome.counts);
    if (outcome.failure.empty()) continue;
    ADD_FAILURE() << Report(seed, outcome);
    if (++failures == 3) break;
  }
  std::printf("up to seed %llu: %s\n",
              static_cast<unsigned long long>(seed - 1),
              Describe(total).c_str());
  if (num_seeds < 1000 || only_drains || only_many) return;
  // The schedules exercise what they are meant to.
  const int64_t per_mille = static_cast<int64_t>(num_seeds) / 1000;
  EXPECT_GT(total.steps, 5000 * per_mille);
  EXPECT_GT(total.accepted, 1500 * per_mille);
  EXPECT_GT(total.completed, 1000 * per_mille);
  EXPECT_GT(total.cancelled, 50 * per_mille);
  EXPECT_GT(total.unavailable, 50 * per_mille);
  EXPECT_GT(total.deadline_exceeded, 20 * per_mille);
  EXPECT_GT(total.reattached, 50 * per_mille);
  EXPECT_GT(total.rejected, 500 * per_mille);
  EXPECT_GT(total.faults, 1000 * per_mille);
  EXPECT_GT(total.silenced, 20 * per_mille);
  EXPECT_GT(total.returned, 200 * per_mille);
  EXPECT_GT(total.late, 10 * per_mille);
  EXPECT_GT(total.cached, 100 * per_mille);
  EXPECT_GT(total.policy_stops, 500 * per_mille);
  EXPECT_GT(total.ended_trees, 10 * per_mille);
  EXPECT_GT(total.other_trees, 500 * per_mille);
  EXPECT_GT(total.unservable, per_mille);
  EXPECT_GT(total.hidden, 20 * per_mille);
  EXPECT_GT(total.target_rows, 1000 * per_mille);
  EXPECT_GT(total.features, 5000 * per_mille);
  EXPECT_GT(total.skipped_features, 100 * per_mille);
  EXPECT_GT(total.behind_features, 300 * per_mille);
  EXPECT_GT(total.by_ratio, 100 * per_mille);
  EXPECT_GT(total.holds, 20 * per_mille);
  EXPECT_GT(total.untimed_holds, 5 * per_mille);
  EXPECT_GT(total.stale, 100 * per_mille);
  EXPECT_GT(total.nodes, 1000 * per_mille);
  EXPECT_GT(total.tree_nodes, 8000 * per_mille);
  EXPECT_GT(total.draft_branches, 2000 * per_mille);
  EXPECT_GT(total.kept_slots, 80 * per_mille);
  EXPECT_GT(total.branch_rows, 15 * per_mille);
  EXPECT_GT(total.branch_walks, 3 * per_mille);
  EXPECT_GT(total.ranks, 500 * per_mille);
  EXPECT_GT(total.suffix_rows, 300 * per_mille);
  EXPECT_GT(total.suffix_walks, 50 * per_mille);
  EXPECT_GT(total.remembered, 5 * per_mille);
  EXPECT_GT(total.few_slot_rows, 300 * per_mille);
  EXPECT_GT(total.few_slot_walks, 30 * per_mille);
  EXPECT_GT(total.head_steps, 300 * per_mille);
  EXPECT_GT(total.head_walks, 100 * per_mille);
  EXPECT_GT(total.timed_head_looks, 100 * per_mille);
  EXPECT_GT(total.drafter_looks, 600 * per_mille);
  EXPECT_GT(total.drafter_texts, 2000 * per_mille);
  EXPECT_GT(total.drafter_gaps, 5 * per_mille);
  EXPECT_GT(total.drafter_forgets_full, 3 * per_mille);
  EXPECT_GT(total.drafter_full_texts, 5 * per_mille);
  EXPECT_GT(total.drafter_full_roots, 3 * per_mille);
  EXPECT_GT(total.drafter_refusals, per_mille);
  EXPECT_GT(total.drafter_failures, per_mille);
  EXPECT_GT(total.feature_steps, 150 * per_mille);
  EXPECT_GT(total.feature_walks, 60 * per_mille);
  EXPECT_GT(total.kv_steps, 150 * per_mille);
  EXPECT_GT(total.kv_walks, 60 * per_mille);
  EXPECT_GT(total.exchanged_walks, 20 * per_mille);
  EXPECT_GT(total.failed_over_walks, 20 * per_mille);
  EXPECT_GT(total.beheaded_walks, 5 * per_mille);
  EXPECT_GT(total.unasked_steps, 300 * per_mille);
  EXPECT_GT(total.shared, 60 * per_mille);
  EXPECT_GT(total.lost_coordinators, 40 * per_mille);
  EXPECT_GT(total.resumed, 25 * per_mille);
  EXPECT_GT(total.repeated, 40 * per_mille);
  EXPECT_GT(total.grants, 800 * per_mille);
  EXPECT_GT(total.held_back, 5 * per_mille);
  EXPECT_GT(total.overtaken, 4 * per_mille);
  EXPECT_GT(total.waiting_resumes, 5 * per_mille);
  if (num_seeds < 10'000) return;  // these are rare
  EXPECT_GT(total.drafter_parts, per_mille);
  EXPECT_GT(total.drafter_forgets_unpaid, 0);
  EXPECT_GT(total.drained, per_mille);
  EXPECT_GT(total.moved, 5 * per_mille);
}

TEST(ProtocolSimulation, ASeedDecidesEverything) {
  for (uint64_t seed = first_seed; seed < first_seed + 20; ++seed) {
    const Outcome once = RunSeed(seed, /*keep_trace=*/true);
    const Outcome again = RunSeed(seed, /*keep_trace=*/true);
    EXPECT_EQ(once.trace, again.trace);
    EXPECT_EQ(once.end_ns, again.end_ns);
  }
}

// A failed NACRE_CHECK ends the process: say which schedule did it.
void OnAbort(int) { std::fputs(replay_command, stderr); }

int Replay(uint64_t seed) {
  const Outcome outcome = RunSeed(seed, /*keep_trace=*/true);
  std::printf("%s%s%s\n", Describe(RandomSchedule(seed)).c_str(),
              outcome.trace.c_str(),
              outcome.failure.empty() ? "every invariant held"
                                      : outcome.failure.c_str());
  return outcome.failure.empty() ? 0 : 1;
}

int Main(int argc, char** argv) {
  std::signal(SIGABRT, OnAbort);
  for (int i = 1; i < argc; ++i) {
    absl::string_view arg = argv[i];
    uint64_t seed = 0;
    if (arg == "--drains" || arg == "--many") {
      (arg == "--many" ? only_many : only_drains) = true;
      continue;
    }
    const bool known = absl::ConsumePrefix(&arg, "--first=")
                           ? absl::SimpleAtoi(arg, &first_seed)
                       : absl::ConsumePrefix(&arg, "--count=")
                           ? absl::SimpleAtoi(arg, &num_seeds)
                           : absl::ConsumePrefix(&arg, "--replay=") &&
                                 absl::SimpleAtoi(arg, &seed);
    if (!known) {
      std::fprintf(stderr, "unknown argument %s\n", argv[i]);
      return 2;
    }
    if (absl::StartsWith(argv[i], "--replay=")) return Replay(seed);
  }
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace nacre::protocol

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return nacre::protocol::Main(argc, argv);
}
