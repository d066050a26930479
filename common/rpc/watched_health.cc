#include "common/rpc/watched_health.h"

#include <utility>

namespace nacre::rpc {

WatchedHealth::WatchedHealth(const HealthOptions& options)
    : options_(options), watchdog_(options_.hang_timeout, options_.period) {}

void WatchedHealth::Start() {
  options_.set_serving("startup", true);
  {
    absl::MutexLock lock(&mu_);
    Publish();
  }
  thread_.Start(options_.period, [this] { Look(); });
}

void WatchedHealth::Drain() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
  Publish();
}

bool WatchedHealth::hung() const {
  absl::MutexLock lock(&mu_);
  return hung_;
}

bool WatchedHealth::Observe(const Progress& progress, int64_t now_ns) {
  const bool hangs = watchdog_.Observe(progress, now_ns);
  return std::exchange(hung_, hangs) != hangs;
}

void WatchedHealth::Publish() {
  options_.set_serving("liveness", IsLive());
  options_.set_serving("readiness", IsReady());
  options_.set_serving("", IsReady());
}

}  // namespace nacre::rpc
