#include "worker/engine/engine.h"

namespace nacre::worker {

absl::Status Engine::Run() {
  absl::Status status;
  while (!stopped_.load(std::memory_order_relaxed)) {
    waiting_.store(false, std::memory_order_relaxed);
    absl::StatusOr<StepOutcome> outcome = RunOnce();
    loops_.fetch_add(1, std::memory_order_relaxed);
    if (!outcome.ok()) {
      status = outcome.status();
      break;
    }
    if (outcome->stepped) continue;
    waiting_.store(true, std::memory_order_relaxed);
    Deliver(Delivery::kHere);
    WaitForCommands(*outcome);
  }
  Deliver(Delivery::kElsewhere);
  // Commands are no longer consumed: with some left, the engine counts as hung.
  waiting_.store(true, std::memory_order_relaxed);
  return status;
}

Progress Engine::progress() const {
  Progress progress;
  progress.finished =
      loops_.load(std::memory_order_relaxed) + forward_progress();
  progress.working = !waiting_.load(std::memory_order_relaxed) || HasCommands();
  return progress;
}

}  // namespace nacre::worker
