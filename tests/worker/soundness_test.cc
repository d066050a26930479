// What engines make of it: tests/{target,draft}_worker/soundness_test.cc.

#include "worker/soundness.h"

#include <gtest/gtest.h>

#include <string>

namespace nacre::worker {
namespace {

EngineStats StatsOf(const Soundness& soundness) {
  EngineStats stats;
  soundness.FillStats(&stats);
  return stats;
}

TEST(SoundnessTest, CountsSessionsAndStepsInARow) {
  Soundness soundness;
  const auto step = [&soundness](int sound, int unsound) {
    for (int i = 0; i < sound; ++i) soundness.Add(true);
    for (int i = 0; i < unsound; ++i) soundness.Add(false);
    soundness.EndStep();
    return StatsOf(soundness).computes_wrongly;
  };
  EXPECT_FALSE(step(0, 9));
  EXPECT_FALSE(step(0, 1));
  EXPECT_FALSE(step(1, 7));  // not in all sessions
  EXPECT_FALSE(step(0, 1));
  EXPECT_FALSE(step(0, 0));  // a step that looked at nothing
  EXPECT_FALSE(step(0, 1));
  EXPECT_TRUE(step(0, 1));
  EXPECT_TRUE(step(5, 0));  // for good
  EXPECT_EQ(StatsOf(soundness).nonfinite_logits, 20u);
}

TEST(SoundnessTest, TheErrorSaysWhere) {
  const absl::Status status = UnsoundLogits(17);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(std::string(status.message()).find("behind 17 tokens"),
            std::string::npos);
}

}  // namespace
}  // namespace nacre::worker
