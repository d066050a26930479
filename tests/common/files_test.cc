#include "common/files.h"

#include <gtest/gtest.h>
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

TEST_F(FilesTest, WritesAndReportsFailure) {
  ASSERT_TRUE(WriteFile(folder_ + "/trace.json", "{}").ok());
  EXPECT_EQ(*ReadFile(folder_ + "/trace.json"), "{}\n");
  EXPECT_EQ(WriteFile(folder_ + "/none/trace.json", "{}").code(),
            absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace nacre
