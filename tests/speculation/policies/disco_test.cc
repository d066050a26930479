#include "speculation/policies/disco.h"

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/speculation/policies/policy_testing.h"

namespace nacre::speculation {
namespace {

using ::testing::HasSubstr;

// Two hidden units: one sees p_1 and the index, one the entropy.
DiscoWeights Weights() {
  DiscoWeights weights;
  weights.hidden_weight.assign(2 * kDiscoInputs, 0.0f);
  weights.hidden_weight[0] = 2.0f;
  weights.hidden_weight[kTopProbabilities + 1] = 1000.0f;
  weights.hidden_weight[kDiscoInputs + kTopProbabilities] = 1.0f;
  weights.hidden_bias = {-1.0f, 0.5f};
  weights.output_weight = {3.0f, -1.0f};
  weights.output_bias = 0.25f;
  return weights;
}

struct Features {
  std::array<float, kTopProbabilities> top = {};
  float entropy = 0.0f;
  int generated = 0;

  DraftRow Row() const {
    DraftRow row;
    row.top_probabilities = top;
    row.entropy = entropy;
    row.generated = generated;
    return row;
  }
};

// Decides whether the network's probability is at least `threshold`.
bool Continues(const Features& features, double threshold) {
  const DiscoWeights weights = Weights();
  return MakeDiscoPolicy(&weights, threshold)->Decide(features.Row()) ==
         LengthDecision::kContinue;
}

TEST(DiscoPolicy, ComputesItsNetwork) {
  // hidden: relu(2 * 0.9 - 1 + 1000 * 2 / 1000) = 2.8, relu(0.7 + 0.5) = 1.2;
  // 0.25 + 3 * 2.8 - 1.2 = 7.45.
  const Features sure = {{0.9f}, 0.7f, 2};
  const double probability = 1.0 / (1.0 + std::exp(-7.45));
  EXPECT_TRUE(Continues(sure, probability - 1e-6));
  EXPECT_FALSE(Continues(sure, probability + 1e-6));
}

TEST(DiscoPolicy, NegativeUnitsAreOff) {
  // hidden: relu(2 * 0.2 - 1) = 0, relu(1.5 + 0.5) = 2; 0.25 - 2 = -1.75.
  const Features unsure = {{0.2f}, 1.5f, 0};
  const double probability = 1.0 / (1.0 + std::exp(1.75));
  EXPECT_TRUE(Continues(unsure, probability - 1e-6));
  EXPECT_FALSE(Continues(unsure, probability + 1e-6));
}

// The same number without a policy, to train or judge a network by.
TEST(DiscoPolicy, SaysItsProbability) {
  std::array<float, kDiscoInputs> inputs = {0.9f};
  inputs[kTopProbabilities] = 0.7f;
  inputs[kTopProbabilities + 1] = 2 * kDiscoIndexScale;
  EXPECT_NEAR(DiscoProbability(Weights(), inputs),
              1.0 / (1.0 + std::exp(-7.45)), 1e-6);
}

// The index is of the token in the answer, not in its chunk.
TEST(DiscoPolicy, TheIndexIsThatOfTheAnswer) {
  const DiscoWeights weights = Weights();
  const auto policy = MakeDiscoPolicy(&weights, 0.5);
  Features features = {{0.1f}, 0.0f, 0};
  EXPECT_EQ(policy->Decide(features.Row()), LengthDecision::kStop);
  features.generated = 5;
  DraftRow row = features.Row();
  row.chunk_length = 0;
  EXPECT_EQ(policy->Decide(row), LengthDecision::kContinue);
}

TEST(DiscoPolicy, ReadsTheDistributionNotTheToken) {
  const DiscoWeights weights = Weights();
  const auto policy = MakeDiscoPolicy(&weights, 0.5);
  EXPECT_FALSE(policy->looks_at_token());
  EXPECT_EQ(policy->needs(),
            (RowNeeds{.entropy = true, .top_probabilities = true}));
}

TEST(DiscoWeights, BadOnesAreRefused) {
  EXPECT_TRUE(Validate(Weights()).ok());
  DiscoWeights weights;
  EXPECT_THAT(std::string(Validate(weights).message()),
              HasSubstr("hidden_bias has 0 values"));
  weights = Weights();
  weights.hidden_weight.pop_back();
  EXPECT_THAT(std::string(Validate(weights).message()),
              HasSubstr("hidden_weight 23"));
  weights = Weights();
  weights.output_weight.push_back(1.0f);
  EXPECT_EQ(Validate(weights).code(), absl::StatusCode::kInvalidArgument);
  weights = Weights();
  weights.output_bias = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(std::string(Validate(weights).message()),
              HasSubstr("not a finite number"));
  for (std::vector<float> DiscoWeights::*field :
       {&DiscoWeights::hidden_weight, &DiscoWeights::hidden_bias,
        &DiscoWeights::output_weight}) {
    weights = Weights();
    (weights.*field)[1] = std::numeric_limits<float>::infinity();
    EXPECT_THAT(std::string(Validate(weights).message()),
                HasSubstr("not a finite number"));
  }
}

}  // namespace
}  // namespace nacre::speculation
