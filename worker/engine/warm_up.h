// The first forwards of a process: they touch every weight, show that the
// device computes numbers, and measure what a step costs.

#ifndef WORKER_ENGINE_WARM_UP_H_
#define WORKER_ENGINE_WARM_UP_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "model/language_model.h"
#include "worker/engine/clock.h"

namespace nacre::worker {

struct StepTime {
  int rows = 0;
  int64_t duration_ns = 0;
};

// Forwards of 1, 2, 4, 8 and 16 rows of one sequence (those that fit), the
// shortest of five each, after one that is not measured. Runs on the engine's
// thread. Errors: of NewSequence and Forward; DATA_LOSS (a logit is infinite or
// not a number).
absl::StatusOr<std::vector<StepTime>> WarmUp(model::LanguageModel* model,
                                             const Clock& now_ns);

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_WARM_UP_H_
