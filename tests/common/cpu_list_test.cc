#include "common/cpu_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nacre {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseCpuListTest, ReadsCoresAndRanges) {
  EXPECT_THAT(*ParseCpuList("0"), ElementsAre(0));
  EXPECT_THAT(*ParseCpuList("0,2-4"), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(*ParseCpuList("7,3-3,1023"), ElementsAre(7, 3, 1023));
}

TEST(ParseCpuListTest, RefusesAnythingElseAndNamesIt) {
  for (const std::string text : {"", ",", "1,", "a", "1-", "-1", "1-2-3", " 1",
                                 "+1", "0x1", "1 2", "99999999999"}) {
    const absl::Status status = ParseCpuList(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"" + text + "\""));
  }
}

TEST(ParseCpuListTest, RefusesBackwardRangesRepeatsAndCoresBeyondTheLimit) {
  EXPECT_THAT(std::string(ParseCpuList("4-2").status().message()),
              HasSubstr("\"4-2\" runs backwards"));
  EXPECT_THAT(std::string(ParseCpuList("1,0-2").status().message()),
              HasSubstr("core 1 appears twice"));
  EXPECT_THAT(std::string(ParseCpuList("0-4000000").status().message()),
              HasSubstr("core 4000000 exceeds the limit 1023"));
}

TEST(FormatCpuListTest, SeparatesByCommas) {
  EXPECT_EQ(FormatCpuList({0, 1, 2, 6}), "0,1,2,6");
  EXPECT_EQ(FormatCpuList({5}), "5");
}

TEST(DealCpusTest, GivesEachWorkerItsOwnCores) {
  EXPECT_THAT(DealCpus({0, 1}, 2), ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(DealCpus({3, 5, 7, 8, 9}, 2),
              ElementsAre(ElementsAre(3, 7, 9), ElementsAre(5, 8)));
}

TEST(DealCpusTest, SharesCoresWhereThereAreTooFew) {
  EXPECT_THAT(DealCpus({4, 6}, 3),
              ElementsAre(ElementsAre(4), ElementsAre(6), ElementsAre(4)));
}

TEST(AvailableCpusTest, IsNotEmpty) { EXPECT_FALSE(AvailableCpus().empty()); }

}  // namespace
}  // namespace nacre
