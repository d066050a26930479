// Sampling follows the model: the frequencies of three generated tokens against
// their exact probabilities under the target, for every method, with drafts
// that are good, poor and adversarial. And, seed by seed, every method equals
// the target alone.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/testing/chi_square.h"
#include "tests/testing/in_process_pair.h"
#include "tests/testing/table_model.h"

namespace nacre {
namespace {

using speculation::Method;
using testing::ChiSquareDeviation;
using testing::GenerateAlone;
using testing::InProcessPair;
using testing::kCriticalDeviation;
using testing::PairRequest;
using testing::TableModel;
using testing::TableModelOptions;

constexpr int kVocabulary = 16;
constexpr int kTokens = 3;
constexpr int kSamples = 20000;
const std::vector<int32_t> kPrompt = {3, 7};

struct Draft {
  const char* name;
  float disturbance;
  bool adversarial;
};
constexpr Draft kDrafts[] = {{"equal", 0.0f, false},
                             {"good", 0.4f, false},
                             {"poor", 3.0f, false},
                             {"adversarial", 0.0f, true}};

TableModelOptions TargetOptions() {
  TableModelOptions options;
  options.vocab_size = kVocabulary;
  options.seed = 42;
  options.scale = 1.5f;
  return options;
}

TableModelOptions DraftOptions(const Draft& draft) {
  TableModelOptions options = TargetOptions();
  options.disturbance = draft.disturbance;
  options.adversarial = draft.adversarial;
  return options;
}

std::vector<double> Softmax(const std::vector<float>& logits) {
  std::vector<double> p(logits.size());
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += p[i] = std::exp(logits[i]);
  for (double& value : p) value /= sum;
  return p;
}

// Exact probability of each continuation of three tokens, [16 * 16 * 16].
std::vector<double> ExactProbabilities(const TableModel& target) {
  std::vector<double> exact;
  const auto first = Softmax(target.Logits(kPrompt));
  for (int a = 0; a < kVocabulary; ++a) {
    const auto second = Softmax(target.Logits({kPrompt[1], a}));
    for (int b = 0; b < kVocabulary; ++b) {
      const auto third = Softmax(target.Logits({a, b}));
      for (int c = 0; c < kVocabulary; ++c) {
        exact.push_back(first[a] * second[b] * third[c]);
      }
    }
  }
  return exact;
}

class SamplingDistributionTest : public ::testing::TestWithParam<Draft> {};

TEST_P(SamplingDistributionTest, EveryMethodFollowsTheTargetAndEqualsItAlone) {
  TableModel target(TargetOptions());
  TableModel alone(TargetOptions());
  TableModel draft(DraftOptions(GetParam()));
  const std::vector<double> exact = ExactProbabilities(target);
  InProcessPair pair(&target, &draft, /*seed=*/11);
  for (Method method :
       {Method::kAr, Method::kSd, Method::kPearl, Method::kAsync}) {
    std::vector<int> counts(exact.size(), 0);
    int64_t verified = 0, accepted = 0;
    for (int sample = 0; sample < kSamples; ++sample) {
      PairRequest request;
      request.prompt = kPrompt;
      request.max_tokens = kTokens;
      request.sampling.temperature = 1.0f;
      request.sampling.seed = static_cast<uint64_t>(sample);
      request.method = method;
      request.window = 1 + sample % 3;
      const std::vector<int32_t> tokens = pair.Generate(request);
      ASSERT_EQ(tokens, GenerateAlone(alone, request))
          << MethodName(method) << " seed " << sample;
      ++counts[(tokens[0] * kVocabulary + tokens[1]) * kVocabulary + tokens[2]];
      verified += pair.stats().verified;
      accepted += pair.stats().accepted;
    }
    EXPECT_LT(ChiSquareDeviation(exact, counts), kCriticalDeviation)
        << MethodName(method);
    if (method == Method::kAr) continue;
    EXPECT_GT(verified, kSamples / 10) << MethodName(method);
    if (std::string(GetParam().name) == "equal") {
      EXPECT_EQ(verified, accepted) << MethodName(method);
    }
    if (std::string(GetParam().name) == "adversarial") {
      EXPECT_LT(accepted, verified / 3) << MethodName(method);
    }
  }
}

// The ratio test: the law alone, whatever the policy; filters as well.
class RatioDistributionTest : public ::testing::TestWithParam<Draft> {};

TEST_P(RatioDistributionTest, FollowsTheTargetWithEveryMethodAndPolicy) {
  TableModel target(TargetOptions());
  TableModel draft(DraftOptions(GetParam()));
  const std::vector<double> exact = ExactProbabilities(target);
  InProcessPair pair(&target, &draft, /*seed=*/12);
  for (Method method : {Method::kSd, Method::kPearl, Method::kAsync}) {
    for (const char* policy :
         {"", "heuristic:start=2", "svip:h=0.5", "beta-ts", "cali-ts"}) {
      std::vector<int> counts(exact.size(), 0);
      int64_t verified = 0;
      int64_t accepted = 0;
      for (int sample = 0; sample < kSamples / 2; ++sample) {
        PairRequest request;
        request.prompt = kPrompt;
        request.max_tokens = kTokens;
        request.sampling.temperature = 1.0f;
        request.sampling.seed = static_cast<uint64_t>(sample);
        request.method = method;
        request.window = 1 + sample % 3;
        request.verification = speculation::Verification::kRatio;
        request.policy = policy;
        const std::vector<int32_t> tokens = pair.Generate(request);
        ++counts[static_cast<size_t>(
            (tokens[0] * kVocabulary + tokens[1]) * kVocabulary + tokens[2])];
        verified += pair.stats().verified;
        accepted += pair.stats().accepted;
      }
      EXPECT_LT(ChiSquareDeviation(exact, counts), kCriticalDeviation)
          << MethodName(method) << " " << policy;
      EXPECT_GT(verified, kSamples / 20) << MethodName(method);
      if (std::string(GetParam().name) == "equal" && method == Method::kSd) {
        EXPECT_EQ(verified, accepted);
      }
      if (std::string(GetParam().name) == "adversarial") {
        EXPECT_LT(accepted, verified / 2) << MethodName(method);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Drafts, RatioDistributionTest,
                         ::testing::ValuesIn(kDrafts), [](const auto& info) {
                           return std::string(info.param.name);
                         });

// At temperature 0 it accepts what exact match does.
TEST(RatioDistributionTest, IsGreedyAtTemperatureZero) {
  TableModel target(TargetOptions());
  TableModel alone(TargetOptions());
  TableModel draft(DraftOptions(kDrafts[1]));
  InProcessPair pair(&target, &draft, /*seed=*/13);
  for (Method method : {Method::kSd, Method::kPearl, Method::kAsync}) {
    for (int32_t first = 0; first < kVocabulary; ++first) {
      PairRequest request;
      request.prompt = {first, 2};
      request.max_tokens = 40;
      request.method = method;
      request.window = 3;
      request.verification = speculation::Verification::kRatio;
      EXPECT_EQ(pair.Generate(request), GenerateAlone(alone, request));
    }
  }
}

TEST(ChiSquareTest, NoticesADistributionThatIsOffByAFewPercent) {
  TableModel target(TargetOptions());
  TableModelOptions off = TargetOptions();
  off.disturbance = 0.1f;
  TableModel wrong(off);
  const std::vector<double> exact = ExactProbabilities(target);
  std::vector<int> counts(exact.size(), 0);
  for (int sample = 0; sample < kSamples; ++sample) {
    PairRequest request;
    request.prompt = kPrompt;
    request.max_tokens = kTokens;
    request.sampling.temperature = 1.0f;
    request.sampling.seed = static_cast<uint64_t>(sample);
    const std::vector<int32_t> tokens = GenerateAlone(wrong, request);
    ++counts[(tokens[0] * kVocabulary + tokens[1]) * kVocabulary + tokens[2]];
  }
  EXPECT_GT(ChiSquareDeviation(exact, counts), kCriticalDeviation);
}

INSTANTIATE_TEST_SUITE_P(Drafts, SamplingDistributionTest,
                         ::testing::ValuesIn(kDrafts), [](const auto& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace nacre
