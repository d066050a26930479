#include "speculation/policies/cali_ts.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "simulation/random.h"
#include "tests/speculation/policies/policy_testing.h"

namespace nacre::speculation {
namespace {

using ::testing::HasSubstr;

TEST(CaliTsPosterior, FollowsEquationSixAndSeven) {
  const CaliTsOptions options = {.sigma_model = 0.2, .sigma_sample = 0.5};
  const double score = 0.9;
  // Before the first verdict the model's word is all there is.
  EXPECT_DOUBLE_EQ(PosteriorOf(options, 0, 0.7, &score).mean, 0.9);
  EXPECT_DOUBLE_EQ(PosteriorOf(options, 0, 0.7, &score).deviation, 0.2);
  // (0.25 * 0.9 + 5 * 0.04 * 0.6) / (5 * 0.04 + 0.25)
  EXPECT_NEAR(PosteriorOf(options, 5, 0.6, &score).mean, 0.345 / 0.45, 1e-12);
  EXPECT_NEAR(PosteriorOf(options, 5, 0.6, &score).deviation,
              std::sqrt(0.04 * 0.25 / 0.45), 1e-12);
  // Many verdicts outweigh the model.
  EXPECT_NEAR(PosteriorOf(options, 1000000, 0.6, &score).mean, 0.6, 1e-3);
  EXPECT_LT(PosteriorOf(options, 1000000, 0.6, &score).deviation, 1e-3);
  // The paper's ablation without model: the mean is the share.
  EXPECT_DOUBLE_EQ(PosteriorOf(options, 5, 0.6, nullptr).mean, 0.6);
}

// Eq. 8 as printed, t <- t + |Qv| in numerator and denominator: whatever was
// rejected, theta_t = (theta_0 + t) / (t + 1), which tends to 1 and would never
// stop drafting. Why theta is accepted / compared here.
TEST(CaliTsPosterior, ThePrintedEstimateCarriesNoInformation) {
  simulation::Random random(3);
  for (const double acceptance : {0.1, 0.5, 0.9}) {
    const double theta0 = 0.7;
    double theta = theta0;
    int t = 0;
    for (int round = 0; round < 200; ++round) {
      int verified = 1;
      while (verified < 6 && random.Chance(acceptance)) ++verified;
      theta = (theta * (t + 1) + verified) / (t + verified + 1);
      t += verified;
      EXPECT_NEAR(theta, (theta0 + t) / (t + 1), 1e-9);
    }
    EXPECT_GT(theta, 0.99);
  }
}

double MeanLength(TurnTaker& turns, double acceptance, int rounds) {
  simulation::Random random(11);
  int64_t total = 0;
  for (int round = 0; round < rounds; ++round) {
    const int drafted = turns.Draft();
    int accepted = 0;
    while (accepted < drafted && random.Chance(acceptance)) ++accepted;
    turns.Verify(accepted);
    total += drafted;
  }
  return static_cast<double>(total) / rounds;
}

// Without a model score it follows the share of validated tokens alone: the
// chance to go on becomes the acceptance rate, lengths their geometric mean.
TEST(CaliTsPolicy, WithoutAModelTheShareDecides) {
  for (const double acceptance : {0.5, 0.8}) {
    TurnTaker turns(MakeCaliTsPolicy(nullptr, {.seed = 1}));
    MeanLength(turns, acceptance, 2000);
    EXPECT_NEAR(MeanLength(turns, acceptance, 20'000), 1.0 / (1.0 - acceptance),
                0.1 / (1.0 - acceptance));
  }
}

// T = 2, D = 1. W^j = j * identity but for j = 10, which is zero.
CaliTsModel Model() {
  CaliTsModel model;
  model.target_size = 2;
  model.draft_size = 1;
  for (int j = 1; j <= CaliTsModel::kSteps; ++j) {
    const float scale = j == CaliTsModel::kSteps ? 0.0f : float(j);
    for (const float value : {scale, 0.0f, 0.0f, scale}) {
      model.step_weights.push_back(value);
    }
  }
  model.mix = {0.0f, 1.0f, 0.5f, 2.0f, 0.0f, -0.5f};
  return model;
}

// How often it goes on after a token that is the `index`-th unverified one.
// sigma-model is so small that only the model's word counts.
double ContinueRate(const CaliTsScorer& model, int index, float draft_hidden,
                    bool has_target_hidden) {
  constexpr int kTrials = 4000;
  int continued = 0;
  const std::vector<float> hidden = {draft_hidden};
  for (int seed = 0; seed < kTrials; ++seed) {
    const auto policy = MakeCaliTsPolicy(
        &model, {.sigma_model = 1e-6, .theta0 = 0.25, .seed = uint64_t(seed)});
    if (has_target_hidden) policy->OnTargetHidden({0.1f, 0.3f});
    DraftRow row;
    row.unverified = index;
    row.draft_hidden = hidden;
    continued += policy->Decide(row) == LengthDecision::kContinue ? 1 : 0;
  }
  return static_cast<double>(continued) / kTrials;
}

TEST(CaliTsPolicy, TheModelReadsBothHiddenStatesAndTheDistance) {
  const CaliTsScorer model(Model());
  const auto sigmoid = [](double z) { return 1.0 / (1.0 + std::exp(-z)); };
  // z_1 - z_0 = j * (2 * 0.1 - 0.3) + (-0.5 - 0.5) * h_D
  EXPECT_NEAR(ContinueRate(model, 0, -2.0f, true), sigmoid(-0.1 + 2.0), 0.03);
  EXPECT_NEAR(ContinueRate(model, 4, 0.5f, true), sigmoid(-0.5 - 0.5), 0.03);
  // From the tenth on W^10.
  EXPECT_NEAR(ContinueRate(model, 9, 0.5f, true), sigmoid(-0.5), 0.03);
  EXPECT_NEAR(ContinueRate(model, 30, 0.5f, true), sigmoid(-0.5), 0.03);
  // No word from the target: the share before the first chunk.
  EXPECT_NEAR(ContinueRate(model, 0, -2.0f, false), 0.25, 0.03);
}

// What is multiplied beforehand is the formula, for weights of no structure.
TEST(CaliTsScorer, IsTheModel) {
  constexpr size_t kTarget = 3;
  constexpr size_t kDraft = 2;
  std::mt19937_64 random(11);
  const auto draw = [&random](size_t count) {
    std::vector<float> values(count);
    for (float& value : values) {
      value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    }
    return values;
  };
  const CaliTsModel model = {kTarget, kDraft,
                             draw(CaliTsModel::kSteps * kTarget * kTarget),
                             draw(2 * (kTarget + kDraft))};
  ASSERT_TRUE(Validate(model).ok());
  const CaliTsScorer scorer(model);
  EXPECT_EQ(scorer.target_size(), 3);
  EXPECT_EQ(scorer.draft_size(), 2);
  const std::vector<float> target = draw(kTarget);
  const std::vector<float> draft = draw(kDraft);
  for (size_t step = 0; step < CaliTsModel::kSteps; ++step) {
    double logits[2] = {};
    for (size_t row = 0; row < 2; ++row) {
      const float* mix = &model.mix[row * (kTarget + kDraft)];
      for (size_t i = 0; i < kTarget; ++i) {
        for (size_t k = 0; k < kTarget; ++k) {
          logits[row] +=
              double{mix[i]} *
              model.step_weights[(step * kTarget + i) * kTarget + k] *
              target[k];
        }
      }
      for (size_t i = 0; i < kDraft; ++i) {
        logits[row] += double{mix[kTarget + i]} * draft[i];
      }
    }
    const double softmax =
        std::exp(logits[1]) / (std::exp(logits[0]) + std::exp(logits[1]));
    EXPECT_NEAR(
        scorer.Score(scorer.TargetPart(static_cast<int>(step), target), draft),
        softmax, 1e-6);
  }
}

// A state of the past says nothing of the tokens after it.
TEST(CaliTsPolicy, WithoutTheTargetsStateOfNowTheShareDecidesAgain) {
  const CaliTsScorer model(Model());
  const std::vector<float> hidden = {-200.0f};  // the model is certain
  int continued = 0;
  constexpr int kTrials = 2000;
  for (uint64_t seed = 0; seed < kTrials; ++seed) {
    const auto policy = MakeCaliTsPolicy(
        &model, {.sigma_model = 1e-6, .theta0 = 0.25, .seed = seed});
    DraftRow row;
    row.draft_hidden = hidden;
    policy->OnTargetHidden({0.1f, 0.3f});
    EXPECT_EQ(policy->Decide(row), LengthDecision::kContinue);
    policy->OnTargetHidden({});
    continued += policy->Decide(row) == LengthDecision::kContinue ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(continued) / kTrials, 0.25, 0.04);
}

TEST(CaliTsPolicy, ReadsTheHiddenStateOnlyWithAModel) {
  const CaliTsScorer model(Model());
  EXPECT_EQ(MakeCaliTsPolicy(&model, {})->needs(),
            RowNeeds{.draft_hidden = true});
  EXPECT_EQ(MakeCaliTsPolicy(nullptr, {})->needs(), RowNeeds());
  EXPECT_EQ(MakeCaliTsPolicy(&model, {})->target_hidden_size(), 2);
  EXPECT_EQ(MakeCaliTsPolicy(nullptr, {})->target_hidden_size(), 0);
  EXPECT_FALSE(MakeCaliTsPolicy(&model, {})->looks_at_token());
}

TEST(CaliTsModel, BadOnesAreRefused) {
  EXPECT_TRUE(Validate(Model()).ok());
  CaliTsModel model = Model();
  model.target_size = 3;
  EXPECT_THAT(std::string(Validate(model).message()),
              HasSubstr("step_weights has 40 values"));
  model = Model();
  model.mix.push_back(0.0f);
  EXPECT_THAT(std::string(Validate(model).message()), HasSubstr("mix 7"));
  model = Model();
  model.draft_size = -1;
  EXPECT_FALSE(Validate(model).ok());
  for (std::vector<float> CaliTsModel::*field :
       {&CaliTsModel::step_weights, &CaliTsModel::mix}) {
    model = Model();
    (model.*field)[2] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THAT(std::string(Validate(model).message()),
                HasSubstr("not a finite number"));
  }
}

}  // namespace
}  // namespace nacre::speculation
