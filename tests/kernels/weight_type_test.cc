#include "kernels/weight_type.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::kernels {
namespace {

using ::testing::HasSubstr;

TEST(WeightTypeTest, NamesAndSuffixesAgree) {
  EXPECT_EQ(WeightTypeSuffix(*ParseWeightType("auto")), "");
  for (const std::string name :
       {"bf16", "bf16a16", "f32", "int8", "int4", "fp8"}) {
    const auto type = ParseWeightType(name);
    ASSERT_TRUE(type.ok()) << name;
    EXPECT_EQ(WeightTypeSuffix(*type), "-" + name);
  }
}

// Every name is in the help and in the error.
TEST(WeightTypeTest, WhatIsRefusedAndShownListsAllTypes) {
  for (const std::string name : {"", "int3", "BF16", "auto "}) {
    const absl::Status status = ParseWeightType(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("weights is \"" + name + "\", expected "));
    for (const std::string type :
         {"auto", "bf16", "bf16a16", "f32", "int8", "int4", "fp8"}) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("\"" + type + "\""));
      EXPECT_THAT(kWeightTypesHelp, HasSubstr(type));
    }
  }
}

TEST(WeightTypeTest, KeysAndValuesHaveTwoTypes) {
  EXPECT_EQ(*ParseKvType("f32"), DType::kF32);
  EXPECT_EQ(*ParseKvType("bf16"), DType::kBF16);
  const absl::Status status = ParseKvType("f16").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "kv-type is \"f16\", expected \"f32\" or \"bf16\"");
  EXPECT_THAT(kKvTypesHelp, HasSubstr("f32 or bf16"));
}

}  // namespace
}  // namespace nacre::kernels
