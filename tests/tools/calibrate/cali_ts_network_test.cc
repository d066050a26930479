#include "tools/calibrate/cali_ts_network.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/tools/calibrate/examples.h"

namespace nacre::tools {
namespace {

constexpr int kTarget = 3;
constexpr int kDraft = 2;

// Steps 0 to 12: the last three share the tenth's weights.
class States {
 public:
  explicit States(int count) : values_(static_cast<size_t>(count) * 5) {
    std::mt19937_64 random(9);
    for (float& value : values_) {
      value = static_cast<float>(6.0 * (Draw(random) - 0.5));
    }
    for (int i = 0; i < count; ++i) {
      const auto* at = &values_[static_cast<size_t>(i) * 5];
      examples_.push_back({absl::MakeConstSpan(at, kTarget),
                           absl::MakeConstSpan(at + kTarget, kDraft), i % 13,
                           Draw(random) < 0.5});
    }
  }
  States(const States&) = delete;
  States& operator=(const States&) = delete;
  const std::vector<CaliTsExample>& examples() const { return examples_; }

 private:
  std::vector<float> values_;
  std::vector<CaliTsExample> examples_;
};

CaliTsNetwork RandomNetwork(CaliTsScale scale) {
  CaliTsNetwork network(kTarget, kDraft, scale, 7);
  std::mt19937_64 random(3);
  for (double& parameter : network.parameters()) {
    parameter += Draw(random) - 0.5;
  }
  return network;
}

TEST(CaliTsScaleTest, IsOfEachModel) {
  const std::vector<float> target = {3.0f, -3.0f};
  const std::vector<float> draft = {0.0f};
  const CaliTsScale scale =
      ScaleOf(std::vector<CaliTsExample>{{target, draft, 0, true}});
  EXPECT_DOUBLE_EQ(scale.target, 3.0);
  EXPECT_DOUBLE_EQ(scale.draft, 1.0);
}

// The gradient of every parameter against central differences.
TEST(CaliTsNetworkTest, TheGradientIsThatOfTheLoss) {
  const States states(13);
  CaliTsNetwork network = RandomNetwork({2.0, 0.5});
  int moving = 0;
  for (const CaliTsExample& example : states.examples()) {
    Parameters gradient = Parameters::Zero(network.parameters().size());
    EXPECT_DOUBLE_EQ(network.AddGradient(example, &gradient).sum,
                     network.Loss(example).sum);
    for (Eigen::Index i = 0; i < gradient.size(); ++i) {
      constexpr double kStep = 1e-5;
      double& parameter = network.parameters()[i];
      const double value = parameter;
      parameter = value + kStep;
      const double above = network.Loss(example).sum;
      parameter = value - kStep;
      const double below = network.Loss(example).sum;
      parameter = value;
      EXPECT_NEAR(gradient[i], (above - below) / (2.0 * kStep), 1e-7)
          << "step " << example.step << ", parameter " << i;
      moving += std::abs(gradient[i]) > 1e-4 ? 1 : 0;
    }
  }
  // 9 of the step's weights and 10 of the mix, of each example.
  EXPECT_GT(moving, 13 * 15);
}

// softmax(mix [W^j h_T ; h_D])[1], as the draft computes it of raw states.
TEST(CaliTsNetworkTest, TheWeightsAreTheSameFunction) {
  const States states(30);
  CaliTsNetwork network = RandomNetwork(ScaleOf(states.examples()));
  const speculation::CaliTsModel model = network.Weights();
  ASSERT_TRUE(Validate(model).ok());
  for (const CaliTsExample& example : states.examples()) {
    const int j = std::min(example.step, speculation::CaliTsModel::kSteps - 1);
    double logits[2] = {};
    for (size_t row = 0; row < 2; ++row) {
      const float* mix = &model.mix[row * (kTarget + kDraft)];
      for (size_t i = 0; i < kTarget; ++i) {
        double moved = 0.0;
        for (size_t k = 0; k < kTarget; ++k) {
          moved += model.step_weights[(static_cast<size_t>(j) * kTarget + i) *
                                          kTarget +
                                      k] *
                   example.target_state[k];
        }
        logits[row] += mix[i] * moved;
      }
      for (size_t i = 0; i < kDraft; ++i) {
        logits[row] += mix[kTarget + i] * example.draft_state[i];
      }
    }
    const double p = 1.0 / (1.0 + std::exp(logits[0] - logits[1]));
    EXPECT_NEAR(-std::log(example.accepted ? p : 1.0 - p),
                network.Loss(example).sum, 1e-4);
  }
}

TEST(CaliTsNetworkTest, TheSeedDecides) {
  EXPECT_EQ(CaliTsNetwork(3, 2, {}, 7).parameters(),
            CaliTsNetwork(3, 2, {}, 7).parameters());
  EXPECT_NE(CaliTsNetwork(3, 2, {}, 7).parameters(),
            CaliTsNetwork(3, 2, {}, 8).parameters());
}

}  // namespace
}  // namespace nacre::tools
