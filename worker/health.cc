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

telemetry::HealthState Health::state() const {
  absl::MutexLock lock(&mu_);
  return {!hung_, !hung_ && !draining_,
          hung_       ? "the engine hangs"
          : draining_ ? "draining"
                      : ""};
}

void Health::Publish() {
  options_.set_serving("liveness", !hung_);
  options_.set_serving("readiness", !hung_ && !draining_);
  options_.set_serving("", !hung_ && !draining_);
}

void Health::Watch() {
  Watchdog watchdog(absl::ToInt64Nanoseconds(options_.hang_timeout),
                    absl::ToInt64Nanoseconds(2 * options_.period));
  absl::MutexLock lock(&mu_);
  while (!mu_.AwaitWithTimeout(absl::Condition(&stopping_), options_.period)) {
    const bool hung =
        watchdog.Observe(options_.engine->progress(), options_.now_ns());
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
