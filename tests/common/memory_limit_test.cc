#include "common/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/files.h"

namespace nacre {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kMachine[] =
    "MemTotal:       24000 kB\n"
    "MemFree:         1000 kB\n"
    "MemAvailable:   20000 kB\n"
    "SwapTotal:       4000 kB\n";

// A file system of control groups, and a machine.
class MemoryLimitTest : public ::testing::Test {
 protected:
  MemoryLimitTest() {
    char name[] = "/tmp/nacre-memory-XXXXXX";
    folder_ = mkdtemp(name);
    EXPECT_TRUE(WriteFile(folder_ + "/meminfo", kMachine).ok());
  }
  ~MemoryLimitTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_ + "/fs" + path;
    std::filesystem::create_directories(file.parent_path());
    EXPECT_TRUE(WriteFile(file.string(), text).ok());
  }
  // Without the machine's.
  std::vector<MemoryLimit> Groups(const std::string& groups) {
    EXPECT_TRUE(WriteFile(folder_ + "/groups", groups).ok());
    std::vector<MemoryLimit> limits = MemoryLimits(
        {{folder_ + "/groups", folder_ + "/fs"}, folder_ + "/meminfo"});
    EXPECT_FALSE(limits.empty());
    limits.erase(limits.begin());
    return limits;
  }

  std::string folder_;
};

testing::Matcher<const MemoryLimit&> Is(int64_t limit, int64_t available) {
  return ::testing::AllOf(::testing::Field(&MemoryLimit::limit, limit),
                          ::testing::Field(&MemoryLimit::available, available));
}

TEST_F(MemoryLimitTest, TheMachinesMemoryAndSwap) {
  const std::vector<MemoryLimit> limits =
      MemoryLimits({{"/no/file", "/no/folder"}, folder_ + "/meminfo"});
  EXPECT_THAT(limits, ElementsAre(Is(28000 * 1024, 20000 * 1024)));
  EXPECT_EQ(limits[0].origin, "the machine");
}

TEST_F(MemoryLimitTest, OfThisMachineThereIsOne) {
  const std::vector<MemoryLimit> limits = MemoryLimits();
  ASSERT_FALSE(limits.empty());
  EXPECT_GT(limits[0].limit, limits[0].available);
  EXPECT_GT(limits[0].available, 0);
}

TEST_F(MemoryLimitTest, VersionTwoInAContainer) {
  Write("/memory.max", "1000000");
  Write("/memory.swap.max", "0");
  Write("/memory.current", "700000");
  Write("/memory.stat",
        "anon 400000\nfile 300000\ninactive_file 200000\nactive_file 50000\n");
  const std::vector<MemoryLimit> limits = Groups("0::/");
  EXPECT_THAT(limits, ElementsAre(Is(1000000, 550000)));
  EXPECT_EQ(limits[0].origin, folder_ + "/fs/memory.max");
  Write("/memory.max", "max");
  EXPECT_THAT(Groups("0::/"), IsEmpty());
}

TEST_F(MemoryLimitTest, WhereAGroupIsSlowedOnlyWhatIsAvailableCounts) {
  Write("/memory.high", "900000");
  Write("/memory.current", "700000");
  Write("/memory.stat", "inactive_file 200000\nactive_file 50000\n");
  std::vector<MemoryLimit> limits = Groups("0::/");
  EXPECT_THAT(limits, ElementsAre(Is(kNoMemoryLimit, 450000)));
  EXPECT_EQ(limits[0].origin, folder_ + "/fs/memory.high");
  Write("/memory.max", "1000000");
  Write("/memory.swap.max", "0");
  limits = Groups("0::/");
  EXPECT_THAT(limits,
              ElementsAre(Is(1000000, 550000), Is(kNoMemoryLimit, 450000)));
  Write("/memory.high", "max");
  EXPECT_THAT(Groups("0::/"), ElementsAre(Is(1000000, 550000)));
}

TEST_F(MemoryLimitTest, SwapCountsAsFarAsThereIsSome) {
  Write("/a/memory.max", "1000000");
  EXPECT_THAT(Groups("0::/a"), ElementsAre(Is(1000000 + 4096000, 1000000)));
  Write("/a/memory.swap.max", "max");
  EXPECT_THAT(Groups("0::/a"), ElementsAre(Is(1000000 + 4096000, 1000000)));
  Write("/a/memory.swap.max", "500");
  EXPECT_THAT(Groups("0::/a"), ElementsAre(Is(1000500, 1000000)));
  Write("/a/memory.swap.max", "9000000");  // more than the machine has
  EXPECT_THAT(Groups("0::/a"), ElementsAre(Is(1000000 + 4096000, 1000000)));
}

TEST_F(MemoryLimitTest, AGroupAndThoseAboveIt) {
  Write("/pods/memory.max", "3000000");
  Write("/pods/memory.swap.max", "0");
  Write("/pods/one/memory.max", "2000000");
  Write("/pods/one/memory.swap.max", "0");
  Write("/pods/one/inner/memory.max", "max");
  EXPECT_THAT(Groups("0::/pods/one/inner"),
              ElementsAre(Is(2000000, 2000000), Is(3000000, 3000000)));
}

TEST_F(MemoryLimitTest, VersionOne) {
  const std::string groups = "5:cpuset:/pod\n4:memory:/pod\n0::/";
  Write("/memory/memory.limit_in_bytes", "9223372036854771712");
  Write("/memory/pod/memory.limit_in_bytes", "1000000");
  Write("/memory/pod/memory.memsw.limit_in_bytes", "1200000");
  Write("/memory/pod/memory.usage_in_bytes", "500000");
  Write("/memory/pod/memory.stat",
        "inactive_file 9\ntotal_inactive_file 100000\ntotal_active_file 1\n");
  EXPECT_THAT(Groups(groups), ElementsAre(Is(1200000, 600001)));
  Write("/memory/pod/memory.memsw.limit_in_bytes", "9000000");
  EXPECT_THAT(Groups(groups), ElementsAre(Is(1000000 + 4096000, 600001)));
}

TEST_F(MemoryLimitTest, WhatCannotBeReadIsNoLimit) {
  Write("/memory.max", "lots");
  EXPECT_THAT(Groups("0::/\nno groups"), IsEmpty());
  EXPECT_THAT(MemoryLimits({{"/no/file", "/no/folder"}, "/no/machine"}),
              IsEmpty());
}

}  // namespace
}  // namespace nacre
