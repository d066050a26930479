// Trains whatever has parameters and a gradient: Adam on small batches, until
// the loss on examples that it does not train on has stopped falling.
//
// Pure but for the calls of `progress`: the same network, options and machine
// give the same parameters.

#ifndef TOOLS_CALIBRATE_TRAINING_LOOP_H_
#define TOOLS_CALIBRATE_TRAINING_LOOP_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/calibrate/training_math.h"

namespace nacre::tools {

struct TrainingOptions {
  int width = 64;  // hidden units of `disco`
  int max_epochs = 300;
  // Ends after so many epochs without a new lowest loss.
  int patience = 20;
  int batch = 64;
  // Adam (Kingma and Ba, arXiv:1412.6980), with its paper's other constants.
  double learning_rate = 1e-3;
  uint64_t seed = 1;
  // After each epoch; whether to go on. May be empty.
  std::function<bool(int epoch, double training_loss, double validation_loss)>
      progress;
};

// A network with its examples.
class TrainableNetwork {
 public:
  virtual ~TrainableNetwork() = default;

  virtual Parameters& parameters() = 0;
  virtual size_t num_training() const = 0;
  // Adds d loss / d parameters() of a training example to *gradient, of the
  // same size; returns the loss.
  virtual WeightedLoss AddGradient(size_t example, Parameters* gradient) = 0;
  // Mean of the validation examples.
  virtual double ValidationLoss() = 0;
};

struct TrainingCourse {
  int epochs = 0;              // that were run
  int best_epoch = 0;          // from 1
  double training_loss = 0.0;  // mean there, nats
  double validation_loss = 0.0;
};

inline constexpr size_t kMinTrainingTokens = 10;

// FAILED_PRECONDITION: fewer than kMinTrainingTokens to train on, of only one
// kind, or none to validate with.
absl::Status CheckTrainable(size_t accepted, size_t rejected,
                            size_t validation);

// Leaves the parameters of the best epoch. CANCELLED: `progress` said no;
// INTERNAL: the loss became NaN.
absl::StatusOr<TrainingCourse> RunTraining(const TrainingOptions& options,
                                           TrainableNetwork* network);

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_TRAINING_LOOP_H_
