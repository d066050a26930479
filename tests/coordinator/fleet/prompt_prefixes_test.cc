#include "coordinator/fleet/prompt_prefixes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> Prompt(int tokens, int32_t first = 0) {
  std::vector<int32_t> prompt(static_cast<size_t>(tokens));
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

std::vector<int> Lengths(int tokens) {
  std::vector<int> lengths;
  for (const PromptPrefix& prefix : PrefixesOf(Prompt(tokens))) {
    lengths.push_back(prefix.tokens);
  }
  return lengths;
}

constexpr auto kAnyone = [](uint64_t, int) { return true; };

TEST(PromptPrefixesTest, TheLongestIsFirst) {
  EXPECT_THAT(Lengths(15), IsEmpty());
  EXPECT_THAT(Lengths(16), ElementsAre(16));
  EXPECT_THAT(Lengths(63), ElementsAre(48, 32, 16));
  EXPECT_THAT(Lengths(64), ElementsAre(64, 32, 16));
  EXPECT_THAT(Lengths(100), ElementsAre(96, 64, 32, 16));
}

TEST(PromptPrefixesTest, TheHolderOfTheLongestInCommonIsFound) {
  PrefixHolders holders;
  std::vector<int32_t> prompt = Prompt(200);
  EXPECT_EQ(holders.Find(PrefixesOf(prompt), kAnyone), absl::nullopt);
  holders.Note(PrefixesOf(prompt), 1);
  prompt[40] = -1;
  holders.Note(PrefixesOf(prompt), 2);  // the same 32
  const auto with = [&](size_t position) {
    std::vector<int32_t> other = Prompt(200);
    other[position] = -2;
    return holders.Find(PrefixesOf(other), kAnyone);
  };
  EXPECT_EQ(with(199), 1u);
  EXPECT_EQ(with(70), 1u);
  EXPECT_EQ(with(33), 2u);
  EXPECT_EQ(with(15), absl::nullopt);
  // The next best where that one may not.
  std::vector<int> asked;
  const auto not_the_first = [&](uint64_t id, int tokens) {
    asked.push_back(tokens);
    return id != 1;
  };
  EXPECT_EQ(holders.Find(PrefixesOf(Prompt(200)), not_the_first), 2u);
  EXPECT_THAT(asked, ElementsAre(192, 128, 64, 32));
}

TEST(PromptPrefixesTest, TheNewestAreKept) {
  PrefixHolders holders;
  const auto noted = [&](int32_t first) {
    return holders.Find(PrefixesOf(Prompt(16, first)), kAnyone).has_value();
  };
  constexpr int kMany = 5 * PrefixHolders::kGeneration;
  for (int32_t i = 0; i < kMany; ++i) {
    holders.Note(PrefixesOf(Prompt(16, 100 * i)), 7);
    EXPECT_LE(holders.size(), 2 * PrefixHolders::kGeneration);
  }
  EXPECT_FALSE(noted(0));
  EXPECT_TRUE(noted(100 * (kMany - 1)));
  EXPECT_TRUE(noted(100 * (kMany - int32_t{PrefixHolders::kGeneration})));
}

// What is noted again takes no place of its own: nothing older goes for it.
TEST(PromptPrefixesTest, WhatIsKnownMakesNoRoom) {
  PrefixHolders holders;
  constexpr auto kMany = static_cast<int32_t>(2 * PrefixHolders::kGeneration);
  for (int32_t i = 0; i < kMany; ++i) {
    holders.Note(PrefixesOf(Prompt(16, 100 * i)), 7);
  }
  holders.Note(PrefixesOf(Prompt(16, 100 * (kMany - 1))), 8);
  EXPECT_EQ(holders.Find(PrefixesOf(Prompt(16, 0)), kAnyone), 7u);
}

// Whoever held it before may have dropped it since.
TEST(PromptPrefixesTest, OnlyItsNewestHolderIsAsked) {
  PrefixHolders holders;
  const std::vector<PromptPrefix> prefixes = PrefixesOf(Prompt(16));
  holders.Note(prefixes, 1);
  for (size_t i = 1; i <= PrefixHolders::kGeneration; ++i) {
    holders.Note(PrefixesOf(Prompt(16, static_cast<int32_t>(100 * i))), 7);
  }
  EXPECT_EQ(holders.Find(prefixes, kAnyone), 1u);  // of the older ones
  holders.Note(prefixes, 2);
  const auto not_the_newest = [](uint64_t id, int) { return id != 2; };
  EXPECT_EQ(holders.Find(prefixes, not_the_newest), absl::nullopt);
}

TEST(PromptPrefixesTest, LongerOnesAreWorthMoreCompany) {
  EXPECT_EQ(PrefixHolders::ExtraSessions(63), 0);
  EXPECT_EQ(PrefixHolders::ExtraSessions(64), 1);
  EXPECT_EQ(PrefixHolders::ExtraSessions(100000), 4);
}

}  // namespace
}  // namespace nacre::coordinator
