#include "tools/calibrate/training_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace nacre::tools {
namespace {

using ::testing::HasSubstr;

// One parameter x: training examples pull it to 3 (weight 1) and to 0 (weight
// 2), validation wants it at `wanted`.
class Pulled final : public TrainableNetwork {
 public:
  explicit Pulled(double wanted) : wanted_(wanted) {}

  Parameters& parameters() override { return parameters_; }
  size_t num_training() const override { return 2; }
  WeightedLoss AddGradient(size_t example, Parameters* gradient) override {
    const double goal = example == 0 ? 3.0 : 0.0;
    const double weight = example == 0 ? 1.0 : 2.0;
    const double distance = parameters_[0] - goal;
    (*gradient)[0] += 2.0 * weight * distance;
    return {weight * distance * distance, weight};
  }
  double ValidationLoss() override {
    return loss_.has_value() ? *loss_ : std::abs(parameters_[0] - wanted_);
  }
  void set_validation_loss(double loss) { loss_ = loss; }

 private:
  const double wanted_;
  std::optional<double> loss_;
  Parameters parameters_ = Parameters::Constant(1, -1.0);
};

TrainingOptions Options() {
  TrainingOptions options;
  options.max_epochs = 3000;
  options.patience = 50;
  options.batch = 2;
  options.learning_rate = 0.01;
  return options;
}

TEST(RunTrainingTest, MinimizesTheWeightedMean) {
  Pulled network(1.0);  // the weighted mean of 3 and 0
  const auto course = RunTraining(Options(), &network);
  ASSERT_TRUE(course.ok()) << course.status();
  EXPECT_NEAR(network.parameters()[0], 1.0, 0.01);
  // (1 * 2^2 + 2 * 1^2) / 3
  EXPECT_NEAR(course->training_loss, 2.0, 0.05);
}

// The parameter passes by what validation wants, and comes back to it.
TEST(RunTrainingTest, KeepsTheBestEpoch) {
  Pulled network(0.0);
  const auto course = RunTraining(Options(), &network);
  ASSERT_TRUE(course.ok()) << course.status();
  EXPECT_EQ(course->epochs, course->best_epoch + Options().patience);
  EXPECT_NEAR(network.parameters()[0], 0.0, 0.01);
  EXPECT_EQ(course->validation_loss, std::abs(network.parameters()[0]));
}

TEST(RunTrainingTest, ALossThatIsNoNumberIsAnError) {
  Pulled network(0.0);
  network.set_validation_loss(std::numeric_limits<double>::quiet_NaN());
  const auto course = RunTraining(Options(), &network);
  EXPECT_EQ(course.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(course.status().message()),
              HasSubstr("not finite in epoch 1"));
}

TEST(RunTrainingTest, CanBeInterrupted) {
  Pulled network(0.0);
  TrainingOptions options = Options();
  options.progress = [](int epoch, double, double) { return epoch < 2; };
  EXPECT_EQ(RunTraining(options, &network).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(CheckTrainableTest, SaysWhatIsMissing) {
  EXPECT_TRUE(CheckTrainable(9, 1, 1).ok());
  const auto error = [](size_t accepted, size_t rejected, size_t validation) {
    const absl::Status status = CheckTrainable(accepted, rejected, validation);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  EXPECT_THAT(error(8, 1, 1), HasSubstr("there are 9 tokens to train on"));
  EXPECT_THAT(error(0, 0, 1), HasSubstr("there are 0 tokens"));
  EXPECT_THAT(error(10, 0, 1), HasSubstr("nothing to tell apart"));
  EXPECT_THAT(error(0, 10, 1), HasSubstr("10 rejected"));
  EXPECT_THAT(error(9, 1, 0), HasSubstr("no token to validate with"));
}

}  // namespace
}  // namespace nacre::tools
