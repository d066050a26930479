#include "common/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace nacre {
namespace {

class FilesTest : public ::testing::Test {
 protected:
  FilesTest()
      : folder_(::testing::TempDir() + "/nacre_files_test_" +
                std::to_string(getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  ~FilesTest() override { std::filesystem::remove_all(folder_); }

  const std::string folder_;
};

TEST_F(FilesTest, ReadsBytesAndRefusesWhatIsNoFile) {
  const std::string path = folder_ + "/file";
  EXPECT_EQ(ReadFile(path).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadFile(folder_).status().code(), absl::StatusCode::kNotFound);
  std::ofstream(path) << "";
  EXPECT_EQ(*ReadFile(path), "");
  std::ofstream(path, std::ios::binary).write("a\0b\r\n", 5);
  EXPECT_EQ(*ReadFile(path), std::string("a\0b\r\n", 5));
}

TEST_F(FilesTest, NamesTheLimitOfALongFile) {
  const std::string path = folder_ + "/file";
  std::ofstream(path) << "12345";
  EXPECT_EQ(*ReadFile(path, 5), "12345");
  const absl::Status status = ReadFile(path, 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), path + " has 5 bytes, expected 0 to 4");
}

// A pipe would wait for a writer, a device never end.
TEST_F(FilesTest, RegularFilesAreReadThroughLinksAndPipesAtOnceNot) {
  const std::string path = folder_ + "/file";
  EXPECT_EQ(ReadRegularFile(path, 9).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadRegularFile(folder_, 9).status().code(),
            absl::StatusCode::kNotFound);
  std::filesystem::create_symlink(path, folder_ + "/link");
  EXPECT_EQ(ReadRegularFile(folder_ + "/link", 9).status().code(),
            absl::StatusCode::kNotFound);
  std::ofstream(path) << "12345";
  EXPECT_EQ(*ReadRegularFile(path, 5), "12345");
  EXPECT_EQ(*ReadRegularFile(folder_ + "/link", 5), "12345");
  EXPECT_EQ(ReadRegularFile(path, 4).status().code(),
            absl::StatusCode::kDataLoss);
  ASSERT_EQ(mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  for (const std::string& other :
       {folder_ + "/pipe", std::string("/dev/zero")}) {
    EXPECT_EQ(ReadRegularFile(other, 9).status(),
              absl::InvalidArgumentError(other + " is not a regular file"));
  }
}

TEST_F(FilesTest, WritesAndReportsFailure) {
  ASSERT_TRUE(WriteFile(folder_ + "/trace.json", "{}").ok());
  EXPECT_EQ(*ReadFile(folder_ + "/trace.json"), "{}\n");
  EXPECT_EQ(WriteFile(folder_ + "/none/trace.json", "{}").code(),
            absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace nacre
