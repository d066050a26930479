#include "worker/process/drain.h"

#include <spdlog/spdlog.h>

#include "absl/time/clock.h"

namespace nacre::worker {

void DrainSessions(const DrainOptions& options, ExitSignal* exit) {
  const absl::Time begin = absl::Now();
  EngineStats stats = options.stats();
  spdlog::info("draining {} sessions", stats.sessions);
  while (exit->failure().ok()) {
    const absl::Duration waited = absl::Now() - begin;
    if (stats.sessions == 0) {
      if (options.is_known(stats)) return;
      if (waited >= options.patience) {
        spdlog::warn("the coordinator has not said that it knows");
        return;
      }
    }
    if (waited >= options.timeout) break;
    exit->WaitForFailure(absl::Milliseconds(20));
    stats = options.stats();
  }
  if (stats.sessions > 0) {
    spdlog::warn("{} sessions were still open", stats.sessions);
  }
}

}  // namespace nacre::worker
