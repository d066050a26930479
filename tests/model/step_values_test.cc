#include "model/step_values.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/weight_type.h"
#include "tests/testing/device_backend.h"

namespace nacre::model {
namespace {

using ::testing::ElementsAre;

TEST(StepValuesTest, GrowsAndKeepsWhereItNeedNot) {
  kernels::ReferenceBackend backend(kernels::WeightType::kAuto);
  StepValues values(&backend);
  EXPECT_EQ(values.data(), nullptr);
  ASSERT_TRUE(values.Reserve(3).ok());
  values.Send({1, 2});
  values.Send(std::vector<float>{5}, 2);
  float* const before = values.data();
  ASSERT_TRUE(values.Reserve(2).ok());
  EXPECT_EQ(values.data(), before);
  EXPECT_THAT(std::vector<float>(before, before + 3), ElementsAre(1, 2, 5));
  ASSERT_TRUE(values.Reserve(1000).ok());
  values.data()[999] = 1;
  EXPECT_DEATH(values.Send({1, 2}, 999), "more values than were reserved");
}

TEST(StepValuesTest, BringsFromADevice) {
  nacre::testing::DeviceBackend backend;
  StepValues values(&backend);
  BroughtValues brought(&backend);
  EXPECT_TRUE(brought.Get(0, 0).empty());
  ASSERT_TRUE(values.Reserve(4).ok());
  ASSERT_TRUE(brought.Reserve(4).ok());
  values.Send({1, 2, 3, 4});
  brought.Bring(values.data() + 2, 2);
  brought.Bring(values.data(), 2, 2);
  ASSERT_TRUE(backend.Synchronize().ok());
  EXPECT_THAT(brought.Get(0, 4), ElementsAre(3, 4, 1, 2));
  EXPECT_EQ(backend.num_copies, 2);
  EXPECT_DEATH(brought.Get(1, 4), "more values than were reserved");
}

}  // namespace
}  // namespace nacre::model
