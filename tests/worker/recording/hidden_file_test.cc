#include "worker/recording/hidden_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace nacre::worker {
namespace {

using ::testing::HasSubstr;

class HiddenFileTest : public ::testing::Test {
 protected:
  HiddenFileTest() {
    std::string name = ::testing::TempDir() + "/nacre-hidden-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  ~HiddenFileTest() override { std::filesystem::remove_all(dir_); }
  std::string path() const { return dir_ + "/states"; }

  std::string dir_;
};

// Byte for byte what the header says.
TEST_F(HiddenFileTest, HasAHeaderAndTheStates) {
  {
    const auto file = HiddenFile::Create(path(), 3);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->Append({1.0f, -2.0f, 0.5f}), 0);
    EXPECT_EQ((*file)->Append({0.0f, 3.0f, 4.0f}), 1);
  }
  std::ifstream stream(path(), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)),
                          std::istreambuf_iterator<char>());
  ASSERT_EQ(bytes.size(), 16u + 6u * 4u);
  EXPECT_EQ(bytes.substr(0, 16),
            std::string("NACREHID\x01\0\0\0\x03\0\0\0", 16));
  std::vector<float> values(6);
  std::memcpy(values.data(), bytes.data() + 16, 24);
  EXPECT_EQ(values, std::vector<float>({1.0f, -2.0f, 0.5f, 0.0f, 3.0f, 4.0f}));
}

TEST_F(HiddenFileTest, SaysWhyThereIsNone) {
  const auto none = HiddenFile::Create(path(), 0);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(none.status().message()),
              HasSubstr("shows no hidden states"));
  ASSERT_TRUE(HiddenFile::Create(path(), 1).ok());
  const auto again = HiddenFile::Create(path(), 1);
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(again.status().message()),
              HasSubstr("--record-hidden " + path()));
  EXPECT_EQ(HiddenFile::Create("/nowhere/states", 1).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace nacre::worker
