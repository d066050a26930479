// The step that the target engine plans, runs and finishes.
//
// Plain values, valid until the next step is planned.

#ifndef TARGET_WORKER_STEP_H_
#define TARGET_WORKER_STEP_H_

#include <vector>

#include "model/language_model.h"

namespace nacre::target_worker {

struct EngineSession;  // engine_session.h

struct Step {
  std::vector<EngineSession*> sessions;
  std::vector<model::SequenceRows> batch;  // of each of them
  int num_rows = 0;                        // fed
  int verify_rows = 0;                     // those that are no prompt's
  int logit_rows = 0;
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_STEP_H_
