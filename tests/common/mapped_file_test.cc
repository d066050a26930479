#include "common/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace nacre {
namespace {

constexpr size_t kBytes = size_t{32} << 20;
// The system counts roughly, and maps in pages of 2 MB at times.
constexpr int64_t kRoughly = int64_t{4} << 20;

// Memory of files that this process has mapped. Those of tmpfs count as shared
// memory.
int64_t MappedBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  int64_t bytes = 0;
  int found = 0;
  while (std::getline(status, line)) {
    long long kilobytes = 0;
    if (std::sscanf(line.c_str(), "RssFile: %lld", &kilobytes) == 1 ||
        std::sscanf(line.c_str(), "RssShmem: %lld", &kilobytes) == 1) {
      bytes += kilobytes * 1024;
      ++found;
    }
  }
  EXPECT_EQ(found, 2) << "no RssFile or RssShmem";
  return bytes;
}

char ByteAt(size_t at) { return static_cast<char>(at * 2654435761u >> 13); }

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() {
    std::string text(kBytes, '\0');
    for (size_t i = 0; i < kBytes; ++i) text[i] = ByteAt(i);
    std::ofstream file(path_, std::ios::binary);
    file << text;
    file.close();
    EXPECT_TRUE(file) << "could not write " << path_;
    file_ = *MappedFile::Open(path_);
  }
  ~MappedFileTest() override { std::remove(path_.c_str()); }

  bool HasAllBytes() const {
    const absl::string_view bytes = file_->bytes();
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] != ByteAt(i)) return false;
    }
    return bytes.size() == kBytes;
  }

  const std::string path_ =
      ::testing::TempDir() + "/nacre_mapped_" + std::to_string(getpid());
  std::unique_ptr<MappedFile> file_;
};

TEST_F(MappedFileTest, WhatIsGivenBackIsNotInMemoryAndCanBeReadAgain) {
  const int64_t before = MappedBytes();
  int64_t most_read = 0;
  int64_t most_left = 0;
  // The system may take pages back by itself, but hardly each time.
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(HasAllBytes());
    most_read = std::max(most_read, MappedBytes() - before);
    file_->GiveBack(file_->bytes().substr(100, kBytes / 2));
    const int64_t left = MappedBytes() - before;
    EXPECT_LE(left, static_cast<int64_t>(kBytes / 2) + kRoughly);
    most_left = std::max(most_left, left);
  }
  EXPECT_GE(most_read, static_cast<int64_t>(kBytes) - kRoughly);
  EXPECT_GE(most_left, static_cast<int64_t>(kBytes / 2) - kRoughly);
  file_->GiveBack(file_->bytes());
  EXPECT_LE(MappedBytes(), before + kRoughly);
  EXPECT_TRUE(HasAllBytes());
}

TEST_F(MappedFileTest, AnyPartCanBeGivenBack) {
  const absl::string_view bytes = file_->bytes();
  for (const size_t begin : {size_t{0}, size_t{1}, kBytes - 1, kBytes}) {
    for (const size_t count : {size_t{0}, size_t{1}, kBytes}) {
      file_->GiveBack(bytes.substr(begin, count));
    }
  }
  file_->GiveBack({});
  EXPECT_TRUE(HasAllBytes());
}

// A pipe would wait for a writer.
TEST_F(MappedFileTest, OpensRegularFilesAndLinksToThemAlone) {
  const std::string link = path_ + "_link";
  std::filesystem::create_symlink(path_, link);
  const auto linked = MappedFile::Open(link);
  ASSERT_TRUE(linked.ok()) << linked.status();
  EXPECT_EQ((*linked)->bytes().size(), kBytes);
  std::filesystem::remove(link);
  ASSERT_EQ(mkfifo(link.c_str(), 0600), 0);
  for (const std::string& path :
       {link, std::string("/dev/zero"), ::testing::TempDir()}) {
    EXPECT_EQ(MappedFile::Open(path).status(),
              absl::InvalidArgumentError(path + " is not a regular file"));
  }
  std::filesystem::remove(link);
}

TEST_F(MappedFileTest, NothingElseCan) {
  const std::string other = "mine";
  EXPECT_DEATH(file_->GiveBack(other), "a part of another file");
  EXPECT_DEATH(file_->GiveBack({file_->bytes().data() + 1, kBytes}),
               "a part of another file");
}

}  // namespace
}  // namespace nacre
