#include "common/heap_trimmer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/memory.h"
#include "tests/testing/sanitizers.h"

namespace nacre {
namespace {

constexpr int64_t kMiB = 1 << 20;

// Of the whole process: nothing else may run in it, so this file is a program
// of its own.
int64_t Resident() { return integration::ResidentBytes(getpid()); }

TEST(HeapTrimmerTest, ThreadCachesAreOffUnlessTheUserSaysHowManyPieces) {
  EXPECT_EQ(TunablesWithoutThreadCaches(nullptr),
            "glibc.malloc.tcache_count=0");
  EXPECT_EQ(TunablesWithoutThreadCaches(""), "glibc.malloc.tcache_count=0");
  EXPECT_EQ(TunablesWithoutThreadCaches("glibc.malloc.arena_max=2"),
            "glibc.malloc.arena_max=2:glibc.malloc.tcache_count=0");
  EXPECT_EQ(TunablesWithoutThreadCaches("glibc.malloc.tcache_count=7"),
            absl::nullopt);
}

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

// What cannot go back at first, since it lies between pieces in use, may be in
// use later: what is free then is new.
TEST(HeapTrimmerTest, WhatWasUnusedAndThenUsedHidesNothing) {
  if (nacre::testing::kIsSanitized) GTEST_SKIP() << "another malloc";
  LimitHeap();
  std::vector<std::unique_ptr<std::string>> pieces(64'000);
  const auto fill = [&pieces](size_t first, size_t step) {
    for (size_t i = first; i < pieces.size(); i += step) {
      pieces[i] = std::make_unique<std::string>(1000, 'x');
    }
  };
  fill(0, 1);
  for (size_t i = 0; i < pieces.size(); i += 2) pieces[i].reset();
  HeapTrimmer trimmer({.growth_bytes = 8 * kMiB});
  EXPECT_TRUE(trimmer.Look());
  fill(0, 2);
  EXPECT_FALSE(trimmer.Look());
  const int64_t before = Resident();
  for (size_t i = 0; i < 20'000; ++i) pieces[i].reset();
  EXPECT_TRUE(trimmer.Look());
  EXPECT_LT(Resident(), before - 8 * kMiB);
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
}  // namespace nacre
