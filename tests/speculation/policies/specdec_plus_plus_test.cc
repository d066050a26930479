#include "speculation/policies/specdec_plus_plus.h"

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

// One value in, its logit out: a hidden state that says the probability.
AcceptanceHead Transparent() {
  AcceptanceHead head;
  head.block = {0.0f};
  head.block_bias = {0.0f};
  head.output = {0.0f, 1.0f};
  head.output_bias = {0.0f, 0.0f};
  return head;
}

std::vector<float> HiddenOf(double probability) {
  return {static_cast<float>(std::log(probability / (1.0 - probability)))};
}

// How long a chunk gets whose i-th row judges the token before with
// probabilities[i]; the first row judges nothing.
int Length(const std::vector<double>& probabilities,
           const SpecDecPlusPlusOptions& options, int max = 20) {
  const AcceptanceHead head = Transparent();
  TurnTaker turns(MakeSpecDecPlusPlusPolicy(&head, options), max);
  std::vector<float> hidden;
  return turns.Draft([&](int i) {
    hidden = HiddenOf(probabilities.at(static_cast<size_t>(i)));
    DraftRow row;
    row.draft_hidden = hidden;
    return row;
  });
}

// Rejections 0, 0.1, 0.19, 0.352.
TEST(SpecDecPlusPlusPolicy, StopsWhereSomeTokenIsLikelyWrong) {
  EXPECT_EQ(Length({0.01, 0.9, 0.9, 0.8, 0.9}, {.threshold = 0.3}), 4);
  EXPECT_EQ(Length({0.01, 0.9, 0.9, 0.9, 0.9}, {.threshold = 0.3}), 5);
}

TEST(SpecDecPlusPlusPolicy, KeepsItsBounds) {
  const std::vector<double> hopeless(40, 1e-6);
  EXPECT_EQ(Length(hopeless, {.threshold = 0.7, .min_length = 2}), 2);
  EXPECT_EQ(Length(hopeless, {.threshold = 0.7, .min_length = 5}), 5);
  const std::vector<double> sure(40, 1.0 - 1e-9);
  EXPECT_EQ(Length(sure, {.threshold = 0.7, .min_length = 2}), 20);
}

TEST(SpecDecPlusPlusPolicy, TheBlockIsAppliedAgainAndAgain) {
  AcceptanceHead head;
  head.num_layers = 3;
  head.block = {0.5f, -0.25f, 0.125f, 1.0f};
  head.block_bias = {0.1f, -0.2f};
  head.output = {0.3f, -0.4f, 0.7f, 0.6f};
  head.output_bias = {0.05f, -0.15f};
  double x0 = 1.5;
  double x1 = -0.5;
  const auto silu = [](double z) { return z / (1.0 + std::exp(-z)); };
  for (int layer = 0; layer < 3; ++layer) {
    const double z0 = 0.5 * x0 - 0.25 * x1 + 0.1;
    const double z1 = 0.125 * x0 + x1 - 0.2;
    x0 += silu(z0);
    x1 += silu(z1);
  }
  const double rejected = 0.3 * x0 - 0.4 * x1 + 0.05;
  const double accepted = 0.7 * x0 + 0.6 * x1 - 0.15;
  EXPECT_NEAR(head.Accepted({1.5f, -0.5f}),
              std::exp(accepted) / (std::exp(accepted) + std::exp(rejected)),
              1e-6);
}

// Under overlap the product runs over all that is unverified, whatever chunk it
// belongs to; a verdict takes the verified ones out.
TEST(SpecDecPlusPlusPolicy, TheProductOutlivesAChunk) {
  const AcceptanceHead head = Transparent();
  DraftLength length(
      MakeSpecDecPlusPlusPolicy(&head, {.threshold = 0.5, .min_length = 1}),
      kNoCap);
  const auto decide = [&](double probability) {
    const std::vector<float> hidden = HiddenOf(probability);
    DraftRow row;
    row.draft_hidden = hidden;
    return length.Decide(row);
  };
  EXPECT_EQ(decide(0.01), LengthDecision::kContinue);  // judges nothing yet
  EXPECT_EQ(decide(0.8), LengthDecision::kContinue);   // 0.8
  EXPECT_EQ(decide(0.6), LengthDecision::kStop);       // 0.48
  EXPECT_EQ(decide(0.99), LengthDecision::kStop);      // 0.475, the next chunk
  length.OnCommit({2, false, false});                  // 0.99 is left
  EXPECT_EQ(decide(0.9), LengthDecision::kContinue);   // 0.89
  length.OnCommit({0, true, false});
  EXPECT_EQ(decide(0.01), LengthDecision::kContinue);  // after the correction
  EXPECT_EQ(decide(0.9), LengthDecision::kContinue);
}

TEST(SpecDecPlusPlusPolicy, ReadsTheHiddenStateNotTheToken) {
  const AcceptanceHead head = Transparent();
  const auto policy = MakeSpecDecPlusPlusPolicy(&head, {});
  EXPECT_FALSE(policy->looks_at_token());
  EXPECT_EQ(policy->needs(), RowNeeds{.draft_hidden = true});
}

TEST(AcceptanceHead, BadOnesAreRefused) {
  EXPECT_TRUE(Validate(Transparent()).ok());
  AcceptanceHead head = Transparent();
  head.num_layers = 0;
  EXPECT_THAT(std::string(Validate(head).message()), HasSubstr("0 layers"));
  head = Transparent();
  head.block.push_back(1.0f);
  EXPECT_THAT(std::string(Validate(head).message()), HasSubstr("block 2"));
  head = Transparent();
  head.output.pop_back();
  EXPECT_FALSE(Validate(head).ok());
  head = Transparent();
  head.output_bias.clear();
  EXPECT_FALSE(Validate(head).ok());
  for (std::vector<float> AcceptanceHead::*field :
       {&AcceptanceHead::block, &AcceptanceHead::block_bias,
        &AcceptanceHead::output, &AcceptanceHead::output_bias}) {
    head = Transparent();
    (head.*field)[0] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THAT(std::string(Validate(head).message()),
                HasSubstr("not a finite number"));
  }
}

}  // namespace
}  // namespace nacre::speculation
