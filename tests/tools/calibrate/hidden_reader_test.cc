#include "tools/calibrate/hidden_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "common/files.h"
#include "tools/cluster/temporary_folder.h"
#include "worker/recording/hidden_file.h"

namespace nacre::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a draft worker writes of these states of two numbers.
std::string Written(std::initializer_list<float> values) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/states";
  {
    const auto file = worker::HiddenFile::Create(path, 2);
    EXPECT_TRUE(file.ok()) << file.status();
    const absl::Span<const float> all(values.begin(), values.size());
    for (size_t i = 0; i < all.size(); i += 2) {
      (*file)->Append(all.subspan(i, 2));
    }
  }
  return ReadFile(path).value_or("");
}

std::string ErrorOfStates(const std::string& content) {
  const auto states = HiddenStates::Parse("h", content);
  EXPECT_EQ(states.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(states.status().message());
}

TEST(HiddenStatesTest, AreThoseThatWereWritten) {
  const auto states = HiddenStates::Parse("h", Written({1.0f, 2.5f, -3.0f, 0}));
  ASSERT_TRUE(states.ok()) << states.status();
  EXPECT_EQ(states->size(), 2u);
  ASSERT_EQ(states->count(), 2u);
  EXPECT_THAT(states->at(0), ElementsAre(1.0f, 2.5f));
  EXPECT_THAT(states->at(1), ElementsAre(-3.0f, 0.0f));
  EXPECT_EQ(HiddenStates::Parse("h", Written({}))->count(), 0u);
}

TEST(HiddenStatesTest, OtherFilesAreRefused) {
  const std::string good = Written({1.0f, 2.0f});
  EXPECT_THAT(ErrorOfStates(""), HasSubstr("h: no file of hidden states"));
  EXPECT_THAT(ErrorOfStates(good.substr(0, 15)),
              HasSubstr("header of 16 bytes"));
  std::string bad = good;
  bad[0] = 'X';
  EXPECT_THAT(ErrorOfStates(bad), HasSubstr("does not begin with NACREHID"));
  bad = good;
  bad[8] = 2;
  EXPECT_THAT(ErrorOfStates(bad), HasSubstr("version 2, not 1"));
  bad = good;
  bad[12] = 0;
  EXPECT_THAT(ErrorOfStates(bad), HasSubstr("states of 0 numbers"));
  bad[15] = '\x7f';
  EXPECT_THAT(ErrorOfStates(bad), HasSubstr("not of 1 to 1048576"));
  EXPECT_THAT(ErrorOfStates(good.substr(0, 20)),
              HasSubstr("4 bytes are no whole"));
}

TEST(HiddenStatesTest, WhatIsNoFiniteNumberIsNamed) {
  EXPECT_THAT(ErrorOfStates(Written(
                  {1.0f, 2.0f, 3.0f, std::numeric_limits<float>::quiet_NaN()})),
              HasSubstr("number 1 of state 1 is nan"));
  EXPECT_THAT(
      ErrorOfStates(Written({std::numeric_limits<float>::infinity(), 2.0f})),
      HasSubstr("number 0 of state 0 is inf"));
}

}  // namespace
}  // namespace nacre::tools
