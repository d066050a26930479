#include "common/scratch_memory.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ScratchMemoryTest : public ::testing::Test {
 protected:
  ScratchMemoryTest()
      : folder_(::testing::TempDir() + "/nacre_scratch_" +
                std::to_string(getpid())) {
    std::filesystem::create_directory(folder_);
  }
  ~ScratchMemoryTest() override { std::filesystem::remove_all(folder_); }

  const std::string folder_;
};

TEST_F(ScratchMemoryTest, HoldsWhatIsWritten) {
  for (const std::string& where : {std::string(), folder_}) {
    const auto memory = ScratchMemory::Create(100000, where);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ((*memory)->size(), 100000u);
    EXPECT_EQ((*memory)->data()[99999], 0);
    (*memory)->data()[99999] = 7;
    EXPECT_EQ((*memory)->data()[99999], 7);
  }
}

TEST_F(ScratchMemoryTest, ItsFileHasNoName) {
  const auto memory = ScratchMemory::Create(4096, folder_);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(ScratchMemoryTest, ItsRoomIsTakenAtOnce) {
  constexpr size_t kBytes = size_t{64} << 20;
  // Others may free as much meanwhile, but hardly each time.
  bool was_taken = false;
  for (int i = 0; i < 20 && !was_taken; ++i) {
    const size_t before = std::filesystem::space(folder_).free;
    const auto memory = ScratchMemory::Create(kBytes, folder_);
    ASSERT_TRUE(memory.ok()) << memory.status();
    was_taken = std::filesystem::space(folder_).free + kBytes / 2 <= before;
  }
  EXPECT_TRUE(was_taken);
}

// Other tests write meanwhile.
TEST_F(ScratchMemoryTest, RoomThatIsNotThereDoesNotFillTheDisk) {
  const auto before = std::filesystem::space(folder_).free;
  // More than any disk here has, and less than a file may be.
  const size_t bytes = size_t{1} << 42;
  ASSERT_LT(before, bytes);
  const auto refused = ScratchMemory::Create(bytes, folder_);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted)
      << refused.status();
  // Known before anything was taken.
  EXPECT_THAT(refused.status().ToString(),
              AllOf(HasSubstr("no room for 4398046511104 bytes in " + folder_),
                    HasSubstr(" are free")));
}

TEST_F(ScratchMemoryTest, AFolderThatIsNoneIsNamed) {
  const std::string missing = folder_ + "/none";
  auto refused = ScratchMemory::Create(4096, missing);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(refused.status().ToString(), HasSubstr(missing));
  const std::string file = folder_ + "/file";
  std::ofstream(file) << "x";
  refused = ScratchMemory::Create(4096, file);
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().ToString(), HasSubstr(file));
}

TEST_F(ScratchMemoryTest, WhatCannotBeIsKnownBefore) {
  EXPECT_TRUE(ScratchMemory::Check(4096, folder_).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  const std::string file = folder_ + "/file";
  std::ofstream(file) << "x";
  for (const std::string& bad : {folder_ + "/none", file}) {
    const absl::Status status = ScratchMemory::Check(4096, bad);
    EXPECT_EQ(status, ScratchMemory::Create(4096, bad).status());
    EXPECT_FALSE(status.ok());
  }
  const absl::Status full = ScratchMemory::Check(size_t{1} << 62, folder_);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      full.ToString(),
      HasSubstr("no room for 4611686018427387904 bytes in " + folder_ + ": "));
}

}  // namespace
}  // namespace nacre
