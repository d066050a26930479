#include "kernels/host_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::kernels {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Buffer> Take(HostArena* arena, size_t bytes) {
  auto piece = arena->Allocate(bytes);
  EXPECT_TRUE(piece.ok()) << piece.status();
  return *std::move(piece);
}

char* Begin(const std::unique_ptr<Buffer>& piece) {
  return static_cast<char*>(piece->data());
}

bool IsZero(const std::unique_ptr<Buffer>& piece) {
  return std::all_of(Begin(piece), Begin(piece) + piece->size_bytes(),
                     [](char c) { return c == 0; });
}

void Fill(const std::unique_ptr<Buffer>& piece) {
  std::fill_n(Begin(piece), piece->size_bytes(), 'x');
}

bool IsMapped(const char* address) {
  char* const page =
      const_cast<char*>(address) - reinterpret_cast<uintptr_t>(address) % 4096;
  return msync(page, 1, MS_ASYNC) == 0;
}

TEST(HostArenaTest, PiecesAreZeroAlignedAndOneAfterAnother) {
  HostArena arena;
  std::vector<std::unique_ptr<Buffer>> pieces;
  for (const size_t bytes : {1, 63, 64, 1000, 5 << 20, 7}) {
    pieces.push_back(Take(&arena, bytes));
    EXPECT_EQ(pieces.back()->size_bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(Begin(pieces.back())) % 64, 0u);
    EXPECT_TRUE(IsZero(pieces.back()));
    Fill(pieces.back());
  }
  for (size_t i = 1; i < pieces.size(); ++i) {
    const size_t size = (pieces[i - 1]->size_bytes() + 63) / 64 * 64;
    EXPECT_EQ(Begin(pieces[i - 1]) + size, Begin(pieces[i]));
  }
  const auto none = Take(&arena, 0);
  EXPECT_EQ(none->size_bytes(), 0u);
}

TEST(HostArenaTest, MappingsBeginWithHugePagesWhateverTheirSize) {
  HostArena arena;
  const auto large = Take(&arena, HostArena::kMappingBytes + 1);
  const auto most = Take(&arena, HostArena::kMappingBytes);
  for (const auto* piece : {&large, &most}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(Begin(*piece)) % (2 << 20), 0u);
    Begin(*piece)[(*piece)->size_bytes() - 1] = 'x';
  }
  // What is left after the large piece is used.
  const auto next = Take(&arena, 1 << 20);
  EXPECT_EQ(Begin(next), Begin(large) + HostArena::kMappingBytes + 64);
}

TEST(HostArenaTest, TheMemoryOfTheLastPieceIsUsedAgainAsZeros) {
  for (const size_t bytes : {size_t{100}, size_t{9} << 20}) {
    HostArena arena;
    auto first = Take(&arena, 1000);
    auto last = Take(&arena, bytes);
    char* const begin = Begin(last);
    Fill(first);
    Fill(last);
    last.reset();
    last = Take(&arena, bytes + 200);
    EXPECT_EQ(Begin(last), begin);
    EXPECT_TRUE(IsZero(last));
    EXPECT_EQ(Begin(first)[999], 'x');
    first.reset();  // Not the last one.
    EXPECT_GT(Begin(Take(&arena, 1)), begin);
  }
}

// In whichever order they are freed, and though the arena keeps the mapping.
TEST(HostArenaTest, MemoryGoesBackOnceAllPiecesAreFreed) {
  HostArena arena;
  auto large = Take(&arena, HostArena::kMappingBytes + 1);
  auto small = Take(&arena, 1000);
  Fill(large);
  Fill(small);
  char* const begin = Begin(large);
  const size_t pages = HostArena::kMappingBytes / 4096;
  std::vector<unsigned char> resident(pages);
  const auto count = [&] {
    EXPECT_EQ(mincore(begin, HostArena::kMappingBytes, resident.data()), 0);
    return std::count_if(resident.begin(), resident.end(),
                         [](unsigned char page) { return (page & 1) != 0; });
  };
  EXPECT_EQ(count(), pages);
  large.reset();
  small.reset();
  EXPECT_EQ(count(), 0);
  const auto again = Take(&arena, 2000);
  EXPECT_EQ(Begin(again), begin);
  EXPECT_TRUE(IsZero(again));
}

TEST(HostArenaTest, PiecesKeepTheirMappingAndNothingElseDoes) {
  auto arena = std::make_unique<HostArena>();
  auto first = Take(arena.get(), 100);
  auto second = Take(arena.get(), 100);
  Fill(second);
  const char* const begin = Begin(second);
  arena.reset();
  first.reset();
  EXPECT_EQ(begin[99], 'x');
  EXPECT_TRUE(IsMapped(begin));
  second.reset();
  EXPECT_FALSE(IsMapped(begin));
}

TEST(HostArenaTest, PiecesAreFreedByOtherThreads) {
  HostArena arena;
  std::vector<std::thread> threads;
  for (int i = 0; i < 100; ++i) {
    auto piece = Take(&arena, 1000);
    EXPECT_TRUE(IsZero(piece));
    Fill(piece);
    threads.emplace_back(
        [freed = std::move(piece)]() mutable { freed.reset(); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HostArenaTest, SaysHowMuchDidNotFit) {
  HostArena arena;
  // More than any address space.
  for (const size_t bytes : {std::numeric_limits<size_t>::max() / 4,
                             std::numeric_limits<size_t>::max()}) {
    const absl::Status status = arena.Allocate(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::to_string(bytes)));
  }
  EXPECT_TRUE(IsZero(Take(&arena, 10)));
}

}  // namespace
}  // namespace nacre::kernels
