#include "worker/engine/step_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace nacre::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(StepBudgetTest, DecodingGoesFirstButLeavesPromptsSome) {
  const StepBudget budget = {.max_rows = 512, .prefill_chunk = 128};
  EXPECT_EQ(budget.DecodeRows(/*prefilling=*/false), 512);
  EXPECT_EQ(budget.DecodeRows(/*prefilling=*/true), 448);
  // Even when the last session's window went over.
  EXPECT_EQ(budget.PrefillRows(/*decoding=*/true, 470), 64);
  EXPECT_EQ(budget.PrefillRows(/*decoding=*/true, 600), 64);
}

TEST(StepBudgetTest, PromptsBesideDecodingAreChunked) {
  const StepBudget budget = {.max_rows = 512, .prefill_chunk = 128};
  EXPECT_EQ(budget.PrefillRows(/*decoding=*/true, 1), 128);
  EXPECT_EQ(budget.PrefillRows(/*decoding=*/true, 400), 112);
  EXPECT_EQ(budget.PrefillRows(/*decoding=*/false, 0), 512);
}

TEST(StepBudgetTest, TinyBudgetsWork) {
  const StepBudget one = {.max_rows = 1, .prefill_chunk = 1};
  EXPECT_EQ(one.DecodeRows(true), 1);
  EXPECT_EQ(one.PrefillRows(true, 0), 1);
  EXPECT_EQ(one.PrefillRows(true, 1), 0);
  const StepBudget small_chunk = {.max_rows = 512, .prefill_chunk = 4};
  EXPECT_EQ(small_chunk.DecodeRows(true), 508);
}

TEST(StepBudgetTest, RoomForPromptsIsTheirRowsAtAPrice) {
  const StepBudget budget = {.even_positions = 1000};
  const PrefillRoom beside = budget.RoomForPrompts(/*decoding=*/true, 400);
  EXPECT_EQ(beside.rows, budget.PrefillRows(true, 400));
  EXPECT_DOUBLE_EQ(beside.PriceAfter(0), 1);
  EXPECT_DOUBLE_EQ(beside.PriceAfter(500), 1.5);
  const PrefillRoom alone = budget.RoomForPrompts(/*decoding=*/false, 0);
  EXPECT_EQ(alone.rows, 512);
  EXPECT_EQ(alone.SharedRows(512, 3000), 128);
  EXPECT_EQ(alone.SharedRows(512, 1 << 20), 64);
  EXPECT_EQ(beside.SharedRows(112, 1 << 20), 8);
  // Where nobody waits for the step's end, a product has more rows.
  EXPECT_GT(alone.SharedRows(512, 1 << 20), beside.SharedRows(112, 1 << 20));
  EXPECT_GT(beside.SharedRows(112, 1 << 20), 1);
  // No share, no rows.
  EXPECT_EQ(beside.SharedRows(0, 0), 0);
  EXPECT_EQ(beside.SharedRows(0, 1 << 20), 0);
  // Where nobody told the price, length costs nothing.
  EXPECT_EQ(StepBudget().RoomForPrompts(true, 0).SharedRows(128, 1 << 20), 128);
}

TEST(StepBudgetTest, HalfGoesToTheOldestTheRestToTheShortest) {
  EXPECT_THAT(SharePrefill({}, 10), IsEmpty());
  EXPECT_THAT(SharePrefill({1000}, 64), ElementsAre(64));
  EXPECT_THAT(SharePrefill({1000, 900, 20, 10}, 64),
              ElementsAre(32, 2, 20, 10));
  EXPECT_THAT(SharePrefill({1000, 900, 40, 50}, 64), ElementsAre(32, 0, 32, 0));
  EXPECT_THAT(SharePrefill({10, 900, 40}, 64), ElementsAre(10, 14, 40));
  // What no other needs is the oldest's.
  EXPECT_THAT(SharePrefill({1000, 5}, 64), ElementsAre(59, 5));
  // Of equal ones the older goes first.
  EXPECT_THAT(SharePrefill({9, 9, 9, 9}, 20), ElementsAre(9, 9, 2, 0));
  EXPECT_THAT(SharePrefill({9, 9}, 1), ElementsAre(1, 0));
  EXPECT_THAT(SharePrefill({9, 9}, 0), ElementsAre(0, 0));
}

TEST(StepBudgetTest, NothingIsWastedAndNobodyGetsTooMuch) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i) {
    std::vector<int> unfed(random() % 9);
    for (int& rows : unfed) rows = 1 + static_cast<int>(random() % 200);
    const int rows = static_cast<int>(random() % 300);
    const std::vector<int> shares = SharePrefill(unfed, rows);
    for (size_t j = 0; j < unfed.size(); ++j) {
      ASSERT_GE(shares[j], 0);
      ASSERT_LE(shares[j], unfed[j]);
    }
    ASSERT_EQ(std::accumulate(shares.begin(), shares.end(), 0),
              std::min(rows, std::accumulate(unfed.begin(), unfed.end(), 0)));
  }
}

// A prompt, however long, ends however many shorter ones keep coming.
TEST(StepBudgetTest, ShortPromptsDoNotStarveALongOne) {
  std::vector<int> unfed = {3000, 2000};  // both long, the shorts come forever
  int steps = 0;
  while (unfed.size() > 1 || unfed[0] > 10) {
    ASSERT_LT(++steps, 100);
    unfed.push_back(10);
    unfed.push_back(10);
    unfed.push_back(10);
    const std::vector<int> shares = SharePrefill(unfed, 128);
    std::vector<int> left;
    for (size_t i = 0; i < unfed.size(); ++i) {
      if (unfed[i] > shares[i]) left.push_back(unfed[i] - shares[i]);
    }
    unfed = left.empty() ? std::vector<int>{0} : left;
  }
}

}  // namespace
}  // namespace nacre::worker
