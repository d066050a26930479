// Random schedules of the whole pipeline under delays and faults; every run
// checks the invariants of simulated_session.cc. To replay one:
//   NACRE_SIMULATION_SEED=<seed> pipeline_simulation_test
//       --gtest_filter=PipelineSimulation.KeepsTheInvariantsInRandomSchedules

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/speculation/pipeline_simulator.h"

namespace nacre::speculation {
namespace {

constexpr uint64_t kFirstSeed = 1;
#ifdef NACRE_SLOW_SIMULATION
constexpr uint64_t kNumSeeds = 300'000;
#else
constexpr uint64_t kNumSeeds = 10'000;
#endif

std::string Report(SimulatorOptions options) {
  options.keep_trace = true;
  const SimulatorResult result = Simulate(options);
  return absl::StrCat(result.failure, "\n", Describe(options), "\n",
                      absl::StrJoin(result.trace, "\n"),
                      "\nreplay: NACRE_SIMULATION_SEED=", options.seed,
                      " pipeline_simulation_test --gtest_filter="
                      "PipelineSimulation.KeepsTheInvariantsInRandomSchedules");
}

TEST(PipelineSimulation, KeepsTheInvariantsInRandomSchedules) {
  uint64_t first = kFirstSeed;
  uint64_t count = kNumSeeds;
  if (const char* seed = std::getenv("NACRE_SIMULATION_SEED")) {
    first = std::strtoull(seed, nullptr, 10);
    count = 1;
  }
  int failures = 0;
  SpeculationStats stats;
  int64_t events = 0;
  int64_t policy_stops = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const SimulatorOptions options = RandomOptions(seed);
    const SimulatorResult result = Simulate(options);
    events += result.events;
    policy_stops += result.policy_stops;
    stats.rounds += result.stats.rounds;
    stats.accepted += result.stats.accepted;
    stats.stale_messages += result.stats.stale_messages;
    if (result.failure.empty()) continue;
    ADD_FAILURE() << Report(options);
    if (++failures == 3) break;
  }
  if (count == 1) return;
  // The schedules exercise what they are meant to.
  EXPECT_GT(events, static_cast<int64_t>(count) * 50);
  EXPECT_GT(stats.accepted, static_cast<int64_t>(count));
  EXPECT_GT(stats.stale_messages, 0);
  EXPECT_GT(policy_stops, static_cast<int64_t>(count) * 5);
}

// Without the timer: a stop mark that is missing shows as a gate that never
// opens.
TEST(PipelineSimulation, NeedsNoTimerUnlessTheDraftHangs) {
  int64_t waits = 0;
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kNumSeeds / 5; ++seed) {
    SimulatorOptions options = RandomOptions(seed);
    options.draft_hangs_at_ns.reset();
    options.gate_timeout_ns = int64_t{1} << 50;
    const SimulatorResult result = Simulate(options);
    ASSERT_EQ(result.failure, "") << Describe(options);
    ASSERT_EQ(result.gate_timeouts, 0) << Describe(options);
    waits += result.stats.accepted;
  }
  EXPECT_GT(waits, 0);
}

}  // namespace
}  // namespace nacre::speculation
