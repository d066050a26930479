#include "worker/recording/hidden_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
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

// A line that names a state must find it at its place.
TEST_F(HiddenFileTest, WhatWasFullStaysClosedWhenThereIsRoomAgain) {
  const auto file = HiddenFile::Create(path(), 1);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto ignored = signal(SIGXFSZ, SIG_IGN);
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit one_state = {kHiddenHeaderBytes + sizeof(float), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &one_state), 0);
  const auto first = (*file)->Append({1.0f});
  const auto second = (*file)->Append({2.0f});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, ignored);
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, absl::nullopt);
  EXPECT_EQ((*file)->Append({3.0f}), absl::nullopt);
}

}  // namespace
}  // namespace nacre::worker
