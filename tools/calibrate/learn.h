// Trains the network of a policy on a recording and judges it on answers that
// it has not seen.
//
// Pure but for the calls of `progress`.

#ifndef TOOLS_CALIBRATE_LEARN_H_
#define TOOLS_CALIBRATE_LEARN_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/json.h"
#include "speculation/policies/policy_spec.h"
#include "tools/calibrate/dataset.h"
#include "tools/calibrate/policy_writer.h"
#include "tools/calibrate/recording.h"
#include "tools/calibrate/training_loop.h"

namespace nacre::tools {

struct Learnt {
  PolicyWeights weights;
  std::string summary;            // for people: lines
  nlohmann::ordered_json report;  // for policy.json, under "calibration"
};

// `kind`: kDisco, kSpecDecPlusPlus or kCaliTs. Errors: of the training
// (trainer.h).
absl::StatusOr<Learnt> Learn(speculation::PolicyKind kind,
                             const Recording& recording,
                             const PromptSplit& split,
                             const TrainingOptions& options);

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_LEARN_H_
