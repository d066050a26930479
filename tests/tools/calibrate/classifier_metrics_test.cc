#include "tools/calibrate/classifier_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace nacre::tools {
namespace {

TEST(ClassifierMetricsTest, CountsByHand) {
  // Said yes: 3 right, 1 wrong; said no: 1 wrong, 1 right.
  const std::vector<Prediction> predictions = {{0.9, true}, {0.8, true},
                                               {0.5, true}, {0.7, false},
                                               {0.2, true}, {0.1, false}};
  const ClassifierMetrics metrics = MeasureClassifier(predictions);
  EXPECT_EQ(metrics.count, 6u);
  EXPECT_DOUBLE_EQ(metrics.accepted_share, 4.0 / 6.0);
  EXPECT_DOUBLE_EQ(metrics.precision, 3.0 / 4.0);
  EXPECT_DOUBLE_EQ(metrics.recall, 3.0 / 4.0);
  EXPECT_DOUBLE_EQ(metrics.f1, 3.0 / 4.0);
  EXPECT_DOUBLE_EQ(metrics.f1_of_all, 8.0 / 10.0);
  // Each is alone in its bin.
  EXPECT_NEAR(metrics.calibration_error,
              (0.1 + 0.2 + 0.5 + 0.7 + 0.8 + 0.1) / 6.0, 1e-12);
  EXPECT_NEAR(metrics.loss,
              -(std::log(0.9) + std::log(0.8) + std::log(0.5) + std::log(0.3) +
                std::log(0.2) + std::log(0.9)) /
                  6.0,
              1e-12);
}

// In one bin what counts is the mean of what is said and what happens.
TEST(ClassifierMetricsTest, ACalibratedBinHasNoError) {
  const std::vector<Prediction> predictions = {
      {0.74, true}, {0.76, true}, {0.75, true}, {0.75, false}};
  EXPECT_NEAR(MeasureClassifier(predictions).calibration_error, 0.0, 1e-12);
}

TEST(ClassifierMetricsTest, EdgesAreDefined) {
  EXPECT_EQ(MeasureClassifier({}).f1, 0.0);
  const ClassifierMetrics wrong = MeasureClassifier({{1.0, false}});
  EXPECT_EQ(wrong.f1, 0.0);
  EXPECT_DOUBLE_EQ(wrong.calibration_error, 1.0);
  EXPECT_TRUE(std::isfinite(wrong.loss));
  EXPECT_EQ(MeasureClassifier({{0.0, true}}).precision, 0.0);
}

// The numbers are those of the network that the policy runs.
TEST(ClassifierMetricsTest, AsksTheNetwork) {
  speculation::DiscoWeights weights;
  weights.hidden_weight.assign(speculation::kDiscoInputs, 0.0f);
  weights.hidden_weight[0] = 1.0f;
  weights.hidden_bias = {0.0f};
  weights.output_weight = {10.0f};
  weights.output_bias = -5.0f;  // 1/2 at p_1 = 1/2
  std::vector<Example> examples(2);
  examples[0].inputs[0] = 0.9f;
  examples[0].accepted = true;
  examples[1].inputs[0] = 0.1f;
  const ClassifierMetrics metrics = MeasureNetwork(weights, examples);
  EXPECT_EQ(metrics.f1, 1.0);
  EXPECT_NEAR(metrics.loss, std::log1p(std::exp(-4.0)), 1e-6);
}

// Of odds of 1 : 3 for acceptance a factor of 6 makes 2 : 1.
TEST(ClassifierMetricsTest, AsksTheHeadAndUndoesAWeight) {
  speculation::AcceptanceHead head;
  head.num_layers = 1;
  head.block = {0.0f};
  head.block_bias = {0.0f};
  head.output = {0.0f, 1.0f};
  head.output_bias = {0.0f, 0.0f};
  const std::vector<float> state = {-std::log(3.0f)};
  const std::vector<StateExample> examples = {{state, 1.0}};
  EXPECT_NEAR(MeasureNetwork(head, 1.0, examples).loss, -std::log(0.25), 1e-6);
  EXPECT_EQ(MeasureNetwork(head, 1.0, examples).f1, 0.0);
  EXPECT_NEAR(MeasureNetwork(head, 6.0, examples).loss, -std::log(2.0 / 3.0),
              1e-6);
  EXPECT_EQ(MeasureNetwork(head, 6.0, examples).f1, 1.0);
}

}  // namespace
}  // namespace nacre::tools
