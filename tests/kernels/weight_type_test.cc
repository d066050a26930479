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

TEST(WeightTypeTest, KeysAndValuesHaveThreeTypes) {
  EXPECT_EQ(**ParseKvType("f32"), DType::kF32);
  EXPECT_EQ(**ParseKvType("bf16"), DType::kBF16);
  EXPECT_EQ(**ParseKvType("int8"), DType::kInt8);
  EXPECT_EQ(*ParseKvType("auto"), absl::nullopt);
  for (const char* name : {"f32", "bf16", "int8"}) {
    EXPECT_STREQ(KvTypeName(**ParseKvType(name)), name);
  }
  for (const std::string name : {"f16", "", "BF16", "auto "}) {
    const absl::Status status = ParseKvType(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "kv-type is \"" + name +
                  "\", expected \"auto\", \"f32\", \"bf16\" or \"int8\"");
  }
  EXPECT_THAT(kKvTypesHelp, HasSubstr("auto, f32, bf16 or int8"));
}

TEST(WeightTypeTest, AutoKeepsKeysInBf16WhereCudaHasBf16Matrices) {
  for (const std::string kind : {"cuda", "cpu", "reference"}) {
    for (const std::string weights :
         {"auto", "bf16", "bf16a16", "f32", "int8", "int4", "fp8"}) {
      for (const bool bf16_checkpoint : {true, false}) {
        SCOPED_TRACE(kind + " " + weights);
        const bool is_bf16 =
            kind == "cuda" && weights != "f32" && bf16_checkpoint;
        EXPECT_EQ(AutoKvType(kind, *ParseWeightType(weights), bf16_checkpoint),
                  is_bf16 ? DType::kBF16 : DType::kF32);
      }
    }
  }
}

}  // namespace
}  // namespace nacre::kernels
