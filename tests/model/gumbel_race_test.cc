// The race, against looking at every token, for every SIMD target.

#include "model/gumbel_race.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/deterministic_math.h"
#include "common/philox.h"
#include "gtest/gtest.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/model/random_rows.h"

namespace nacre::model {
namespace {

TEST(GumbelUpperBoundTest, IsAboveTheNoiseAndCloseWhereItCounts) {
  const auto check = [](uint32_t bits) {
    const float noise = GumbelFromBits(bits);
    const float bound = GumbelUpperBound(bits);
    ASSERT_GE(bound, noise) << bits;
    ASSERT_LE(bound, kMaxGumbel) << bits;
    // -ln(1 - u) nears the noise as u nears 1; the last few numbers are coarse.
    if (bits > 0xE6666666u && bits < 0xFFFFFF00u) {
      ASSERT_LT(bound, noise + 0.2f) << bits;
    }
  };
  for (uint32_t i = 0; i < 100000; ++i) {
    check(i);
    check(~i);
    check(i * 42949u);
  }
  for (int shift = 0; shift < 32; ++shift) {
    for (uint32_t i = 0; i < 8; ++i) {
      check((uint32_t{1} << shift) - i);
      check(~((uint32_t{1} << shift) - i));
    }
  }
}

using GumbelRaceTest = kernels::EveryTargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, GumbelRaceTest,
                         ::testing::ValuesIn(kernels::SupportedSimdTargets()),
                         kernels::SimdTargetName);

uint32_t NoiseOf(uint64_t seed, int position, int32_t id) {
  return NoiseBlock(
      seed, static_cast<uint32_t>(position),
      static_cast<uint32_t>(id / kTokensPerNoiseBlock),
      NoisePurpose::kSample)[static_cast<size_t>(id % kTokensPerNoiseBlock)];
}

struct Row {
  Row(std::vector<float> values, float temperature)
      : logits(std::move(values)),
        maxima(logits.size() / kGroupTokens + 1 + kSlack, 1e30f),
        row{logits.data(), maxima.data(), static_cast<int>(logits.size()),
            temperature} {
    FindMaxima(logits.data(), row.count, AllGroups(row), maxima.data());
    ScaleMaxima(temperature, AllGroups(row), maxima.data());
  }
  float scaled(int32_t id) const {
    return logits[static_cast<size_t>(id)] / row.temperature;
  }

  std::vector<float> logits;
  std::vector<float> maxima;
  LogitRow row;
};

// A race that has a certain best score.
GumbelRace RaceAt(uint64_t seed, int position, float score) {
  GumbelRace race(seed, position);
  const uint32_t bits = 0x80000000u;
  float scaled = score - GumbelFromBits(bits);
  race.Add(scaled, std::numeric_limits<int32_t>::max(), bits);
  return race;
}

// The contenders are exactly the tokens whose bound reaches the best score, for
// scores that some bound just reaches, or just does not.
TEST_P(GumbelRaceTest, ContendersAreTheTokensWhoseBoundReachesTheBestScore) {
  std::mt19937 rng(1);
  int found = 0;
  for (int trial = 0; trial < 600; ++trial) {
    const int count = Pick(rng, {1, 5, 64, 65, 300, 1000, 3000});
    const Row row(
        trial % 2 == 0 ? HardLogits(&rng, count) : RandomLogits(&rng, count),
        Pick(rng, {1.0f, 0.7f, 5.0f}));
    const uint64_t seed = uint64_t{rng()} << 32 | rng();
    const int position = static_cast<int>(rng() % 100000);
    const int32_t at = static_cast<int32_t>(rng() % row.logits.size());
    float score =
        row.scaled(at) + GumbelUpperBound(NoiseOf(seed, position, at));
    if (!std::isfinite(score)) continue;
    if (trial % 3 == 0) score = std::nextafter(score, kInfinity);
    if (trial % 5 == 0) score += Pick(rng, {-5.0f, -1.0f, 0.2f, 3.0f});
    const GumbelRace race = RaceAt(seed, position, score);
    float lowest = -kInfinity;
    if (trial % 4 == 0) lowest = row.scaled(at);
    GroupRange groups = AllGroups(row.row);
    if (trial % 6 == 0) groups.begin = groups.end / 3;
    if (trial % 7 == 0) groups.end = std::max(groups.begin, groups.end - 1);

    std::vector<int32_t> expected;
    for (int32_t id = groups.begin * kGroupTokens;
         id < std::min(row.row.count, groups.end * kGroupTokens); ++id) {
      const uint32_t bits = NoiseOf(seed, position, id);
      if (row.scaled(id) >= lowest && race.MayWin(row.scaled(id), bits)) {
        expected.push_back(id);
      }
    }
    std::vector<int32_t> actual;
    Contenders contenders;
    while (race.NextContenders(row.row, groups, lowest, &contenders)) {
      ASSERT_NE(contenders.tokens, 0u);
      for (int i = 0; i < kGroupTokens; ++i) {
        const int32_t id = contenders.group * kGroupTokens + i;
        if (id < row.row.count) {
          ASSERT_EQ(contenders.bits[i], NoiseOf(seed, position, id));
        }
        if ((contenders.tokens >> i & 1) != 0) actual.push_back(id);
      }
      groups.begin = contenders.group + 1;
    }
    ASSERT_EQ(actual, expected)
        << "trial " << trial << ", " << count << " tokens";
    found += static_cast<int>(actual.size());
  }
  EXPECT_GT(found, 1000);
}

// Every score that a group's maximum and a number can give: the quick test of a
// whole group must never lose one.
TEST_P(GumbelRaceTest, NoGroupIsSkippedWhoseBestTokenJustReaches) {
  std::mt19937 rng(2);
  for (const float level : {0.0f, 1e-30f, 3.0f, -20.0f, 700.0f, 1e5f, -3e7f}) {
    for (int trial = 0; trial < 300; ++trial) {
      const uint64_t seed = rng();
      const int32_t at = static_cast<int32_t>(rng() % 64);
      std::vector<float> logits(64, -kInfinity);
      logits[static_cast<size_t>(at)] = level;
      const Row row(logits, 1.0f);
      const float score = level + GumbelUpperBound(NoiseOf(seed, 1, at));
      const GumbelRace race = RaceAt(seed, 1, score);
      const bool reaches = race.MayWin(level, NoiseOf(seed, 1, at));
      Contenders contenders;
      ASSERT_EQ(race.NextContenders(row.row, {0, 1}, -kInfinity, &contenders),
                reaches)
          << level << " " << trial;
    }
  }
}

TEST(GumbelRaceTiesTest, KeepTheLowerId) {
  GumbelRace race(7, 3);
  race.Add(1.0f, 9, 12345u);
  EXPECT_EQ(race.top().all()[0].id, 9);
  race.Add(1.0f, 4, 12345u);
  EXPECT_EQ(race.top().all()[0].id, 4);
  race.Add(1.0f, 6, 12345u);
  EXPECT_EQ(race.top().all()[0].id, 4);
  race.Add(1.0f, 6, 12346789u);
  EXPECT_EQ(race.top().all()[0].id, 6);
  EXPECT_EQ(race.bar(), 1.0f + GumbelFromBits(12346789u));
}

TEST(TopCandidatesTest, HoldsTheBestOnceEach) {
  TopCandidates top(3);
  EXPECT_EQ(top.bar(), -kInfinity);
  top.Add(5, 1.0f);
  top.Add(9, 2.0f);
  top.Add(5, 1.0f);
  EXPECT_EQ(top.bar(), -kInfinity);
  top.Add(3, -kInfinity);
  top.Add(4, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(top.all().size(), 2u);
  top.Add(8, 1.0f);
  EXPECT_EQ(top.bar(), 1.0f);
  top.Add(2, 0.5f);
  top.Add(7, 1.0f);
  EXPECT_EQ(std::vector<Candidate>(top.all().begin(), top.all().end()),
            (std::vector<Candidate>{{9, 2.0f}, {5, 1.0f}, {7, 1.0f}}));
  top.Add(1, 3.0f);
  top.Add(9, 2.0f);
  EXPECT_EQ(std::vector<Candidate>(top.all().begin(), top.all().end()),
            (std::vector<Candidate>{{1, 3.0f}, {9, 2.0f}, {5, 1.0f}}));
}

}  // namespace
}  // namespace nacre::model
