// Passes over a row of logits, against plain loops, for every SIMD target.

#include "model/logit_row.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/model/random_rows.h"

namespace nacre::model {
namespace {

using LogitRowTest = kernels::EveryTargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, LogitRowTest,
                         ::testing::ValuesIn(kernels::SupportedSimdTargets()),
                         kernels::SimdTargetName);

constexpr int kCounts[] = {1, 5, 63, 64, 65, 127, 1000, 2049, 5000};

// A row with all that its passes need.
struct WholeRow {
  WholeRow(std::vector<float> values, float temperature)
      : logits(std::move(values)),
        maxima(static_cast<size_t>(NumGroups(count())) + kSlack, 1e30f),
        row{logits.data(), maxima.data(), count(), temperature} {
    FindMaxima(logits.data(), count(), AllGroups(row), maxima.data());
    ScaleMaxima(temperature, AllGroups(row), maxima.data());
  }
  int count() const { return static_cast<int>(logits.size()); }

  std::vector<float> logits;
  std::vector<float> maxima;
  LogitRow row;
};

float PlainLargest(const std::vector<float>& values, size_t begin, size_t end) {
  float largest = -kInfinity;
  for (size_t i = begin; i < end; ++i) {
    if (values[i] > largest) largest = values[i];
  }
  return largest;
}

TEST_P(LogitRowTest, ASoundRowHoldsNumbersAndMasks) {
  std::mt19937 rng(7);
  for (const int count : kCounts) {
    std::vector<float> row(static_cast<size_t>(count), -kInfinity);
    const auto is_sound = [&row] {
      return IsSoundRow(row.data(), static_cast<int>(row.size()));
    };
    EXPECT_FALSE(is_sound());  // nothing but masks
    for (const size_t at : {size_t{0}, row.size() / 2, row.size() - 1}) {
      row[at] = std::numeric_limits<float>::lowest();
      EXPECT_TRUE(is_sound()) << count << " " << at;
      row[at] = -kInfinity;
    }
    for (float& logit : row) {
      logit = static_cast<float>(rng() % 2000) - 1000.0f;
    }
    EXPECT_TRUE(is_sound());
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(),
          -std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
      for (const size_t at : {size_t{0}, row.size() / 2, row.size() - 1}) {
        const float good = std::exchange(row[at], bad);
        EXPECT_FALSE(is_sound()) << bad << " " << count << " " << at;
        row[at] = good;
      }
    }
    row[0] = row.back() = std::numeric_limits<float>::max();
    EXPECT_TRUE(is_sound());
  }
  EXPECT_FALSE(IsSoundRow(nullptr, 0));
}

TEST_P(LogitRowTest, MaximaAreThoseOfTheGroups) {
  std::mt19937 rng(1);
  for (const int count : kCounts) {
    for (int trial = 0; trial < 20; ++trial) {
      const WholeRow row(RandomLogits(&rng, count), 0.7f);
      for (int g = 0; g < NumGroups(count); ++g) {
        const size_t begin = static_cast<size_t>(g) * kGroupTokens;
        const size_t end = std::min(begin + kGroupTokens, row.logits.size());
        ASSERT_EQ(row.maxima[g], PlainLargest(row.logits, begin, end) / 0.7f)
            << "group " << g << " of " << count;
      }
      EXPECT_EQ(Largest(row.logits.data(), count),
                PlainLargest(row.logits, 0, row.logits.size()));
    }
  }
  EXPECT_EQ(Largest(nullptr, 0), -kInfinity);
}

TEST_P(LogitRowTest, OnlyTheGroupsAskedForAreLookedAt) {
  const std::vector<float> logits(200, 3.0f);
  std::vector<float> maxima(4 + kSlack, 7.0f);
  FindMaxima(logits.data(), 200, {1, 3}, maxima.data());
  EXPECT_EQ(maxima[0], 7.0f);
  EXPECT_EQ(maxima[1], 3.0f);
  EXPECT_EQ(maxima[2], 3.0f);
  EXPECT_EQ(maxima[3], 7.0f);
  ScaleMaxima(2.0f, {2, 3}, maxima.data());
  EXPECT_EQ(maxima[1], 3.0f);
  EXPECT_EQ(maxima[2], 1.5f);
  const LogitRow row = {logits.data(), maxima.data(), 200, 1.0f};
  EXPECT_EQ(FindScaled(row, {1, 2}, 3.0f), 64);
  EXPECT_EQ(FindScaled(row, {1, 2}, 3.0f, 64), 127);
  EXPECT_EQ(FindScaled(row, {1, 2}, 3.0f, 65), -1);
}

TEST_P(LogitRowTest, FindsTheNthIdOfAValue) {
  std::mt19937 rng(2);
  for (const int count : kCounts) {
    for (int trial = 0; trial < 20; ++trial) {
      const WholeRow row(RandomLogits(&rng, count), 1.3f);
      const float wanted =
          row.logits[rng() % row.logits.size()] / row.row.temperature;
      if (std::isnan(wanted)) continue;
      std::vector<int32_t> ids;
      for (int id = 0; id < count; ++id) {
        if (row.logits[static_cast<size_t>(id)] / 1.3f == wanted) {
          ids.push_back(id);
        }
      }
      for (size_t n = 1; n <= ids.size(); n += 1 + ids.size() / 50) {
        ASSERT_EQ(FindScaled(row.row, AllGroups(row.row), wanted,
                             static_cast<int>(n)),
                  ids[n - 1]);
      }
      EXPECT_EQ(FindScaled(row.row, AllGroups(row.row), wanted,
                           static_cast<int>(ids.size()) + 1),
                -1);
    }
  }
}

TEST_P(LogitRowTest, CollectsAllThatLiesBetween) {
  std::mt19937 rng(3);
  for (const int count : kCounts) {
    for (int trial = 0; trial < 40; ++trial) {
      const float temperature = trial % 2 == 0 ? 1.0f : 0.7f;
      const WholeRow row(RandomLogits(&rng, count), temperature);
      float lowest = row.logits[rng() % row.logits.size()] / temperature;
      float below = row.logits[rng() % row.logits.size()] / temperature;
      if (trial % 5 == 0) below = kInfinity;
      if (trial % 7 == 0) lowest = std::numeric_limits<float>::lowest();
      const int before = trial % 3;  // values that are there already
      std::vector<float> expected(static_cast<size_t>(before), 9.0f);
      std::vector<int32_t> expected_ids(static_cast<size_t>(before), 9);
      for (int id = 0; id < count; ++id) {
        const float scaled = row.logits[static_cast<size_t>(id)] / temperature;
        if (scaled >= lowest && scaled < below) {
          expected.push_back(scaled);
          expected_ids.push_back(id);
        }
      }
      for (const bool with_ids : {false, true}) {
        std::vector<float> values(row.logits.size() + kSlack, 9.0f);
        std::vector<int32_t> ids(row.logits.size() + kSlack, 9);
        const int size =
            CollectScaled(row.row, lowest, below, before, values.data(),
                          with_ids ? ids.data() : nullptr);
        values.resize(static_cast<size_t>(size));
        ids.resize(static_cast<size_t>(size));
        ASSERT_EQ(values, expected) << count << " tokens";
        if (with_ids) {
          ASSERT_EQ(ids, expected_ids) << count << " tokens";
        }
      }
    }
  }
}

}  // namespace
}  // namespace nacre::model
