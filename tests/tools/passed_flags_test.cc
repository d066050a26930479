#include "tools/passed_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nacre::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(PassedFlagsTest, EachGoesToThoseThatKnowIt) {
  PassedFlags passed;
  FlagSet flags("nacre up", "Runs.");
  passed.Register(&flags);
  ASSERT_TRUE(flags
                  .Parse({"--max-queue", "7", "--log-format=json",
                          "--hang-timeout", "3s"})
                  .ok());
  EXPECT_THAT(passed.CoordinatorArgs(),
              ElementsAre("--max-queue=7", "--log-format=json"));
  EXPECT_THAT(passed.WorkerArgs(),
              ElementsAre("--hang-timeout=3s", "--log-format=json"));
}

TEST(PassedFlagsTest, WhatIsNotGivenIsNotPassed) {
  PassedFlags passed;
  FlagSet flags("nacre up", "Runs.");
  passed.Register(&flags);
  ASSERT_TRUE(flags.Parse({}).ok());
  EXPECT_THAT(passed.CoordinatorArgs(), IsEmpty());
  EXPECT_THAT(passed.WorkerArgs(), IsEmpty());
  EXPECT_THAT(flags.Help(), HasSubstr("--otlp-endpoint H:P"));
}

// Even one that looks like a flag: the process refuses it by its name.
TEST(PassedFlagsTest, AValueStaysWithItsFlag) {
  PassedFlags passed;
  FlagSet flags("nacre up", "Runs.");
  passed.Register(&flags);
  ASSERT_TRUE(flags.Parse({"--log-level=", "--otlp-endpoint=--listen"}).ok());
  EXPECT_THAT(passed.CoordinatorArgs(),
              ElementsAre("--otlp-endpoint=--listen", "--log-level="));
}

}  // namespace
}  // namespace nacre::tools
