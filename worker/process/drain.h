// How a worker that is to stop waits for what runs on it. It also waits for
// what may come from a coordinator that has not heard of the stop yet.

#ifndef WORKER_PROCESS_DRAIN_H_
#define WORKER_PROCESS_DRAIN_H_

#include <functional>

#include "absl/time/time.h"
#include "worker/engine/engine.h"
#include "worker/process/exit_signal.h"

namespace nacre::worker {

struct DrainOptions {
  std::function<EngineStats()> stats;
  // Whether no coordinator can have begun a session that is not among these
  // stats (Registration::IsDrainKnown).
  std::function<bool(const EngineStats&)> is_known;
  // For the sessions to end.
  absl::Duration timeout = absl::Seconds(30);
  // For is_known, while no session is open: the coordinator may be gone.
  absl::Duration patience = absl::Seconds(5);
};

// Returns when all sessions have ended and no other will come, after the
// timeout, or on a failure.
void DrainSessions(const DrainOptions& options, ExitSignal* exit);

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_DRAIN_H_
