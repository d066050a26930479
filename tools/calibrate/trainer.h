// Trains the network of policy `disco`: Adam on small batches, until the loss
// on examples that it does not train on has stopped falling.
//
// Pure but for the calls of `progress`: the same examples, options and machine
// give the same weights.

#ifndef TOOLS_CALIBRATE_TRAINER_H_
#define TOOLS_CALIBRATE_TRAINER_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "speculation/policies/disco.h"
#include "tools/calibrate/dataset.h"

namespace nacre::tools {

struct TrainingOptions {
  int width = 64;
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

struct TrainedNetwork {
  speculation::DiscoWeights weights;  // of the best epoch
  int epochs = 0;                     // that were run
  int best_epoch = 0;                 // from 1
  double training_loss = 0.0;         // mean cross-entropy there, nats
  double validation_loss = 0.0;
};

// FAILED_PRECONDITION: examples of only one kind to train on, or none to
// validate with; CANCELLED: `progress` said no; INTERNAL: the loss became NaN.
absl::StatusOr<TrainedNetwork> TrainNetwork(
    absl::Span<const Example> training, absl::Span<const Example> validation,
    const TrainingOptions& options);

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_TRAINER_H_
