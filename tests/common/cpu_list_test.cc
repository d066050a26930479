#include "common/cpu_list.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CpuListTest, ReadsCoresAndRanges) {
  EXPECT_THAT(*ParseCpuList("0"), ElementsAre(0));
  EXPECT_THAT(*ParseCpuList("0,2-4"), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(*ParseCpuList("7,3-3,1023"), ElementsAre(7, 3, 1023));
}

TEST(CpuListTest, RefusesAnythingElseAndNamesIt) {
  for (const std::string text : {"", ",", "1,", "a", "1-", "-1", "1-2-3", " 1",
                                 "+1", "0x1", "1 2", "99999999999"}) {
    const absl::Status status = ParseCpuList(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"" + text + "\""));
  }
}

TEST(CpuListTest, RefusesBackwardRangesRepeatsAndCoresBeyondTheLimit) {
  EXPECT_THAT(std::string(ParseCpuList("4-2").status().message()),
              HasSubstr("\"4-2\" runs backwards"));
  EXPECT_THAT(std::string(ParseCpuList("1,0-2").status().message()),
              HasSubstr("core 1 appears twice"));
  EXPECT_THAT(std::string(ParseCpuList("0-4000000").status().message()),
              HasSubstr("core 4000000 exceeds the limit 1023"));
}

}  // namespace
}  // namespace nacre
