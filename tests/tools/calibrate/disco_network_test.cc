#include "tools/calibrate/disco_network.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "speculation/policies/disco.h"
#include "tests/tools/calibrate/examples.h"

namespace nacre::tools {
namespace {

TEST(InputScaleTest, IsTheMeanAndTheSpread) {
  std::vector<Example> examples(2);
  examples[0].inputs[0] = 1.0f;
  examples[1].inputs[0] = 3.0f;
  examples[0].inputs[1] = examples[1].inputs[1] = 5.0f;
  const InputScale scale = ScaleOf(examples);
  EXPECT_DOUBLE_EQ(scale.mean[0], 2.0);
  EXPECT_DOUBLE_EQ(scale.spread[0], 1.0);
  // An input that does not vary is not divided by 0.
  EXPECT_DOUBLE_EQ(scale.mean[1], 5.0);
  EXPECT_DOUBLE_EQ(scale.spread[1], 1.0);
}

// A very sure draft: what is written in float32 is still what was trained.
TEST(InputScaleTest, WhatHardlyVariesBesideItsMeanIsNotBlownUp) {
  std::vector<Example> examples = RandomExamples(40, 5);
  for (size_t i = 0; i < examples.size(); ++i) {
    examples[i].inputs[0] = i % 2 == 0 ? 1.0f : 1.0f - 4e-6f;
  }
  const InputScale scale = ScaleOf(examples);
  EXPECT_DOUBLE_EQ(scale.spread[0], 1.0);
  const DiscoNetwork network(5, scale, 11);
  for (const float bias : network.Weights().hidden_bias) {
    EXPECT_LT(std::abs(bias), 1e3f);
  }
}

// The gradient of every parameter against central differences.
TEST(DiscoNetworkTest, TheGradientIsThatOfTheLoss) {
  const std::vector<Example> examples = RandomExamples(8, 3);
  for (const int width : {1, 5}) {
    DiscoNetwork network(width, ScaleOf(examples), 11);
    // Biases that are not 0, so that theirs is checked where it matters.
    for (double& parameter : network.parameters()) parameter += 0.01;
    int moving = 0;
    for (const Example& example : examples) {
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
        EXPECT_NEAR(gradient[i], (above - below) / (2.0 * kStep), 1e-8)
            << "width " << width << ", parameter " << i;
        moving += std::abs(gradient[i]) > 1e-4 ? 1 : 0;
      }
    }
    EXPECT_GT(moving, 20 * width);
  }
}

TEST(DiscoNetworkTest, GradientsAddUp) {
  const std::vector<Example> examples = RandomExamples(1, 3);
  DiscoNetwork network(4, ScaleOf(RandomExamples(9, 1)), 11);
  Parameters once = Parameters::Zero(network.parameters().size());
  network.AddGradient(examples[0], &once);
  Parameters twice = once;
  network.AddGradient(examples[0], &twice);
  for (Eigen::Index i = 0; i < once.size(); ++i) {
    EXPECT_DOUBLE_EQ(twice[i], 2.0 * once[i]);
  }
}

// What is written computes on raw inputs what was trained on scaled ones.
TEST(DiscoNetworkTest, TheWeightsAreTheSameFunction) {
  const std::vector<Example> examples = RandomExamples(50, 4);
  DiscoNetwork network(16, ScaleOf(examples), 2);
  const speculation::DiscoWeights weights = network.Weights();
  ASSERT_TRUE(Validate(weights).ok());
  for (const Example& example : examples) {
    const double p = speculation::DiscoProbability(weights, example.inputs);
    EXPECT_NEAR(-std::log(example.accepted ? p : 1.0 - p),
                network.Loss(example).sum, 1e-4);
  }
}

TEST(DiscoNetworkTest, TheSeedDecides) {
  const InputScale scale = ScaleOf(RandomExamples(9, 1));
  EXPECT_EQ(DiscoNetwork(4, scale, 2).parameters(),
            DiscoNetwork(4, scale, 2).parameters());
  EXPECT_NE(DiscoNetwork(4, scale, 2).parameters(),
            DiscoNetwork(4, scale, 3).parameters());
}

// A sum that would overflow e^x gives a finite loss.
TEST(DiscoNetworkTest, LargeSumsAreFinite) {
  Example example = RandomExamples(1, 1)[0];
  DiscoNetwork network(1, ScaleOf(RandomExamples(9, 1)), 2);
  Parameters gradient = Parameters::Zero(network.parameters().size());
  for (const double bias : {-2000.0, 2000.0}) {
    network.parameters()(network.parameters().size() - 1) = bias;
    for (const bool accepted : {false, true}) {
      example.accepted = accepted;
      EXPECT_NEAR(network.Loss(example).sum,
                  (bias > 0.0) == accepted ? 0.0 : 2000.0, 100.0);
      EXPECT_TRUE(std::isfinite(network.AddGradient(example, &gradient).sum));
    }
  }
  for (const double value : gradient) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace nacre::tools
