#include "tools/calibrate/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "speculation/policies/disco.h"
#include "tests/tools/calibrate/examples.h"
#include "tools/calibrate/classifier_metrics.h"
#include "tools/calibrate/head_network.h"

namespace nacre::tools {
namespace {

using ::testing::HasSubstr;

TrainingOptions Small() {
  TrainingOptions options;
  options.width = 8;
  options.max_epochs = 60;
  options.patience = 8;
  return options;
}

// Outcomes are coins with probability p_1: the best loss is their entropy, 1/2
// nat on average, and what is said is what happens.
TEST(TrainDiscoTest, LearnsProbabilities) {
  const auto trained =
      TrainDisco(RandomExamples(3000, 1), RandomExamples(800, 2), Small());
  ASSERT_TRUE(trained.ok()) << trained.status();
  const ClassifierMetrics metrics =
      MeasureNetwork(trained->weights, RandomExamples(4000, 3));
  EXPECT_LT(metrics.loss, 0.53);
  EXPECT_GT(metrics.loss, 0.47);
  EXPECT_LT(metrics.calibration_error, 0.05);
  EXPECT_GT(metrics.f1, 0.7);
}

TEST(TrainDiscoTest, TheSameSeedGivesTheSameWeights) {
  TrainingOptions options = Small();
  options.max_epochs = 3;
  const std::vector<Example> training = RandomExamples(200, 1);
  const std::vector<Example> validation = RandomExamples(50, 2);
  const auto first = TrainDisco(training, validation, options);
  const auto second = TrainDisco(training, validation, options);
  options.seed = 2;
  const auto other = TrainDisco(training, validation, options);
  ASSERT_TRUE(first.ok() && second.ok() && other.ok());
  EXPECT_EQ(first->weights.hidden_weight, second->weights.hidden_weight);
  EXPECT_EQ(first->weights.output_bias, second->weights.output_bias);
  EXPECT_NE(first->weights.hidden_weight, other->weights.hidden_weight);
}

// Outcomes that nothing explains: what is learnt by heart helps no other
// example, so the training ends early and keeps the best epoch.
TEST(TrainDiscoTest, StopsWhereOtherExamplesGetWorse) {
  std::vector<Example> training = RandomExamples(40, 1);
  std::vector<Example> validation = RandomExamples(400, 2);
  for (size_t i = 0; i < training.size(); ++i) {
    training[i].accepted = i % 2 == 0;
  }
  for (size_t i = 0; i < validation.size(); ++i) {
    validation[i].accepted = i % 2 == 0;
  }
  TrainingOptions options = Small();
  options.width = 64;
  options.max_epochs = 2000;
  options.learning_rate = 1e-2;
  std::vector<double> losses;
  options.progress = [&](int epoch, double, double validation_loss) {
    losses.push_back(validation_loss);
    EXPECT_EQ(epoch, static_cast<int>(losses.size()));
    return true;
  };
  const auto trained = TrainDisco(training, validation, options);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_LT(trained->course.epochs, options.max_epochs);
  EXPECT_EQ(trained->course.epochs,
            trained->course.best_epoch + options.patience);
  EXPECT_EQ(losses.size(), static_cast<size_t>(trained->course.epochs));
  for (const double loss : losses)
    EXPECT_GE(loss, trained->course.validation_loss);
  // The weights are those of the best epoch, not of the last.
  EXPECT_NEAR(MeasureNetwork(trained->weights, validation).loss,
              trained->course.validation_loss, 1e-4);
}

TEST(TrainDiscoTest, WhatCannotBeLearntIsRefused) {
  EXPECT_EQ(TrainDisco({}, RandomExamples(20, 2), Small()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  std::vector<Example> training = RandomExamples(20, 1);
  for (Example& example : training) example.accepted = true;
  const auto trained = TrainDisco(training, RandomExamples(20, 2), Small());
  EXPECT_EQ(trained.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(trained.status().message()),
              HasSubstr("nothing to tell apart"));
}

// A rejected token weighs as much as six accepted ones: of coins with
// probability p the head says p / (p + 6 (1 - p)), and it finds the direction
// that p depends on among others that mean nothing.
TEST(TrainHeadTest, LearnsWeightedProbabilities) {
  const RandomStates training(4000, 1);
  const RandomStates validation(800, 2);
  TrainingOptions options = Small();
  options.learning_rate = 2e-3;
  const auto trained =
      TrainHead(training.examples(), validation.examples(), options);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_EQ(trained->weights.num_layers, kHeadLayers);
  double error = 0.0;
  const RandomStates test(500, 3);
  for (size_t i = 0; i < test.examples().size(); ++i) {
    const double p = test.probability(i);
    error += std::abs(trained->weights.Accepted(test.examples()[i].state) -
                      p / (p + kRejectWeight * (1.0 - p)));
  }
  EXPECT_LT(error / 500.0, 0.05);
  // With the weight undone it says what happens.
  const ClassifierMetrics metrics =
      MeasureNetwork(trained->weights, kRejectWeight, test.examples());
  EXPECT_LT(metrics.calibration_error, 0.08);
  EXPECT_GT(metrics.f1, 0.8);
}

TEST(TrainHeadTest, TheSameSeedGivesTheSameWeights) {
  TrainingOptions options = Small();
  options.max_epochs = 2;
  const RandomStates training(100, 1);
  const RandomStates validation(20, 2);
  const auto first =
      TrainHead(training.examples(), validation.examples(), options);
  const auto second =
      TrainHead(training.examples(), validation.examples(), options);
  options.seed = 2;
  const auto other =
      TrainHead(training.examples(), validation.examples(), options);
  ASSERT_TRUE(first.ok() && second.ok() && other.ok());
  EXPECT_EQ(first->weights.block, second->weights.block);
  EXPECT_EQ(first->weights.output, second->weights.output);
  EXPECT_NE(first->weights.output, other->weights.output);
}

TEST(TrainHeadTest, WhatCannotBeLearntIsRefused) {
  const RandomStates few(kMinTrainingTokens - 1, 1);
  const RandomStates some(30, 2);
  EXPECT_EQ(TrainHead(few.examples(), some.examples(), Small()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(TrainHead(some.examples(), {}, Small()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// The target's state means one thing at the first step and the opposite at the
// twelfth: only weights of the steps' own can tell.
TEST(TrainCaliTsTest, LearnsWhatEachStepMeans) {
  std::mt19937_64 random(4);
  constexpr size_t count = 1200;
  std::vector<float> values(2 * count);
  std::vector<CaliTsExample> examples;
  for (size_t i = 0; i < count; ++i) {
    float* at = &values[2 * i];
    at[0] = static_cast<float>(Draw(random) - 0.5);
    at[1] = 0.0f;
    const int step = i % 2 == 0 ? 0 : 11;
    examples.push_back({absl::MakeConstSpan(at, 1),
                        absl::MakeConstSpan(at + 1, 1), step,
                        (at[0] > 0.0f) == (step == 0)});
  }
  const absl::Span<const CaliTsExample> all = examples;
  TrainingOptions options = Small();
  options.max_epochs = 200;
  options.learning_rate = 1e-2;
  const auto trained = TrainCaliTs(all.first(1000), all.subspan(1000), options);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_LT(trained->course.validation_loss, 0.2);
  EXPECT_EQ(trained->weights.target_size, 1);
  EXPECT_EQ(trained->weights.draft_size, 1);
  EXPECT_EQ(
      TrainCaliTs(all.first(5), all.subspan(1000), options).status().code(),
      absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace nacre::tools
