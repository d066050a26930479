// What the coordinator says of its health (common/rpc/watched_health.h), also
// over HTTP on its metrics port:
//
//   liveness   the ticks go on. So the dispatcher's lock, which every event of
//              a worker and every request takes, is released again
//   readiness  as liveness, and the coordinator does not drain. And a target
//              takes sessions, or requests wait for one that may come back
//
// Where it had a draft and none takes sessions, it is ready, and degraded: it
// says so in its log and over HTTP. Where it never had one, none is missing (as
// for its rounds and metrics).

#ifndef COORDINATOR_API_HEALTH_H_
#define COORDINATOR_API_HEALTH_H_

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/rpc/watched_health.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/status_views.h"
#include "coordinator/dispatch/tick_thread.h"
#include "telemetry/health_state.h"

namespace nacre::coordinator {

// Thread-safe.
class Health final : public rpc::WatchedHealth {
 public:
  struct Options : rpc::HealthOptions {
    // Outlives this; each tick calls OnTick. Each look asks for one.
    TickThread* ticks = nullptr;
    // How long it stays ready after its last target has left, as new requests
    // wait for the next one; 0: they do not.
    int64_t hold_ns = 0;
    Clock now_ns = MonotonicNs;  // of the hold
  };

  // Live from here on, ready when a tick has seen a target.
  explicit Health(Options options);
  ~Health() override { Stop(); }

  // A tick has been through all locks, and these are the workers.
  void OnTick(const std::vector<WorkerStatus>& workers)
      ABSL_LOCKS_EXCLUDED(mu_);

  telemetry::HealthState state() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What a new request meets.
  enum class Target { kNone, kAwaited, kThere };

  void Look() override ABSL_LOCKS_EXCLUDED(mu_);
  bool IsReady() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return WatchedHealth::IsReady() && target_ != Target::kNone;
  }
  void SeeTarget(bool is_there) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  Target target_ ABSL_GUARDED_BY(mu_) = Target::kNone;
  int64_t awaited_until_ns_ ABSL_GUARDED_BY(mu_) = 0;
  bool has_draft_ ABSL_GUARDED_BY(mu_) = false;
  bool had_draft_ ABSL_GUARDED_BY(mu_) = false;  // ready or not
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_HEALTH_H_
