#include "telemetry/build_info.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

namespace nacre::telemetry {
namespace {

TEST(BuildInfoTest, NamesVersionCommitAndLibraries) {
  const BuildInfo info = GetBuildInfo();
  EXPECT_FALSE(info.version.empty());
  EXPECT_FALSE(info.commit.empty());
  EXPECT_EQ(info.grpc, grpc::Version());

  const prometheus::MetricFamily family = BuildInfoFamily();
  EXPECT_EQ(family.name, "nacre_build_info");
  ASSERT_EQ(family.metric.size(), 1u);
  EXPECT_EQ(family.metric[0].gauge.value, 1);
}

}  // namespace
}  // namespace nacre::telemetry
