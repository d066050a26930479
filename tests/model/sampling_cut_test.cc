// Where top-k and top-p cut a row, against sorting it.

#include "model/sampling_cut.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "model/probability_mass.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/model/random_rows.h"
#include "tests/model/reference_sampler.h"

namespace nacre::model {
namespace {

using SamplingCutTest = kernels::EveryTargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, SamplingCutTest,
                         ::testing::ValuesIn(kernels::SupportedSimdTargets()),
                         kernels::SimdTargetName);

TEST_P(SamplingCutTest, KeepsWhatTheReferenceKeeps) {
  std::mt19937 rng(1);
  int cases = 0;
  for (int trial = 0; trial < 1200; ++trial) {
    const int count = Pick(rng, {1, 2, 63, 64, 300, 1500, 4100});
    const std::vector<float> logits =
        trial % 3 == 0 ? HardLogits(&rng, count) : RandomLogits(&rng, count);
    SamplingParams params;
    params.temperature = Pick(rng, {0.3f, 1.0f, 1.0f, 1.7f, 50.0f});
    params.top_k = Pick(rng, {0, 0, 1, 2, 7, 40, 64, 100, 1000});
    params.top_p = Pick(rng, {1.0f, 1e-6f, 0.3f, 0.9f, 0.95f, 0.999f});
    SamplingScratch scratch;
    scratch.Reserve(count);
    const LogitRow row = {logits.data(), scratch.maxima.data(), count,
                          params.temperature};
    const double sum = FindMaximaAndEstimateSum(
        logits.data(), count, params.temperature, scratch.maxima.data());
    ScaleMaxima(params.temperature, AllGroups(row), scratch.maxima.data());
    const float best = Largest(row.maxima, NumGroups(count));
    if (!std::isfinite(best)) continue;
    ++cases;
    std::vector<bool> expected(logits.size(), false);
    for (const ReferenceCandidate& kept : FilteredCandidates(params, logits)) {
      expected[static_cast<size_t>(kept.id)] = true;
    }
    for (const double estimate : {0.0, sum}) {
      const SamplingCut cut = FindCut(params, row, best, estimate, &scratch);
      for (int32_t id = 0; id < count; ++id) {
        const size_t i = static_cast<size_t>(id);
        const float scaled = logits[i] / params.temperature;
        if (!std::isfinite(scaled)) continue;  // never drawn
        ASSERT_EQ(cut.Keeps(scaled, id), expected[i])
            << "trial " << trial << ", id " << id << " of " << count
            << ", top-k " << params.top_k << ", top-p " << params.top_p;
      }
    }
  }
  EXPECT_GT(cases, 800);
}

// Where the total decides: 1.5 of 3 equal tokens and the like, for which no
// estimate is good enough.
TEST_P(SamplingCutTest, AnEstimateThatDoesNotTellIsNotUsed) {
  for (int count = 2; count < 200; ++count) {
    std::vector<float> logits(static_cast<size_t>(count), 2.0f);
    SamplingScratch scratch;
    scratch.Reserve(count);
    const LogitRow row = {logits.data(), scratch.maxima.data(), count, 1.0f};
    SamplingParams params;
    params.temperature = 1.0f;
    for (int kept = 1; kept < count; kept += 1 + count / 8) {
      // A hair below and above the share of `kept` tokens.
      const float share = static_cast<float>(kept) / static_cast<float>(count);
      for (const float top_p :
           {std::nextafter(share, 0.0f), std::nextafter(share, 1.0f)}) {
        params.top_p = top_p;
        const double sum = FindMaximaAndEstimateSum(logits.data(), count, 1.0f,
                                                    scratch.maxima.data());
        const SamplingCut cut = FindCut(params, row, 2.0f, sum, &scratch);
        const auto expected = FilteredCandidates(params, logits);
        ASSERT_EQ(cut.last_id, expected.back().id) << count << " " << kept;
      }
    }
  }
}

}  // namespace
}  // namespace nacre::model
