#include "worker/health.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "common/watchdog.h"

namespace nacre::worker {

Health::Health(Options options) : options_(std::move(options)) {
  options_.set_serving("startup", true);
  {
    absl::MutexLock lock(&mu_);
    Publish();
  }
  thread_ = std::thread([this] { Watch(); });
}

Health::~Health() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
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

void Health::Watch() {
  Watchdog watchdog(absl::ToInt64Nanoseconds(options_.hang_timeout),
                    absl::ToInt64Nanoseconds(2 * options_.period));
  absl::MutexLock lock(&mu_);
  while (!mu_.AwaitWithTimeout(absl::Condition(&stopping_), options_.period)) {
    const bool hung =
        watchdog.Observe(options_.engine->progress(), options_.now_ns());
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
    if (hung == hung_) continue;
    hung_ = hung;
    if (hung) {
      spdlog::error("the engine hangs: {} ms with work and without progress",
                    watchdog.stalled_ns() / 1'000'000);
    } else {
      spdlog::warn("the engine makes progress again");
    }
    Publish();
  }
}

}  // namespace nacre::worker
