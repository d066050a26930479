#include "tools/calibrate/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "speculation/policies/disco.h"
#include "tests/tools/calibrate/examples.h"
#include "tools/calibrate/classifier_metrics.h"

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
TEST(TrainNetworkTest, LearnsProbabilities) {
  const auto trained =
      TrainNetwork(RandomExamples(3000, 1), RandomExamples(800, 2), Small());
  ASSERT_TRUE(trained.ok()) << trained.status();
  const ClassifierMetrics metrics =
      MeasureNetwork(trained->weights, RandomExamples(4000, 3));
  EXPECT_LT(metrics.loss, 0.53);
  EXPECT_GT(metrics.loss, 0.47);
  EXPECT_LT(metrics.calibration_error, 0.05);
  EXPECT_GT(metrics.f1, 0.7);
}

TEST(TrainNetworkTest, TheSameSeedGivesTheSameWeights) {
  TrainingOptions options = Small();
  options.max_epochs = 3;
  const std::vector<Example> training = RandomExamples(200, 1);
  const std::vector<Example> validation = RandomExamples(50, 2);
  const auto first = TrainNetwork(training, validation, options);
  const auto second = TrainNetwork(training, validation, options);
  options.seed = 2;
  const auto other = TrainNetwork(training, validation, options);
  ASSERT_TRUE(first.ok() && second.ok() && other.ok());
  EXPECT_EQ(first->weights.hidden_weight, second->weights.hidden_weight);
  EXPECT_EQ(first->weights.output_bias, second->weights.output_bias);
  EXPECT_NE(first->weights.hidden_weight, other->weights.hidden_weight);
}

// Outcomes that nothing explains: what is learnt by heart helps no other
// example, so the training ends early and keeps the best epoch.
TEST(TrainNetworkTest, StopsWhereOtherExamplesGetWorse) {
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
  const auto trained = TrainNetwork(training, validation, options);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_LT(trained->epochs, options.max_epochs);
  EXPECT_EQ(trained->epochs, trained->best_epoch + options.patience);
  EXPECT_EQ(losses.size(), static_cast<size_t>(trained->epochs));
  for (const double loss : losses) EXPECT_GE(loss, trained->validation_loss);
  // The weights are those of the best epoch, not of the last.
  EXPECT_NEAR(MeasureNetwork(trained->weights, validation).loss,
              trained->validation_loss, 1e-4);
}

TEST(TrainNetworkTest, OneKindOfOutcomeTeachesNothing) {
  for (const bool accepted : {false, true}) {
    std::vector<Example> training = RandomExamples(20, 1);
    for (Example& example : training) example.accepted = accepted;
    const auto trained = TrainNetwork(training, RandomExamples(20, 2), Small());
    EXPECT_EQ(trained.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(trained.status().message()),
                HasSubstr("nothing to tell apart"));
  }
  EXPECT_EQ(TrainNetwork({}, RandomExamples(20, 2), Small()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(TrainNetwork(RandomExamples(20, 2), {}, Small()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(TrainNetworkTest, CanBeInterrupted) {
  TrainingOptions options = Small();
  options.progress = [](int epoch, double, double) { return epoch < 2; };
  EXPECT_EQ(TrainNetwork(RandomExamples(50, 1), RandomExamples(50, 2), options)
                .status()
                .code(),
            absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace nacre::tools
