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
    : options_(std::move(options)),
      watchdog_(options_.hang_timeout, options_.period) {
  {
    absl::MutexLock lock(&mu_);
    Publish();
  }
  thread_.Start(options_.period, [this] { Look(); });
}

void Health::OnTick(const std::vector<WorkerStatus>& workers) {
  const bool has_draft = AnyReady(workers, WorkerRole::kDraft);
  absl::MutexLock lock(&mu_);
  had_draft_ = had_draft_ || AnyDraft(workers);
  const Target before = target_;
  SeeTarget(AnyReady(workers, WorkerRole::kTarget));
  if (target_ == before && has_draft == has_draft_) return;
  if (has_draft != has_draft_ && !draining_) {
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
  if (target_ == before || draining_) return;
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

void Health::Drain() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
  Publish();
}

telemetry::HealthState Health::state() const {
  absl::MutexLock lock(&mu_);
  telemetry::HealthState state;
  state.live = !hung_;
  state.ready = IsReady();
  state.note = hung_                         ? "the dispatcher hangs"
               : draining_                   ? "draining"
               : target_ == Target::kNone    ? "no target takes sessions"
               : target_ == Target::kAwaited ? "waits for a target"
               : had_draft_ && !has_draft_ ? "degraded, no draft takes sessions"
                                           : "";
  return state;
}

bool Health::IsReady() const {
  return !hung_ && !draining_ && target_ != Target::kNone;
}

void Health::Publish() {
  options_.set_serving("startup", true);
  options_.set_serving("liveness", !hung_);
  options_.set_serving("readiness", IsReady());
  options_.set_serving("", IsReady());
}

void Health::Look() {
  absl::MutexLock lock(&mu_);
  const bool hung =
      watchdog_.Observe(options_.ticks->progress(), MonotonicNs());
  // Without it there would be no tick for as long as nothing is due.
  options_.ticks->WakeAt(MonotonicNs());
  if (hung == hung_) return;
  hung_ = hung;
  if (hung) {
    spdlog::error("the dispatcher hangs: no tick has ended for {} ms",
                  watchdog_.stalled_ns() / 1'000'000);
  } else {
    spdlog::warn("the dispatcher goes on");
  }
  Publish();
}

}  // namespace nacre::coordinator
