// The step that the draft engine plans, runs and finishes.
//
// Plain values, valid until the next step is planned.

#ifndef DRAFT_WORKER_STEP_H_
#define DRAFT_WORKER_STEP_H_

#include <vector>

#include "model/drafter.h"

namespace nacre::draft_worker {

struct EngineSession;  // engine_session.h

struct Step {
  std::vector<EngineSession*> sessions;
  // Of one session after another: its rows, or the nodes of its tree.
  std::vector<model::DraftRows> batch;
  int num_rows = 0;      // fed
  int num_drafting = 0;  // sessions
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_STEP_H_
