// On the emulated device rows go to the experts that the reference chooses from
// inputs that are rounded likewise, with the same weights.

#include <cstddef>

#include "gtest/gtest.h"
#include "kernels/weight_type.h"
#include "tests/model/expert_golden.h"

namespace nacre::model {
namespace {

using kernels::WeightType;

// Returns the largest difference of two weights.
float ExpectSameExperts(const OptionGolden& golden, WeightType on_device,
                        WeightType reference) {
  const ExpertChoices found = RunOnCuda(golden, on_device).choices;
  const ExpertChoices expected = RunOnReference(golden, reference).choices;
  EXPECT_FALSE(expected.rows.empty());
  EXPECT_EQ(found.rows, expected.rows) << golden.name;
  EXPECT_EQ(found.places, expected.places) << golden.name;
  return DifferenceOf(found.weights, expected.weights);
}

TEST(CudaExpertsTest, AreThoseOfTheReference) {
  for (const OptionGolden& golden : ExpertGoldens(59)) {
    EXPECT_LE(ExpectSameExperts(golden, WeightType::kF32, WeightType::kF32),
              1e-5f);
    // Of what is close the other neighbour is one of 256.
    EXPECT_LE(
        ExpectSameExperts(golden, WeightType::kBF16, WeightType::kBF16A16),
        5e-3f);
  }
}

// Float32 checkpoints are computed in float32 unless --weights says otherwise.
TEST(CudaExpertsTest, OfAFloat32CheckpointAreThoseOfFloat32) {
  const OptionGolden golden = ExpertGoldens(23).front();
  const ExpertRun run = RunOnCuda(golden, WeightType::kAuto);
  EXPECT_LE(ExpertDifference(run, golden), 1e-3f);
  EXPECT_TRUE(SameRows(run.rows, RunOnCuda(golden, WeightType::kF32).rows));
}

}  // namespace
}  // namespace nacre::model
