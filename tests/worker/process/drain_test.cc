#include "worker/process/drain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "absl/status/status.h"

namespace nacre::worker {
namespace {

// What the engine says, one look after another.
struct Look {
  int sessions = 0;
  bool is_known = false;
};

// Returns after how many looks the worker ended; the last one repeats.
int LooksUntilTheEnd(const std::vector<Look>& script, DrainOptions options) {
  int looks = 0;
  const auto now = [&] {
    return script[std::min<size_t>(looks - 1, script.size() - 1)];
  };
  options.stats = [&] {
    ++looks;
    EngineStats stats;
    stats.sessions = now().sessions;
    return stats;
  };
  options.is_known = [&](const EngineStats& stats) {
    EXPECT_EQ(stats.sessions, now().sessions);
    return now().is_known;
  };
  ExitSignal exit;
  DrainSessions(options, &exit);
  return looks;
}

DrainOptions Patient() {
  DrainOptions options;
  options.timeout = absl::InfiniteDuration();
  options.patience = absl::InfiniteDuration();
  return options;
}

TEST(DrainTest, EndsWhenTheCoordinatorKnowsAndNothingIsOpen) {
  EXPECT_EQ(LooksUntilTheEnd({{0, true}}, Patient()), 1);
  EXPECT_EQ(LooksUntilTheEnd({{2, true}, {1, true}, {0, true}}, Patient()), 3);
}

TEST(DrainTest, WaitsForSessionsThatMayBeOnTheirWay) {
  EXPECT_EQ(LooksUntilTheEnd(
                {{0, false}, {0, false}, {1, false}, {1, true}, {0, true}},
                Patient()),
            5);
  EXPECT_EQ(LooksUntilTheEnd({{1, false}, {0, false}, {0, true}}, Patient()),
            3);
}

TEST(DrainTest, ACoordinatorThatSaysNothingIsNotWaitedForForEver) {
  DrainOptions options = Patient();
  options.patience = absl::ZeroDuration();
  EXPECT_EQ(LooksUntilTheEnd({{0, false}}, options), 1);
  // Sessions are.
  EXPECT_EQ(LooksUntilTheEnd({{1, false}, {1, false}, {0, false}}, options), 3);
}

TEST(DrainTest, EndsAtItsTimeout) {
  for (const Look look : {Look{1, true}, Look{0, false}}) {
    DrainOptions options = Patient();
    options.timeout = absl::ZeroDuration();
    EXPECT_EQ(LooksUntilTheEnd({look}, options), 1);
  }
}

TEST(DrainTest, EndsAtAFailure) {
  DrainOptions options = Patient();
  options.stats = [] {
    EngineStats stats;
    stats.sessions = 1;
    return stats;
  };
  options.is_known = [](const EngineStats&) { return true; };
  ExitSignal exit;
  exit.Fail(absl::InternalError("the device is gone"));
  DrainSessions(options, &exit);
  SUCCEED() << "it has not waited for the session";
}

}  // namespace
}  // namespace nacre::worker
