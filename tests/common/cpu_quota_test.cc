#include "common/cpu_quota.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "common/files.h"

namespace nacre {
namespace {

using ::testing::ElementsAre;

// A file system of control groups.
class CpuQuotaTest : public ::testing::Test {
 protected:
  CpuQuotaTest() {
    char name[] = "/tmp/nacre-quota-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~CpuQuotaTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_ + "/fs" + path;
    std::filesystem::create_directories(file.parent_path());
    EXPECT_TRUE(WriteFile(file.string(), text).ok());
  }
  absl::optional<double> Quota(const std::string& groups) {
    EXPECT_TRUE(WriteFile(folder_ + "/groups", groups).ok());
    return CpuQuota({folder_ + "/groups", folder_ + "/fs"});
  }

 private:
  std::string folder_;
};

TEST_F(CpuQuotaTest, VersionTwoInAContainer) {
  Write("/cpu.max", "250000 100000");
  EXPECT_EQ(Quota("0::/"), 2.5);
  Write("/cpu.max", "max 100000");
  EXPECT_EQ(Quota("0::/"), absl::nullopt);
}

TEST_F(CpuQuotaTest, TheLeastOfAGroupAndThoseAboveIt) {
  Write("/kubepods/cpu.max", "800000 100000");
  Write("/kubepods/pod1/cpu.max", "300000 100000");
  Write("/kubepods/pod1/container/cpu.max", "max 100000");
  EXPECT_EQ(Quota("0::/kubepods/pod1/container"), 3);
  Write("/kubepods/pod1/container/cpu.max", "50000 100000");
  EXPECT_EQ(Quota("0::/kubepods/pod1/container"), 0.5);
}

TEST_F(CpuQuotaTest, VersionOne) {
  Write("/cpu,cpuacct/pod/cpu.cfs_quota_us", "400000");
  Write("/cpu,cpuacct/pod/cpu.cfs_period_us", "100000");
  const std::string groups = "5:cpuset:/pod\n4:cpu,cpuacct:/pod\n0::/";
  EXPECT_EQ(Quota(groups), 4);
  Write("/cpu,cpuacct/pod/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(Quota(groups), absl::nullopt);
  // The path is the host's, the files are those of the container.
  Write("/cpu,cpuacct/cpu.cfs_quota_us", "100000");
  Write("/cpu,cpuacct/cpu.cfs_period_us", "50000");
  EXPECT_EQ(Quota("4:cpu,cpuacct:/docker/abc"), 2);
}

TEST_F(CpuQuotaTest, WhatCannotBeReadIsNoLimit) {
  EXPECT_EQ(Quota("0::/nowhere"), absl::nullopt);
  EXPECT_EQ(Quota("no groups\n1:2"), absl::nullopt);
  Write("/cpu.max", "0 0");
  EXPECT_EQ(Quota("0::/"), absl::nullopt);
  EXPECT_EQ(CpuQuota({"/no/file", "/no/folder"}), absl::nullopt);
}

TEST(CpusWithinTest, AThreadForEachWholeCore) {
  EXPECT_THAT(CpusWithin({2, 3, 7}, absl::nullopt), ElementsAre(2, 3, 7));
  EXPECT_THAT(CpusWithin({2, 3, 7}, 3), ElementsAre(2, 3, 7));
  EXPECT_THAT(CpusWithin({2, 3, 7}, 64), ElementsAre(2, 3, 7));
  EXPECT_THAT(CpusWithin({2, 3, 7}, 2.9), ElementsAre(kAnyCpu, kAnyCpu));
  EXPECT_THAT(CpusWithin({2, 3, 7}, 0.2), ElementsAre(kAnyCpu));
}

}  // namespace
}  // namespace nacre
