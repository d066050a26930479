#include "coordinator/api/health.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "coordinator/dispatch/clock.h"

namespace nacre::coordinator {
namespace {

bool AnyReady(const std::vector<WorkerStatus>& workers, WorkerRole role) {
  return std::any_of(workers.begin(), workers.end(),
                     [role](const WorkerStatus& worker) {
                       return worker.ready && worker.info.role == role;
                     });
}

bool AnyDraft(const std::vector<WorkerStatus>& workers) {
  return std::any_of(workers.begin(), workers.end(),
                     [](const WorkerStatus& worker) {
                       return worker.info.role == WorkerRole::kDraft;
                     });
}

}  // namespace

Health::Health(Options options)
    : WatchedHealth(options), options_(std::move(options)) {
  Start();
}

void Health::OnTick(const std::vector<WorkerStatus>& workers) {
  const bool has_draft = AnyReady(workers, WorkerRole::kDraft);
  absl::MutexLock lock(&mu_);
  had_draft_ = had_draft_ || AnyDraft(workers);
  const Target before = target_;
  SeeTarget(AnyReady(workers, WorkerRole::kTarget));
  if (target_ == before && has_draft == has_draft_) return;
  if (has_draft != has_draft_ && !drains()) {
    if (has_draft) {
      spdlog::info("a draft takes sessions");
    } else {
      spdlog::warn("degraded: no draft takes sessions");
    }
  }
  has_draft_ = has_draft;
  Publish();
}

void Health::SeeTarget(bool is_there) {
  const Target before = target_;
  const int64_t now_ns = options_.now_ns();
  if (is_there) {
    target_ = Target::kThere;
  } else if (before == Target::kThere && options_.hold_ns > 0) {
    target_ = Target::kAwaited;
    awaited_until_ns_ = After(now_ns, options_.hold_ns);
  } else if (before != Target::kAwaited || now_ns >= awaited_until_ns_) {
    target_ = Target::kNone;
  }
  if (target_ == before || drains()) return;
  switch (target_) {
    case Target::kThere:
      spdlog::info("ready: a target takes sessions");
      break;
    case Target::kAwaited:
      spdlog::warn("no target takes sessions: requests wait for one");
      break;
    case Target::kNone:
      spdlog::warn("not ready: no target takes sessions");
      break;
  }
}

telemetry::HealthState Health::state() const {
  absl::MutexLock lock(&mu_);
  telemetry::HealthState state;
  state.live = IsLive();
  state.ready = IsReady();
  state.note = hangs()                       ? "the dispatcher hangs"
               : drains()                    ? "draining"
               : target_ == Target::kNone    ? "no target takes sessions"
               : target_ == Target::kAwaited ? "waits for a target"
               : had_draft_ && !has_draft_ ? "degraded, no draft takes sessions"
                                           : "";
  return state;
}

void Health::Look() {
  absl::MutexLock lock(&mu_);
  const bool has_changed = Observe(options_.ticks->progress(), MonotonicNs());
  // Without it there would be no tick for as long as nothing is due.
  options_.ticks->WakeAt(MonotonicNs());
  if (!has_changed) return;
  if (hangs()) {
    spdlog::error("the dispatcher hangs: no tick has ended for {} ms",
                  stalled_ms());
  } else {
    spdlog::warn("the dispatcher goes on");
  }
  Publish();
}

}  // namespace nacre::coordinator
