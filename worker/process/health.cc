#include "worker/process/health.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace nacre::worker {

Health::Health(Options options)
    : WatchedHealth(options), options_(std::move(options)) {
  Start();
}

bool Health::unfit() const {
  absl::MutexLock lock(&mu_);
  return !IsLive();
}

telemetry::HealthState Health::state() const {
  absl::MutexLock lock(&mu_);
  return {IsLive(), IsReady(),
          hangs()             ? "the engine hangs"
          : computes_wrongly_ ? "the device computes no numbers"
          : drains()          ? "draining"
                              : ""};
}

void Health::Look() {
  absl::MutexLock lock(&mu_);
  const EngineStats stats = options_.engine->stats();
  if (stats.computes_wrongly && !computes_wrongly_) {
    computes_wrongly_ = true;
    spdlog::error(
        "step after step gave logits that are NaN or infinite ({} sessions "
        "failed): the device computes wrongly, or the weights are damaged; "
        "restart this worker",
        stats.nonfinite_logits);
    Publish();
  }
  if (!Observe(options_.engine->progress(), options_.now_ns())) return;
  hangs()
      ? spdlog::error("the engine hangs: {} ms with work and without progress",
                      stalled_ms())
      : spdlog::warn("the engine makes progress again");
  Publish();
}

}  // namespace nacre::worker
