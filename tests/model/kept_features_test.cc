#include "model/kept_features.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/step_values.h"
#include "tests/testing/device_backend.h"

namespace nacre::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr FeatureTap kFirst = {FeatureTap::Kind::kIn, 1};
constexpr FeatureTap kOther = {FeatureTap::Kind::kIn, 2};
constexpr FeatureTap kFinal = {FeatureTap::Kind::kFinal};

TEST(KeptFeaturesTest, KeepsWhatWasAskedFor) {
  nacre::testing::DeviceBackend backend;
  KeptFeatures features(&backend);
  EXPECT_TRUE(features.empty());
  features.Set({kFinal, kFirst}, 2);
  EXPECT_FALSE(features.empty());
  EXPECT_TRUE(features.Has(kFirst));
  EXPECT_FALSE(features.Has(kOther));
  StepValues x(&backend);
  ASSERT_TRUE(x.Reserve(6).ok());
  x.Send({1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(features.Begin(3).ok());
  features.Keep(kFirst, x.data());
  features.Keep(kOther, x.data() + 2);
  x.Send({7, 8});  // after it was kept
  ASSERT_TRUE(features.Begin(3).ok());
  features.Keep(kFirst, x.data());
  features.Keep(kFinal, x.data());
  features.Bring();
  ASSERT_TRUE(backend.Synchronize().ok());
  EXPECT_THAT(features.At(1), ElementsAre(7, 8, 3, 4, 5, 6));
  EXPECT_THAT(features.At(0), ElementsAre(7, 8, 3, 4, 5, 6));
  // Of a shorter step no rows of the one before it.
  ASSERT_TRUE(features.Begin(1).ok());
  features.Keep(kFirst, x.data() + 2);
  features.Keep(kFinal, x.data() + 4);
  features.Bring();
  ASSERT_TRUE(backend.Synchronize().ok());
  EXPECT_THAT(features.At(0), ElementsAre(5, 6));
  EXPECT_THAT(features.At(1), ElementsAre(3, 4));
  features.Clear();
  EXPECT_THAT(features.At(0), IsEmpty());
}

// What is kept is what was there then.
TEST(KeptFeaturesTest, KeepsACopy) {
  nacre::testing::DeviceBackend backend;
  KeptFeatures features(&backend);
  features.Set({kFirst}, 2);
  StepValues x(&backend);
  ASSERT_TRUE(x.Reserve(2).ok());
  x.Send({1, 2});
  ASSERT_TRUE(features.Begin(1).ok());
  features.Keep(kFirst, x.data());
  x.Send({3, 4});
  features.Bring();
  ASSERT_TRUE(backend.Synchronize().ok());
  EXPECT_THAT(features.At(0), ElementsAre(1, 2));
}

}  // namespace
}  // namespace nacre::model
