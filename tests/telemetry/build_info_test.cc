#include "telemetry/build_info.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace nacre::telemetry {
namespace {

TEST(BuildInfoTest, NamesVersionCommitAndLibraries) {
  const BuildInfo info = GetBuildInfo();
  EXPECT_FALSE(info.version.empty());
  EXPECT_FALSE(info.commit.empty());
  EXPECT_EQ(info.grpc, grpc::Version());
  EXPECT_THAT(info.cuda, testing::MatchesRegex("none|[0-9]+[.][0-9.]+"));
  EXPECT_THAT(info.nccl, testing::MatchesRegex("none|2[.][0-9]+[.][0-9]+"));
  EXPECT_TRUE(info.cuda != "none" || info.nccl == "none");

  const prometheus::MetricFamily family = BuildInfoFamily();
  EXPECT_EQ(family.name, "nacre_build_info");
  ASSERT_EQ(family.metric.size(), 1u);
  EXPECT_EQ(family.metric[0].gauge.value, 1);
  std::map<std::string, std::string> labels;
  for (const auto& label : family.metric[0].label) {
    labels[label.name] = label.value;
  }
  const std::map<std::string, std::string> expected = {
      {"version", info.version},
      {"commit", info.commit},
      {"cuda", info.cuda},
      {"nccl", info.nccl},
      {"grpc", info.grpc}};
  EXPECT_EQ(labels, expected);
}

}  // namespace
}  // namespace nacre::telemetry
