#include "worker/process/health.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace nacre::worker {

Health::Health(Options options)
    : options_(std::move(options)),
      watchdog_(options_.hang_timeout, options_.period) {
  options_.set_serving("startup", true);
  {
    absl::MutexLock lock(&mu_);
    Publish();
  }
  thread_.Start(options_.period, [this] { Look(); });
}

void Health::Drain() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
  Publish();
}

bool Health::hung() const {
  absl::MutexLock lock(&mu_);
  return hung_;
}

bool Health::unfit() const {
  absl::MutexLock lock(&mu_);
  return !IsLive();
}

telemetry::HealthState Health::state() const {
  absl::MutexLock lock(&mu_);
  return {IsLive(), IsLive() && !draining_,
          hung_               ? "the engine hangs"
          : computes_wrongly_ ? "the device computes no numbers"
          : draining_         ? "draining"
                              : ""};
}

void Health::Publish() {
  options_.set_serving("liveness", IsLive());
  options_.set_serving("readiness", IsLive() && !draining_);
  options_.set_serving("", IsLive() && !draining_);
}

void Health::Look() {
  absl::MutexLock lock(&mu_);
  const bool hung =
      watchdog_.Observe(options_.engine->progress(), options_.now_ns());
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
  if (std::exchange(hung_, hung) == hung) return;
  hung ? spdlog::error("the engine hangs: {} ms with work and without progress",
                       watchdog_.stalled_ns() / 1'000'000)
       : spdlog::warn("the engine makes progress again");
  Publish();
}

}  // namespace nacre::worker
