// Trains the networks of the learned policies (training_loop.h).
//
// Pure but for the calls of `progress`.

#ifndef TOOLS_CALIBRATE_TRAINER_H_
#define TOOLS_CALIBRATE_TRAINER_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "speculation/policies/cali_ts.h"
#include "speculation/policies/disco.h"
#include "speculation/policies/specdec_plus_plus.h"
#include "tools/calibrate/cali_ts_network.h"
#include "tools/calibrate/dataset.h"
#include "tools/calibrate/training_loop.h"

namespace nacre::tools {

template <typename Weights>
struct Trained {
  Weights weights;  // of the best epoch
  TrainingCourse course;
};

// `disco`. Errors: CheckTrainable's and RunTraining's.
absl::StatusOr<Trained<speculation::DiscoWeights>> TrainDisco(
    absl::Span<const Example> training, absl::Span<const Example> validation,
    const TrainingOptions& options);

// `specdec++`: the head's loss weighs rejected tokens (HeadLoss). All states
// have the same size. Errors: likewise.
absl::StatusOr<Trained<speculation::AcceptanceHead>> TrainHead(
    absl::Span<const StateExample> training,
    absl::Span<const StateExample> validation, const TrainingOptions& options);

// `cali-ts`. All states of a model have the same size. Errors: likewise.
absl::StatusOr<Trained<speculation::CaliTsModel>> TrainCaliTs(
    absl::Span<const CaliTsExample> training,
    absl::Span<const CaliTsExample> validation, const TrainingOptions& options);

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_TRAINER_H_
