#include "worker/process/memory_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nacre::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const model::MemoryNeeds kNeeds = {
    .weights = 900, .tables = 100, .kv_cache = 300, .scratch = 200};

TEST(MemoryCheckTest, SaysWhatIsNeededAndWhereTheLimitIs) {
  EXPECT_TRUE(CheckMemory(kNeeds, {}).ok());
  EXPECT_TRUE(CheckMemory(kNeeds, {{"the machine", 1000, 0}}).ok());
  const absl::Status status = CheckMemory(
      kNeeds, {{"the machine", 1000, 1000}, {"/x/memory.max", 999, 999}});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "the weights need 1000 bytes of memory, the limit is 999 "
            "(/x/memory.max): they need fewer bits (--weights) or more memory");
}

TEST(MemoryCheckTest, RefusesOnlyWhatCannotBeEnough) {
  model::MemoryNeeds needs = kNeeds;
  needs.may_be_saved = 200;
  EXPECT_TRUE(CheckMemory(needs, {{"a", 800, 800}}).ok());
  EXPECT_THAT(std::string(CheckMemory(needs, {{"a", 799, 799}}).message()),
              HasSubstr("the weights need 800 bytes"));
  // But it warns by the most.
  EXPECT_THAT(MemoryWarning(needs, {{"a", 9000, 1499}}),
              HasSubstr("need 1500 bytes"));
}

TEST(MemoryCheckTest, SaysWhatIsInFewerBits) {
  EXPECT_EQ(SavedWeightsLine({}), "");
  EXPECT_EQ(SavedWeightsLine({.matrices = 30, .bytes = 1'234'000'000}),
            "30 of 30 large bf16 matrices are in 12 bits a weight, which takes "
            "1.234 GB less");
  EXPECT_EQ(
      SavedWeightsLine({.matrices = 3, .bytes = 5'000'000, .others = 27}),
      "3 of 30 large bf16 matrices are in 12 bits a weight, which takes 0.005 "
      "GB less; 27 have too many uncommon exponents");
  EXPECT_EQ(SavedWeightsLine({.others = 2}),
            "0 of 2 large bf16 matrices are in 12 bits a weight; 2 have too "
            "many uncommon exponents");
}

TEST(MemoryCheckTest, OfSeveralLimitsThatArePassedItNamesTheLeast) {
  const absl::Status status = CheckMemory(
      kNeeds,
      {{"the machine", 990, 1}, {"/x/memory.max", 500, 500}, {"b", 800}});
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the limit is 500 (/x/memory.max)"));
}

TEST(MemoryCheckTest, WarnsOfWhatMayNotBeThere) {
  EXPECT_EQ(MemoryWarning(kNeeds, {}), "");
  EXPECT_EQ(MemoryWarning(kNeeds, {{"a", 1500, 1500}, {"b", 2000, 1500}}), "");
  EXPECT_THAT(MemoryWarning(kNeeds, {{"a", 9000, 1499}, {"b", 9000, 2000}}),
              AllOf(HasSubstr("need 1500 bytes"), HasSubstr("1000 are weights"),
                    HasSubstr("1499 are available (a)")));
  EXPECT_THAT(MemoryWarning(kNeeds, {{"a", 9000, 1499}, {"b", 1200, 8000}}),
              HasSubstr("1200 are available (b)"));
}

TEST(MemoryCheckTest, WhereAGroupIsSlowedItOnlyWarns) {
  const std::vector<MemoryLimit> limits = {
      {"a", 9000, 9000}, {"/x/memory.high", kNoMemoryLimit, 9}};
  EXPECT_TRUE(CheckMemory(kNeeds, limits).ok());
  EXPECT_THAT(MemoryWarning(kNeeds, limits),
              HasSubstr("9 are available (/x/memory.high)"));
}

}  // namespace
}  // namespace nacre::worker
