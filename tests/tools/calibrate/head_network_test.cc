#include "tools/calibrate/head_network.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/tools/calibrate/examples.h"

namespace nacre::tools {
namespace {

// Random everywhere: a block of zeros would hide errors.
HeadNetwork RandomHead(int num_layers, double scale) {
  HeadNetwork network(static_cast<int>(RandomStates::kSize), num_layers, scale,
                      7);
  std::mt19937_64 random(3);
  for (double& parameter : network.parameters()) {
    parameter += 1.5 * (Draw(random) - 0.5);
  }
  return network;
}

TEST(HeadLossTest, WeighsRejectedTokens) {
  // p = 0.8
  const double logit = std::log(4.0);
  EXPECT_NEAR(HeadLoss(logit, 1.0).sum, -std::log(0.8), 1e-12);
  EXPECT_DOUBLE_EQ(HeadLoss(logit, 1.0).weight, 1.0);
  EXPECT_NEAR(HeadLoss(logit, 0.0).sum, -6.0 * std::log(0.2), 1e-12);
  EXPECT_DOUBLE_EQ(HeadLoss(logit, 0.0).weight, 6.0);
  // A soft label is both.
  EXPECT_NEAR(HeadLoss(logit, 0.25).sum,
              -0.25 * std::log(0.8) - 4.5 * std::log(0.2), 1e-12);
  EXPECT_DOUBLE_EQ(HeadLoss(logit, 0.25).weight, 4.75);
}

TEST(StateScaleTest, IsTheRootMeanSquare) {
  const std::vector<float> a = {3.0f, -3.0f};
  const std::vector<float> b = {-1.0f, 1.0f};
  const std::vector<float> zero = {0.0f, 0.0f};
  EXPECT_DOUBLE_EQ(StateScaleOf(std::vector<StateExample>{{a, 1.0}, {b, 0.0}}),
                   std::sqrt(5.0));
  EXPECT_DOUBLE_EQ(StateScaleOf(std::vector<StateExample>{{zero, 1.0}}), 1.0);
}

// The gradient of every parameter against central differences; the block is
// the same in all layers.
TEST(HeadNetworkTest, TheGradientIsThatOfTheLoss) {
  const RandomStates states(6, 5);
  for (const int num_layers : {1, 3}) {
    HeadNetwork network = RandomHead(num_layers, 2.3);
    int moving = 0;
    for (size_t e = 0; e < states.examples().size(); ++e) {
      StateExample example = states.examples()[e];
      if (e == 0) example.accepted = 0.3;
      Parameters gradient = Parameters::Zero(network.parameters().size());
      const WeightedLoss loss = network.AddGradient(example, &gradient);
      EXPECT_DOUBLE_EQ(loss.sum, network.Loss(example).sum);
      EXPECT_DOUBLE_EQ(loss.weight, network.Loss(example).weight);
      for (Eigen::Index i = 0; i < gradient.size(); ++i) {
        constexpr double kStep = 1e-5;
        double& parameter = network.parameters()[i];
        const double value = parameter;
        parameter = value + kStep;
        const double above = network.Loss(example).sum;
        parameter = value - kStep;
        const double below = network.Loss(example).sum;
        parameter = value;
        EXPECT_NEAR(gradient[i], (above - below) / (2.0 * kStep),
                    1e-6 * (1.0 + std::abs(gradient[i])))
            << num_layers << " layers, parameter " << i;
        moving += std::abs(gradient[i]) > 1e-4 ? 1 : 0;
      }
    }
    EXPECT_GT(moving, 60);
  }
}

TEST(HeadNetworkTest, GradientsAddUp) {
  const RandomStates states(1, 5);
  HeadNetwork network = RandomHead(2, 1.0);
  Parameters once = Parameters::Zero(network.parameters().size());
  network.AddGradient(states.examples()[0], &once);
  Parameters twice = once;
  network.AddGradient(states.examples()[0], &twice);
  for (Eigen::Index i = 0; i < once.size(); ++i) {
    EXPECT_DOUBLE_EQ(twice[i], 2.0 * once[i]);
  }
}

// What a draft worker computes is what was trained.
TEST(HeadNetworkTest, TheWeightsAreTheSameFunction) {
  const RandomStates states(50, 4);
  HeadNetwork network = RandomHead(3, 2.3);
  const speculation::AcceptanceHead head = network.Weights();
  ASSERT_TRUE(Validate(head).ok());
  for (const StateExample& example : states.examples()) {
    const double p = head.Accepted(example.state);
    const double weight = example.accepted > 0.5 ? 1.0 : kRejectWeight;
    EXPECT_NEAR(-weight * std::log(example.accepted > 0.5 ? p : 1.0 - p),
                network.Loss(example).sum, 1e-3);
  }
}

// The head begins as a linear one: the block changes nothing.
TEST(HeadNetworkTest, BeginsWithTheIdentity) {
  const HeadNetwork network(4, 3, 1.0, 7);
  for (Eigen::Index i = 0; i < 20; ++i) EXPECT_EQ(network.parameters()[i], 0.0);
  EXPECT_EQ(network.parameters(), HeadNetwork(4, 3, 1.0, 7).parameters());
  EXPECT_NE(network.parameters(), HeadNetwork(4, 3, 1.0, 8).parameters());
}

}  // namespace
}  // namespace nacre::tools
