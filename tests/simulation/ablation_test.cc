#include "simulation/ablation.h"

#include "gtest/gtest.h"
#include "simulation/fleet.h"
#include "speculation/plan.h"

namespace nacre::simulation {
namespace {

using speculation::Method;
using speculation::PipelinePlan;
using speculation::Verdict;

PipelinePlan Pearl(int window) {
  speculation::PlanInputs inputs;
  inputs.method = Method::kPearl;
  inputs.window = window;
  return MakePlan(inputs);
}

TEST(Ablate, NoneLeavesThePlan) {
  EXPECT_EQ(Ablate(Ablation::kNone, Pearl(4), nullptr), Pearl(4));
}

TEST(Ablate, WithoutPreVerifyTheTargetWaitsForAChunk) {
  const PipelinePlan plan = Ablate(Ablation::kNoPreVerify, Pearl(4), nullptr);
  EXPECT_EQ(plan.target.gate_after_mismatch, 4);
  EXPECT_EQ(plan.target.gate_in_flow, 3);
  EXPECT_EQ(plan.target.window, 4);
  EXPECT_EQ(plan.draft.lead_after_mismatch, 8);
}

TEST(Ablate, WithoutPostVerifyTheDraftWaitsForTheRestOfTheChunk) {
  const PipelinePlan first = Ablate(Ablation::kNoPostVerify, Pearl(4), nullptr);
  EXPECT_EQ(first.target.gate_after_mismatch, 0);
  EXPECT_EQ(first.target.gate_in_flow, 0);
  EXPECT_EQ(first.draft.lead_after_mismatch, 4);
  Verdict verdict;
  verdict.window = 0;  // a pre-verification
  const PipelinePlan rest = Ablate(Ablation::kNoPostVerify, Pearl(4), &verdict);
  EXPECT_EQ(rest.target.gate_in_flow, 3);
  EXPECT_EQ(rest.draft.lead_in_flow, 3);
  verdict.window = 3;
  EXPECT_EQ(Ablate(Ablation::kNoPostVerify, Pearl(4), &verdict), first);
}

// Per chunk of 5 at alpha a: without pre-verify a cycle between mismatches
// takes 2 + a^6 / (1 - a^5) steps; without post-verify a chunk takes 1 step
// when its first token is wrong, else 2.
TEST(Ablate, TakesTheTimeOfItsOwnLaw) {
  const double a = 0.8;
  FleetOptions options;
  options.alpha = a;
  options.output_tokens = 20'000;
  options.draft_step = StepTimes::Flat(1e6);
  options.target_step = StepTimes::Flat(5e6);
  const auto speedup = [&](Ablation ablation) {
    options.method = {Method::kPearl, 5, ablation};
    return SimulateFleet(options).tokens_per_second() * 5e-3;
  };
  const double a5 = a * a * a * a * a;
  EXPECT_NEAR(speedup(Ablation::kNoPreVerify),
              1.0 / ((1 - a) * (2 + a5 * a / (1 - a5))), 0.01);
  EXPECT_NEAR(speedup(Ablation::kNoPostVerify),
              ((1 - a) + a * (1 + (1 - a5) / (1 - a))) / (1 + a), 0.01);
}

}  // namespace
}  // namespace nacre::simulation
