#include "model/top_values.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "model/logit_row.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/model/random_rows.h"

namespace nacre::model {
namespace {

using TopValuesTest = kernels::EveryTargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, TopValuesTest,
                         ::testing::ValuesIn(kernels::SupportedSimdTargets()),
                         kernels::SimdTargetName);

// Sorts, and walks until the sum is reached.
TopCut PlainCut(std::vector<float> values,
                const std::function<int32_t(float)>& mass, double wanted) {
  std::sort(values.begin(), values.end(), std::greater<float>());
  TopCut cut;
  for (size_t i = 0; i < values.size(); ++i) {
    cut.num_equal = i > 0 && values[i] == values[i - 1] ? cut.num_equal + 1 : 1;
    cut.value = values[i];
    cut.mass += mass(values[i]);
    if (static_cast<double>(cut.mass) >= wanted) break;
  }
  return cut;
}

TEST_P(TopValuesTest, CutsWhereASortedListWouldBeCut) {
  std::mt19937 rng(1);
  int cases = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    const int size = Pick(rng, {1, 2, 63, 64, 65, 66, 100, 500, 3000});
    std::vector<float> values =
        trial % 2 == 0 ? HardLogits(&rng, size) : RandomLogits(&rng, size);
    std::erase_if(values, [](float v) { return !std::isfinite(v); });
    if (values.empty()) continue;
    const bool counts = rng() % 2 == 0;  // top-k
    std::map<float, int32_t> masses;
    const auto mass = [&](float value) {
      if (counts) return 1;
      const auto [it, is_new] = masses.try_emplace(value, 0);
      if (is_new) it->second = 1 + static_cast<int32_t>(rng() % (1u << 30));
      return it->second;
    };
    std::vector<float> list(values);
    std::vector<int32_t> list_masses;
    double total = 0;
    for (const float value : values) {
      list_masses.push_back(mass(value));
      total += list_masses.back();
    }
    double wanted = total * Pick(rng, {1e-9, 0.01, 0.3, 0.5, 0.9, 0.999, 1.0});
    if (counts) wanted = std::ceil(wanted);
    if (wanted <= 0) continue;
    list.resize(values.size() + kSlack, -5.0f);
    list_masses.resize(list.size(), 1);
    std::vector<float> spare(list.size());
    std::vector<int32_t> spare_masses(list.size());
    const TopCut cut = CutAtMass({list.data(), list_masses.data()},
                                 {spare.data(), spare_masses.data()},
                                 static_cast<int>(values.size()), wanted);
    const TopCut expected = PlainCut(values, mass, wanted);
    ASSERT_EQ(cut.value, expected.value) << trial << ", " << values.size();
    ASSERT_EQ(cut.num_equal, expected.num_equal) << trial;
    ASSERT_EQ(cut.mass, expected.mass) << trial;
    ++cases;
  }
  EXPECT_GT(cases, 1000);
}

}  // namespace
}  // namespace nacre::model
