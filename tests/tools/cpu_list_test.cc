#include "tools/cpu_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nacre::tools {
namespace {

using ::testing::ElementsAre;

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
}  // namespace nacre::tools
