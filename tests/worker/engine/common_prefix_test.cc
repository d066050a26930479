#include "worker/engine/common_prefix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "worker/engine/step_budget.h"

namespace nacre::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Ids = std::vector<int32_t>;

constexpr int kBlock = 4;

std::vector<int> Share(const std::vector<Prefill>& prompts, int rows,
                       int block_size = kBlock) {
  return SharePrefillOfCommonPrefixes(prompts, block_size, {.rows = rows});
}

// 128 rows at the beginning of a text, twice the price after 1000 positions.
std::vector<int> ShareByPrice(const std::vector<Prefill>& prompts) {
  return SharePrefillOfCommonPrefixes(
      prompts, kBlock, {.rows = 128, .even_positions = 1000, .least_rows = 8});
}

TEST(CommonPrefixTest, FarIntoATextRowsAreFewer) {
  EXPECT_THAT(ShareByPrice({{{}, 0, 9000}}), ElementsAre(128));
  EXPECT_THAT(ShareByPrice({{{}, 1000, 9000}}), ElementsAre(64));
  EXPECT_THAT(ShareByPrice({{{}, 7000, 9000}}), ElementsAre(16));
  EXPECT_THAT(ShareByPrice({{{}, 1000, 30}}), ElementsAre(30));
  // Not below what makes a product of rows.
  EXPECT_THAT(ShareByPrice({{{}, 999000, 9000}}), ElementsAre(8));
  EXPECT_THAT(ShareByPrice({{{}, 999000, 3}}), ElementsAre(3));
  EXPECT_THAT(ShareByPrice({{{}, 1 << 30, 1 << 30}}), ElementsAre(8));
}

TEST(CommonPrefixTest, APromptPaysForItsOwnLengthAlone) {
  // Half of the room is the oldest's, 64 rows at the beginning of a text.
  EXPECT_THAT(ShareByPrice({{{}, 7000, 9000}, {{}, 0, 9000}}),
              ElementsAre(8, 64));
  EXPECT_THAT(ShareByPrice({{{}, 0, 9000}, {{}, 7000, 9000}}),
              ElementsAre(64, 8));
  // What a short one leaves is the oldest's.
  EXPECT_THAT(ShareByPrice({{{}, 3000, 9000}, {{}, 0, 28}}),
              ElementsAre(25, 28));
}

TEST(CommonPrefixTest, EqualPromptsWaitForTheOldest) {
  const Ids ids(10, 1);
  EXPECT_THAT(Share({}, 8), IsEmpty());
  EXPECT_THAT(Share({{ids, 0, 10}, {ids, 0, 10}, {ids, 0, 10}}, 64),
              ElementsAre(10, 0, 0));
  // However little it gets.
  EXPECT_THAT(Share({{ids, 2, 8}, {ids, 0, 10}}, 1), ElementsAre(1, 0));
  // It is ahead: they take over what it has, and are there again.
  EXPECT_THAT(Share({{ids, 4, 6}, {ids, 0, 10}, {ids, 0, 10}}, 64),
              ElementsAre(6, 10, 0));
  // The rest is no full block with a token after it.
  EXPECT_THAT(Share({{ids, 8, 2}, {ids, 8, 2}}, 64), ElementsAre(2, 2));
  const Ids full(8, 1);
  EXPECT_THAT(Share({{full, 4, 4}, {full, 4, 4}}, 64), ElementsAre(4, 4));
}

TEST(CommonPrefixTest, WithoutSharingNobodyWaits) {
  const Ids ids(10, 1);
  EXPECT_THAT(Share({{ids, 0, 10}, {ids, 0, 10}}, 64, /*block_size=*/0),
              ElementsAre(10, 10));
}

TEST(CommonPrefixTest, OnlyTheSameTokensAreWaitedFor) {
  const Ids one = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  Ids other = one;
  other[6] = 0;
  EXPECT_THAT(Share({{one, 0, 9}, {other, 0, 9}}, 64), ElementsAre(9, 0));
  EXPECT_THAT(Share({{one, 4, 5}, {other, 4, 5}}, 64), ElementsAre(5, 5));
  other = one;
  other[0] = 0;  // the same block after another one
  EXPECT_THAT(Share({{one, 4, 5}, {other, 4, 5}}, 64), ElementsAre(5, 5));
  // Of two kinds, each waits for its own.
  EXPECT_THAT(
      Share({{one, 0, 9}, {other, 0, 9}, {one, 0, 9}, {other, 0, 9}}, 64),
      ElementsAre(9, 9, 0, 0));
}

TEST(CommonPrefixTest, NobodyWaitsForWhoGetsNothing) {
  const Ids oldest(40, 1);
  const Ids longer(30, 2);
  const Ids shorter(6, 2);
  const Ids shortest(5, 3);
  // The longer one is last in turn, and has no rows.
  EXPECT_THAT(
      Share(
          {{oldest, 0, 40}, {longer, 0, 30}, {shorter, 0, 6}, {shortest, 0, 5}},
          10),
      ElementsAre(5, 0, 0, 5));
  EXPECT_THAT(
      Share(
          {{oldest, 0, 40}, {longer, 0, 30}, {shorter, 0, 6}, {shortest, 0, 5}},
          14),
      ElementsAre(7, 2, 0, 5));
}

TEST(CommonPrefixTest, OneThatGetsNothingHoldsUpNoOther) {
  const Ids oldest(40, 1);
  const Ids longer(30, 2);
  const Ids shorter(6, 2);
  const Ids another(7, 3);
  EXPECT_THAT(
      Share(
          {{oldest, 0, 40}, {longer, 0, 30}, {shorter, 0, 6}, {another, 0, 7}},
          10),
      ElementsAre(5, 0, 5, 0));
}

// Its last token is the first step's row: it could not take the block over.
TEST(CommonPrefixTest, APromptThatEndsWithTheBlockDoesNotWaitForIt) {
  const Ids older(12, 1);
  const Ids ends(4, 1);
  const Ids goes_on(5, 1);
  EXPECT_THAT(Share({{older, 0, 12}, {ends, 0, 4}}, 64), ElementsAre(12, 4));
  EXPECT_THAT(Share({{older, 0, 12}, {goes_on, 0, 5}}, 64), ElementsAre(12, 0));
}

// Prompts that are computed to their end, some of them alike, under any budget:
// all of them come to it, and what is alike is computed about once.
TEST(CommonPrefixTest, EveryPromptComesToItsEnd) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 300; ++round) {
    const size_t count = 1 + random() % 8;
    const bool alike = random() % 2 == 0;
    std::vector<Ids> ids(count);
    std::vector<int> length(count, 0);
    for (Ids& each : ids) {
      each.assign(1 + random() % 40, 1);
      if (!alike && random() % 2 == 0) each.back() = each.front() = 2;
    }
    const auto want = [&](size_t i) {
      return static_cast<int>(ids[i].size()) - 1 - length[i];
    };
    const int rows = 1 + static_cast<int>(random() % 50);
    for (int steps = 0;; ++steps) {
      ASSERT_LT(steps, 2000);
      std::vector<Prefill> prompts;
      std::vector<size_t> who;
      for (size_t i = 0; i < count; ++i) {
        // As TakeOver does.
        for (size_t k = 0; k < count; ++k) {
          const int end = length[i] / kBlock * kBlock + kBlock;
          const auto last = ids[k].begin() + end;
          if (length[k] < end || end >= static_cast<int>(ids[i].size()) ||
              !std::equal(ids[k].begin(), last, ids[i].begin())) {
            continue;
          }
          length[i] = end;
          k = static_cast<size_t>(-1);
        }
        if (want(i) <= 0) continue;
        prompts.push_back({ids[i], length[i], want(i)});
        who.push_back(i);
      }
      if (prompts.empty()) break;
      const std::vector<int> shares = Share(prompts, rows);
      ASSERT_EQ(shares.size(), prompts.size());
      EXPECT_GT(shares[0], 0) << "the oldest waits";
      EXPECT_LE(std::accumulate(shares.begin(), shares.end(), 0), rows);
      for (size_t k = 0; k < who.size(); ++k) {
        ASSERT_LE(shares[k], want(who[k]));
        length[who[k]] += shares[k];
      }
    }
  }
}

}  // namespace
}  // namespace nacre::worker
