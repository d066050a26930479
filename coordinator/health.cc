#include "coordinator/health.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "common/watchdog.h"
#include "coordinator/clock.h"

namespace nacre::coordinator {
namespace {

bool AnyReady(const std::vector<WorkerStatus>& workers, WorkerRole role) {
  return std::any_of(workers.begin(), workers.end(),
                     [role](const WorkerStatus& worker) {
                       return worker.ready && worker.info.role == role;
                     });
}

}  // namespace

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

void Health::OnTick(const std::vector<WorkerStatus>& workers) {
  const bool has_target = AnyReady(workers, WorkerRole::kTarget);
  const bool has_draft = AnyReady(workers, WorkerRole::kDraft);
  absl::MutexLock lock(&mu_);
  if (has_target == has_target_ && has_draft == has_draft_) return;
  if (has_target != has_target_ && !draining_) {
    if (has_target) {
      spdlog::info("ready: a target takes sessions");
    } else {
      spdlog::warn("not ready: no target takes sessions");
    }
  }
  if (has_draft != has_draft_ && !draining_) {
    if (has_draft) {
      spdlog::info("a draft takes sessions");
    } else {
      spdlog::warn("degraded: no draft takes sessions");
    }
  }
  has_target_ = has_target;
  has_draft_ = has_draft;
  Publish();
}

void Health::Drain() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
  Publish();
}

telemetry::HealthState Health::state() const {
  absl::MutexLock lock(&mu_);
  telemetry::HealthState state;
  state.live = !hung_;
  state.ready = !hung_ && !draining_ && has_target_;
  state.note = hung_          ? "the dispatcher hangs"
               : draining_    ? "draining"
               : !has_target_ ? "no target takes sessions"
               : !has_draft_  ? "degraded, no draft takes sessions"
                              : "";
  return state;
}

void Health::Publish() {
  const bool ready = !hung_ && !draining_ && has_target_;
  options_.set_serving("liveness", !hung_);
  options_.set_serving("readiness", ready);
  options_.set_serving("", ready);
}

void Health::Watch() {
  Watchdog watchdog(absl::ToInt64Nanoseconds(options_.hang_timeout),
                    absl::ToInt64Nanoseconds(2 * options_.period));
  absl::MutexLock lock(&mu_);
  while (!mu_.AwaitWithTimeout(absl::Condition(&stopping_), options_.period)) {
    const bool hung =
        watchdog.Observe(options_.ticks->progress(), MonotonicNs());
    // Without it there would be no tick for as long as nothing is due.
    options_.ticks->WakeAt(MonotonicNs());
    if (hung == hung_) continue;
    hung_ = hung;
    if (hung) {
      spdlog::error("the dispatcher hangs: no tick has ended for {} ms",
                    watchdog.stalled_ns() / 1'000'000);
    } else {
      spdlog::warn("the dispatcher goes on");
    }
    Publish();
  }
}

}  // namespace nacre::coordinator
