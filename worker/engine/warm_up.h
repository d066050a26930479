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

// What the steps of this process do with their rows.
enum class RowUse {
  kDrawn,   // each gives a token, drawn by the model where it can
  kRanked,  // each gives its best tokens, as a draft's that grows trees. Only a
            // lone row is drawn by the model, where it can: a chain's
};

// Times of steps of 1, 2, 4, 8 and 16 rows of one sequence (those that fit).
// Each is the shortest of five, after a forward that is not measured. Ranked
// rows are ranked by the host, so their logits come to it; that is measured,
// too. Runs on the engine's thread. Errors: of NewSequence and Forward;
// DATA_LOSS (a logit is infinite or not a number).
absl::StatusOr<std::vector<StepTime>> WarmUp(model::LanguageModel* model,
                                             const Clock& now_ns,
                                             RowUse use = RowUse::kDrawn);

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_WARM_UP_H_
