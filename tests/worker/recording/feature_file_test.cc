#include "worker/recording/feature_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace nacre::worker {
namespace {

using ::testing::HasSubstr;

TEST(FeatureFile, AppendsToWhatIsThere) {
  std::string dir = ::testing::TempDir() + "/nacre-features-XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  const std::string path = dir + "/rows.jsonl";
  for (int i = 0; i < 2; ++i) {
    const auto file = FeatureFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->hidden(), nullptr);
    (*file)->Write("{}\n", 1);
  }
  std::ifstream stream(path);
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(stream)),
                        std::istreambuf_iterator<char>()),
            "{}\n{}\n");
  std::filesystem::remove_all(dir);
}

TEST(FeatureFile, SaysWhereItCannotBeOpened) {
  const auto file = FeatureFile::Open("/nowhere/rows.jsonl");
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(file.status().message()),
              HasSubstr("--record-features /nowhere/rows.jsonl"));
  EXPECT_FALSE(FeatureFile::Open("/tmp").ok());
}

TEST(FeatureFile, CountsWhatAFullDiskLoses) {
  const auto file = FeatureFile::Open("/dev/full");
  ASSERT_TRUE(file.ok()) << file.status();
  (*file)->Write("{}\n{}\n", 2);
  EXPECT_EQ((*file)->lost_lines(), 2u);
  (*file)->Write("{}\n", 1);
  EXPECT_EQ((*file)->lost_lines(), 3u);
}

// A line after half of one would be none.
TEST(FeatureFile, WhatWasFullStaysClosedWhenThereIsRoomAgain) {
  std::string dir = ::testing::TempDir() + "/nacre-features-XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  const auto file = FeatureFile::Open(dir + "/rows.jsonl");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto ignored = signal(SIGXFSZ, SIG_IGN);
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit four_bytes = {4, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &four_bytes), 0);
  (*file)->Write("{}\n", 1);
  const uint64_t lost_first = (*file)->lost_lines();
  (*file)->Write("{}\n", 1);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, ignored);
  EXPECT_EQ(lost_first, 0u);
  EXPECT_EQ((*file)->lost_lines(), 1u);
  (*file)->Write("{}\n", 1);
  EXPECT_EQ((*file)->lost_lines(), 2u);
  std::filesystem::remove_all(dir);
}

TEST(JsonString, TakesAnyBytes) {
  EXPECT_EQ(JsonString("ask \"1\"\n"), "\"ask \\\"1\\\"\\n\"");
  EXPECT_EQ(JsonString("\xff"), "\"\\ufffd\"");
}

}  // namespace
}  // namespace nacre::worker
