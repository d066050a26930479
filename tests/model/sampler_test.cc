#include "model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/model/random_rows.h"
#include "tests/model/reference_sampler.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;

TokenHistory HistoryOf(absl::Span<const int32_t> tokens,
                       int num_prompt_tokens) {
  TokenHistory history(num_prompt_tokens);
  for (const int32_t token : tokens) history.Push(token);
  return history;
}

int32_t SampleOnce(const SamplingParams& params, std::vector<float> logits,
                   int position = 5) {
  Sampler sampler(params, static_cast<int>(logits.size()));
  return sampler.Sample(logits, position, TokenHistory(0));
}

// The same tokens on every SIMD target.
using SamplerTargetTest = kernels::EveryTargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, SamplerTargetTest,
                         ::testing::ValuesIn(kernels::SupportedSimdTargets()),
                         kernels::SimdTargetName);

TEST_P(SamplerTargetTest, EqualsTheReferenceOnRandomLogitsAndParameters) {
  std::mt19937 rng(1);
  for (int trial = 0; trial < 3000; ++trial) {
    const int vocab_size = Pick(rng, {1, 2, 5, 63, 300, 1500});
    const int vocab_limit =
        std::max(1, vocab_size - static_cast<int>(rng() % 3));
    const SamplingParams params = RandomParams(rng);
    const std::vector<float> logits = RandomLogits(&rng, vocab_size);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 9; ++i) {
      tokens.push_back(static_cast<int32_t>(rng() % vocab_size));
    }
    const int position = static_cast<int>(rng() % 100000);
    Sampler sampler(params, vocab_limit);
    EXPECT_EQ(sampler.Sample(logits, position, HistoryOf(tokens, 4)),
              ReferenceSample(params, logits, vocab_limit, position, tokens, 4))
        << "trial " << trial;
  }
}

// What FillWeights says is what is left of the reference's candidates.
TEST_P(SamplerTargetTest, FillsInTheReferencesWeights) {
  std::mt19937 rng(17);
  SamplingScratch scratch;
  TokenWeights weights;
  for (int trial = 0; trial < 2000; ++trial) {
    const int vocab_size = Pick(rng, {1, 2, 5, 63, 300, 1500});
    const SamplingParams params = RandomParams(rng);
    const std::vector<float> logits = trial % 2 == 0
                                          ? RandomLogits(&rng, vocab_size)
                                          : HardLogits(&rng, vocab_size);
    const std::vector<int32_t> tokens = {
        static_cast<int32_t>(rng() % static_cast<unsigned>(vocab_size))};
    Sampler sampler(params, vocab_size, {}, &scratch);
    sampler.FillWeights(logits, 5, HistoryOf(tokens, 0), &weights);
    ASSERT_EQ(weights.token_ids.size(), weights.weights.size());
    const std::vector<float> penalized =
        PenalizedLogits(params, logits, vocab_size, tokens, 0);
    std::vector<ReferenceCandidate> candidates;
    if (params.temperature > 0.0f) {
      candidates = FilteredCandidates(params, penalized);
    }
    if (candidates.empty() || !std::isfinite(candidates[0].logit)) {
      EXPECT_EQ(weights.token_ids.size(), 1u) << "trial " << trial;
      EXPECT_EQ(weights.token_ids[0],
                sampler.Sample(logits, 5, HistoryOf(tokens, 0)));
      continue;
    }
    const float best = candidates[0].logit;
    std::sort(candidates.begin(), candidates.end(),
              [](const ReferenceCandidate& a, const ReferenceCandidate& b) {
                return a.id < b.id;
              });
    size_t next = 0;
    for (const ReferenceCandidate& candidate : candidates) {
      const float weight = DeterministicExp(candidate.logit - best);
      if (weight <= 0.0f) continue;
      ASSERT_LT(next, weights.token_ids.size()) << "trial " << trial;
      EXPECT_EQ(weights.token_ids[next], candidate.id) << "trial " << trial;
      EXPECT_EQ(weights.weights[next], weight) << "trial " << trial;
      ++next;
    }
    EXPECT_EQ(next, weights.token_ids.size()) << "trial " << trial;
  }
}

TEST_P(SamplerTargetTest, EqualsTheReferenceOnHardRows) {
  std::mt19937 rng(5);
  SamplingScratch scratch;
  for (int trial = 0; trial < 3000; ++trial) {
    const int vocab_size = Pick(rng, {1, 63, 64, 65, 300, 1500});
    const SamplingParams params = RandomParams(rng);
    const std::vector<float> logits = HardLogits(&rng, vocab_size);
    const int position = static_cast<int>(rng() % 100000);
    Sampler sampler(params, vocab_size, {}, &scratch);
    EXPECT_EQ(sampler.Sample(logits, position, TokenHistory(0)),
              ReferenceSample(params, logits, vocab_size, position, {}, 0))
        << "trial " << trial;
  }
}

TEST_P(SamplerTargetTest, EqualsTheReferenceOverALargeVocabulary) {
  std::mt19937 rng(2);
  const int vocab_size = 20011;
  SamplingScratch scratch;
  for (int trial = 0; trial < 60; ++trial) {
    const SamplingParams params = RandomParams(rng);
    const std::vector<float> logits = trial % 3 == 0
                                          ? HardLogits(&rng, vocab_size)
                                          : RandomLogits(&rng, vocab_size);
    Sampler sampler(params, vocab_size, {}, &scratch);
    EXPECT_EQ(sampler.Sample(logits, trial, TokenHistory(0)),
              ReferenceSample(params, logits, vocab_size, trial, {}, 0))
        << "trial " << trial;
  }
}

// Flat logits are where almost every token needs its noise looked at, and
// where scores come close: the pruning must not lose one.
TEST_P(SamplerTargetTest, PruningNeverLosesTheWinner) {
  SamplingParams params;
  params.temperature = 1.0f;
  std::mt19937 rng(3);
  std::vector<float> logits(2500);
  SamplingScratch scratch;
  for (int trial = 0; trial < 600; ++trial) {
    for (float& logit : logits) {
      logit = static_cast<float>(rng() % 8) * 0.25f;
    }
    params.seed = rng();
    Sampler sampler(params, 2500, {}, &scratch);
    ASSERT_EQ(sampler.Sample(logits, trial, TokenHistory(0)),
              ReferenceSample(params, logits, 2500, trial, {}, 0));
  }
}

// The best of a row for every number of places, with their scores.
TEST_P(SamplerTargetTest, FindsTheReferencesBestTokens) {
  std::mt19937 rng(23);
  SamplingScratch scratch;
  int several = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const int vocab_size = Pick(rng, {1, 2, 7, 63, 64, 65, 300, 1500});
    const SamplingParams params = RandomParams(rng);
    const std::vector<float> logits = trial % 2 == 0
                                          ? RandomLogits(&rng, vocab_size)
                                          : HardLogits(&rng, vocab_size);
    const std::vector<int32_t> tokens = {
        static_cast<int32_t>(rng() % static_cast<unsigned>(vocab_size))};
    const int position = static_cast<int>(rng() % 100000);
    Sampler sampler(params, vocab_size, {}, &scratch);
    std::vector<Candidate> expected =
        ReferenceTop(params, logits, vocab_size, position, tokens, 0);
    const int places = 1 + static_cast<int>(rng() % kMaxCandidates);
    std::vector<Candidate> top(static_cast<size_t>(places));
    const int count = sampler.SampleTop(logits, position, HistoryOf(tokens, 0),
                                        absl::MakeSpan(top));
    ASSERT_GE(count, 1);
    top.resize(static_cast<size_t>(count));
    EXPECT_EQ(top[0].id,
              sampler.Sample(logits, position, HistoryOf(tokens, 0)));
    // Beside an infinite value there is nothing to race for.
    if (!expected.empty() && !std::isfinite(expected[0].score)) continue;
    if (expected.empty()) expected.emplace_back();
    expected.resize(std::min(expected.size(), static_cast<size_t>(places)));
    several += expected.size() > 1 ? 1 : 0;
    ASSERT_EQ(top, expected) << "trial " << trial << ", " << places
                             << " places, " << vocab_size << " tokens";
  }
  EXPECT_GT(several, 1000);
}

// Samplers of different vocabularies and parameters take turns in one memory.
TEST(SamplerTest, SharedScratchCarriesNothingFromOneToTheNext) {
  std::mt19937 rng(8);
  SamplingScratch scratch;
  for (int trial = 0; trial < 500; ++trial) {
    const int vocab_size = Pick(rng, {3, 64, 700, 1500});
    const SamplingParams params = RandomParams(rng);
    const std::vector<float> logits = RandomLogits(&rng, vocab_size);
    Sampler shares(params, vocab_size, {}, &scratch);
    Sampler alone(params, vocab_size);
    const TokenHistory history = HistoryOf({1, 2, 2}, 1);
    ASSERT_EQ(shares.Sample(logits, trial, history),
              alone.Sample(logits, trial, history))
        << trial;
  }
}

// The largest chi-square statistic that 1 in 10,000 fair samples exceeds
// (Wilson and Hilferty's approximation).
double CriticalChiSquare(int degrees) {
  const double z = 3.719;
  const double v = 2.0 / (9.0 * degrees);
  return degrees * std::pow(1 - v + z * std::sqrt(v), 3);
}

void ExpectFollowsSoftmax(const SamplingParams& base,
                          const std::vector<float>& logits) {
  const auto kept = FilteredCandidates(base, logits);
  double total = 0;
  std::vector<double> expected(logits.size());
  for (const auto& candidate : kept) {
    expected[static_cast<size_t>(candidate.id)] = std::exp(candidate.logit);
    total += std::exp(candidate.logit);
  }
  constexpr int kDraws = 40000;
  std::vector<int> counts(logits.size());
  SamplingParams params = base;
  for (int i = 0; i < kDraws; ++i) {
    // Both ways noise differs: by seed and by position.
    params.seed = base.seed + static_cast<uint64_t>(i / 200);
    Sampler sampler(params, static_cast<int>(logits.size()));
    ++counts[static_cast<size_t>(
        sampler.Sample(logits, i % 200, TokenHistory(0)))];
  }
  double statistic = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (expected[id] == 0) {
      EXPECT_EQ(counts[id], 0) << "drew " << id << ", which was filtered out";
      continue;
    }
    const double mean = kDraws * expected[id] / total;
    statistic += (counts[id] - mean) * (counts[id] - mean) / mean;
  }
  ASSERT_GE(kept.size(), 2u);
  EXPECT_LT(statistic, CriticalChiSquare(static_cast<int>(kept.size()) - 1));
}

TEST(SamplerTest, DrawsFollowTheSoftmaxOfTheFilteredLogits) {
  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  std::vector<float> logits(13);
  for (float& logit : logits) logit = normal(rng);
  SamplingParams params;
  params.seed = 1;
  params.temperature = 1.0f;
  ExpectFollowsSoftmax(params, logits);
  params.temperature = 0.6f;
  ExpectFollowsSoftmax(params, logits);
  params.temperature = 1.0f;
  params.top_k = 5;
  ExpectFollowsSoftmax(params, logits);
  params.top_p = 0.8f;
  ExpectFollowsSoftmax(params, logits);
  params.top_k = 0;
  ExpectFollowsSoftmax(params, logits);
  params.top_p = 1.0f;
  params.min_p = 0.2f;
  ExpectFollowsSoftmax(params, logits);
}

TEST(SamplerTest, IsAPureFunctionOfSeedAndPosition) {
  SamplingParams params;
  params.temperature = 1.0f;
  const std::vector<float> logits(1000, 0.0f);
  params.seed = 1;
  const int32_t token = SampleOnce(params, logits, 7);
  EXPECT_EQ(SampleOnce(params, logits, 7), token);
  EXPECT_NE(SampleOnce(params, logits, 8), token);
  params.seed = uint64_t{1} << 32 | 1;  // the high half counts too
  EXPECT_NE(SampleOnce(params, logits, 7), token);
}

TEST(SamplerTest, GreedyKeepsTheLowerIdOnTies) {
  EXPECT_EQ(SampleOnce({}, {1, 3, 2, 3, 3}), 1);
  EXPECT_EQ(SampleOnce({}, {-0.0f, 0.0f}), 0);
  std::vector<float> logits(100, -5.0f);
  logits[98] = logits[31] = -1.0f;
  EXPECT_EQ(SampleOnce({}, logits), 31);
}

TEST(SamplerTest, FiltersKeepTheLowerIdOnTies) {
  SamplingParams params;
  params.temperature = 1.0f;
  std::vector<float> logits(3000, 1.0f);
  params.top_k = 1;
  EXPECT_EQ(SampleOnce(params, logits), 0);
  params.top_k = 0;
  params.top_p = 1e-4f;  // less than one token's share
  EXPECT_EQ(SampleOnce(params, logits), 0);
  logits[2000] = 1.5f;
  params.top_p = 1.0f;
  params.top_k = 2;
  for (int position = 0; position < 50; ++position) {
    const int32_t token = SampleOnce(params, logits, position);
    EXPECT_TRUE(token == 2000 || token == 0) << token;
  }
}

// Different logits may be equal once divided: they tie, and the lower id stays
// even if its logit was the smaller one.
TEST(SamplerTest, TiesAreThoseOfTheDividedLogits) {
  SamplingParams params;
  params.temperature = 0.75f;
  std::vector<float> logits = {1.75f};
  for (int i = 0; i < 5; ++i) {
    logits.push_back(std::nextafter(logits.back(), 2.0f));
  }
  int num_ties = 0;
  for (size_t i = 0; i + 1 < logits.size(); ++i) {
    num_ties += logits[i] / 0.75f == logits[i + 1] / 0.75f;
  }
  ASSERT_GT(num_ties, 0);
  for (size_t count = 1; count <= logits.size(); ++count) {
    const std::vector<float> some(logits.begin(), logits.begin() + count);
    for (const auto& [top_k, top_p] :
         std::vector<std::pair<int, float>>{{1, 1.0f}, {0, 1e-3f}, {2, 0.5f}}) {
      params.top_k = top_k;
      params.top_p = top_p;
      for (int position = 0; position < 20; ++position) {
        EXPECT_EQ(SampleOnce(params, some, position),
                  ReferenceSample(params, some, static_cast<int>(count),
                                  position, {}, 0))
            << count << " tokens, top-k " << top_k;
      }
    }
  }
}

TEST(SamplerTest, NeverDrawsNaNOrIdsPastTheLimit) {
  SamplingParams params;
  for (const float temperature : {0.0f, 1.0f}) {
    params.temperature = temperature;
    EXPECT_EQ(SampleOnce(params, {kNaN, kNaN, -9, kNaN}), 2);
    EXPECT_EQ(SampleOnce(params, {kNaN, -kInfinity, kNaN}), 0);
    EXPECT_EQ(SampleOnce(params, {0, kInfinity, 1}), 1);
    const std::vector<float> logits = {0, 1, 50};
    Sampler sampler(params, 2);
    EXPECT_LT(sampler.Sample(logits, 0, TokenHistory(0)), 2);
  }
}

TEST(SamplerTest, ATemperatureTooSmallToDivideByIsGreedy) {
  SamplingParams params;
  params.temperature = 1e-40f;
  for (int position = 0; position < 20; ++position) {
    EXPECT_EQ(SampleOnce(params, {3, 4, 5, 4.9999f}, position), 2);
  }
}

TEST(SamplerTest, ABiasMovesTheLogitBeforeThePenalties) {
  SamplingParams params;
  params.logit_bias = {{2, 3.0f}, {0, -100.0f}, {99, 5.0f}};  // 99: no such id
  EXPECT_EQ(SampleOnce(params, {4.0f, 2.0f, 1.5f}), 2);
  // 1.5 + 3 is halved by the penalty: below 2.4, where 1.5 / 2 + 3 is not.
  params.repetition_penalty = 2.0f;
  Sampler sampler(params, 3);
  const std::vector<float> logits = {4.0f, 2.4f, 1.5f};
  EXPECT_EQ(sampler.Sample(logits, 5, HistoryOf({2}, 1)), 1);
}

TEST(SamplerTest, ABiasEqualsBiasedLogitsForEveryParameter) {
  std::mt19937 rng(7);
  for (int trial = 0; trial < 300; ++trial) {
    SamplingParams params = RandomParams(rng);
    std::vector<float> logits = RandomLogits(&rng, 50);
    Sampler plain(params, 50);
    for (int32_t id = 0; id < 50; id += 1 + static_cast<int32_t>(rng() % 9)) {
      params.logit_bias.emplace_back(id, static_cast<float>(rng() % 200) - 100);
    }
    Sampler biased(params, 50);
    const TokenHistory history = HistoryOf({1, 2, 3, 2}, 2);
    const int32_t got = biased.Sample(logits, trial, history);
    for (const auto& [id, bias] : params.logit_bias) logits[id] += bias;
    ASSERT_EQ(got, plain.Sample(logits, trial, history)) << trial;
  }
}

TEST(SamplerTest, NoEndBeforeItsPosition) {
  const std::vector<float> logits = {1.0f, 9.0f, 8.0f, 2.0f};
  for (const float temperature : {0.0f, 0.01f}) {
    SamplingParams params;
    params.temperature = temperature;
    Sampler sampler(params, 4, {.min_position = 6, .token_ids = {1, 2, 77}});
    EXPECT_EQ(sampler.Sample(logits, 5, TokenHistory(0)), 3);
    EXPECT_EQ(sampler.Sample(logits, 6, TokenHistory(0)), 1);
  }
}

TEST(SamplerTest, AForbiddenEndIsDrawnByNoFilter) {
  std::mt19937 rng(11);
  for (int trial = 0; trial < 300; ++trial) {
    const SamplingParams params = RandomParams(rng);
    std::vector<float> logits(20, 1.0f);
    for (float& logit : logits) logit = static_cast<float>(rng() % 100) * 0.1f;
    Sampler sampler(params, 20, {.min_position = 1 << 20, .token_ids = {0, 7}});
    const int32_t id = sampler.Sample(logits, trial, TokenHistory(0));
    ASSERT_TRUE(id != 0 && id != 7) << trial;
  }
}

TEST(SamplerTest, PenaltiesFollowTheirFormulas) {
  // Token 0: prompt only; 1: generated twice; 2: both; 3: neither.
  const std::vector<int32_t> tokens = {0, 2, 1, 2, 1};
  const std::vector<float> logits = {4.0f, 4.0f, -4.0f, 4.0f};
  SamplingParams params;
  params.repetition_penalty = 2.0f;
  params.frequency_penalty = 0.25f;
  params.presence_penalty = 0.125f;
  EXPECT_THAT(PenalizedLogits(params, logits, 4, tokens, 2),
              ::testing::ElementsAre(2.0f, 2.0f - 0.5f - 0.125f,
                                     -8.0f - 0.25f - 0.125f, 4.0f));
  // And the sampler applies them: without, greedy is 0; then it is 3.
  EXPECT_EQ(SampleOnce({}, logits), 0);
  Sampler sampler(params, 4);
  EXPECT_EQ(sampler.Sample(logits, 5, HistoryOf(tokens, 2)), 3);
}

TEST(TokenHistoryTest, TruncateUndoesPush) {
  TokenHistory history = HistoryOf(std::vector<int32_t>{5, 6, 5, 6, 7}, 2);
  EXPECT_EQ(history.length(), 5);
  EXPECT_EQ(history.counts().at(5).prompt, 1);
  EXPECT_EQ(history.counts().at(5).generated, 1);
  EXPECT_EQ(history.counts().at(7).generated, 1);
  history.Truncate(9);
  EXPECT_EQ(history.length(), 5);
  history.Truncate(2);
  EXPECT_EQ(history.counts().size(), 2u);
  EXPECT_EQ(history.counts().at(6).prompt, 1);
  EXPECT_EQ(history.counts().at(6).generated, 0);
  EXPECT_EQ(history.counts().at(5).prompt, 1);
  EXPECT_EQ(history.counts().at(5).generated, 0);
  history.Truncate(1);
  history.Push(9);  // position 1 is still a prompt position
  EXPECT_EQ(history.counts().at(9).prompt, 1);
  EXPECT_FALSE(history.counts().contains(6));
}

TEST(SamplingParamsTest, NeutralAndExtremeValuesAreValid) {
  EXPECT_TRUE(ValidateSamplingParams({}).ok());
  SamplingParams params;
  params.temperature = 2.0f;
  params.top_k = std::numeric_limits<int32_t>::max();
  params.top_p = 1e-6f;
  params.min_p = 1.0f;
  params.frequency_penalty = -2.0f;
  params.presence_penalty = 2.0f;
  EXPECT_TRUE(ValidateSamplingParams(params).ok());
}

TEST(SamplingParamsTest, NamesTheFieldAndTheValueThatIsRefused) {
  const auto expect_refused = [](const char* field, float value,
                                 float SamplingParams::*member) {
    SamplingParams params;
    params.*member = value;
    const absl::Status status = ValidateSamplingParams(params);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
        << field << " " << value;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string(field) + " is "));
  };
  for (const float value : {-0.1f, kNaN, kInfinity, -kInfinity}) {
    expect_refused("temperature", value, &SamplingParams::temperature);
  }
  for (const float value : {0.0f, -0.5f, 1.01f, kNaN, kInfinity}) {
    expect_refused("top_p", value, &SamplingParams::top_p);
  }
  for (const float value : {-0.01f, 1.01f, kNaN}) {
    expect_refused("min_p", value, &SamplingParams::min_p);
  }
  for (const float value : {0.0f, -1.0f, kNaN, kInfinity}) {
    expect_refused("repetition_penalty", value,
                   &SamplingParams::repetition_penalty);
  }
  for (const float value : {-2.1f, 2.1f, kNaN}) {
    expect_refused("frequency_penalty", value,
                   &SamplingParams::frequency_penalty);
    expect_refused("presence_penalty", value,
                   &SamplingParams::presence_penalty);
  }
  SamplingParams params;
  params.top_k = -3;
  EXPECT_THAT(ValidateSamplingParams(params).ToString(),
              HasSubstr("top_k is -3"));
}

}  // namespace
}  // namespace nacre::model
