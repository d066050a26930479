#include "tools/bench/latency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace nacre::tools {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(InterTokenLatenciesTest, SharesAPieceAmongItsTokens) {
  EXPECT_THAT(InterTokenLatencies({{1.0, 2}, {1.5, 1}, {2.1, 3}}),
              ElementsAre(DoubleNear(0.5, 1e-12), DoubleNear(0.2, 1e-12),
                          DoubleNear(0.2, 1e-12), DoubleNear(0.2, 1e-12)));
}

TEST(InterTokenLatenciesTest, APieceOfTextAloneIsNoToken) {
  EXPECT_THAT(InterTokenLatencies({{1.0, 1}, {1.5, 0}, {2.0, 1}}),
              ElementsAre(1.0));
  EXPECT_THAT(InterTokenLatencies({{1.0, 5}}), IsEmpty());
  EXPECT_THAT(InterTokenLatencies({}), IsEmpty());
}

TEST(PercentileTest, LiesBetweenTheNeighbours) {
  std::vector<double> values(101);
  std::iota(values.rbegin(), values.rend(), 0.0);
  const Percentiles percentiles = PercentilesOf(values);
  EXPECT_DOUBLE_EQ(percentiles.p50, 50.0);
  EXPECT_DOUBLE_EQ(percentiles.p95, 95.0);
  EXPECT_DOUBLE_EQ(percentiles.p99, 99.0);
  EXPECT_DOUBLE_EQ(Percentile({1.0, 2.0}, 0.5), 1.5);
  EXPECT_DOUBLE_EQ(Percentile({7.0}, 0.99), 7.0);
  EXPECT_EQ(Percentile({}, 0.5), 0.0);
}

}  // namespace
}  // namespace nacre::tools
