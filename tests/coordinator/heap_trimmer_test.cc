#include "coordinator/heap_trimmer.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/integration/memory.h"
#include "tests/testing/sanitizers.h"

namespace nacre::coordinator {
namespace {

constexpr int64_t kMiB = 1 << 20;

int64_t Resident() { return integration::ResidentBytes(getpid()); }

TEST(HeapTrimmerTest, WhatIsFreeBelowWhatIsNotGoesBack) {
  if (nacre::testing::kIsSanitized) GTEST_SKIP() << "another malloc";
  LimitHeap();
  HeapTrimmer trimmer({.growth_bytes = 8 * kMiB});
  EXPECT_TRUE(trimmer.Look());  // what was free before this test
  EXPECT_FALSE(trimmer.Look());
  const int64_t before = Resident();
  // Small pieces, of which one in a thousand stays.
  std::vector<std::unique_ptr<std::vector<char>>> kept, freed;
  for (int i = 0; i < 64'000; ++i) {
    auto piece = std::make_unique<std::vector<char>>(1000, 'x');
    (i % 1000 == 0 ? kept : freed).push_back(std::move(piece));
  }
  EXPECT_FALSE(trimmer.Look());  // it is in use
  freed.clear();
  EXPECT_GT(Resident(), before + 32 * kMiB);
  EXPECT_TRUE(trimmer.Look());
  EXPECT_LT(Resident(), before + 8 * kMiB);
  EXPECT_FALSE(trimmer.Look());
}

TEST(HeapTrimmerTest, ABurstBeforeTheFirstLookGoesBack) {
  if (nacre::testing::kIsSanitized) GTEST_SKIP() << "another malloc";
  LimitHeap();
  std::vector<std::unique_ptr<std::vector<char>>> kept, freed;
  for (int i = 0; i < 64'000; ++i) {
    auto piece = std::make_unique<std::vector<char>>(1000, 'x');
    (i % 1000 == 0 ? kept : freed).push_back(std::move(piece));
  }
  freed.clear();
  const int64_t burst = Resident();
  HeapTrimmer trimmer({.growth_bytes = 8 * kMiB});
  EXPECT_TRUE(trimmer.Look());
  EXPECT_LT(Resident(), burst - 32 * kMiB);
}

}  // namespace
}  // namespace nacre::coordinator
