// What the coordinator says of its health (grpc.health.v1, and over HTTP on its
// metrics port), kept current by one thread of its own. The names mean what
// they mean of a worker (worker/process/health.h):
//
//   liveness   the ticks go on. So the dispatcher's lock, which every event of
//              a worker and every request takes, is released again
//   readiness  as liveness, and the coordinator does not drain. And a target
//              takes sessions, or requests wait for one that may come back
//   startup    for good, once there is a Health
//   ""         as readiness
//
// Where it had a draft and none takes sessions, it is ready, and degraded: it
// says so in its log and over HTTP. Where it never had one, none is missing (as
// for its rounds and metrics).

#ifndef COORDINATOR_API_HEALTH_H_
#define COORDINATOR_API_HEALTH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/periodic_thread.h"
#include "common/watchdog.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/status_views.h"
#include "coordinator/dispatch/tick_thread.h"
#include "telemetry/health_state.h"

namespace nacre::coordinator {

// Thread-safe.
class Health {
 public:
  struct Options {
    TickThread* ticks = nullptr;  // outlives this; each tick calls OnTick
    // CoordinatorServers::SetServing, which outlives this.
    std::function<void(const std::string& service, bool serving)> set_serving;
    absl::Duration hang_timeout = absl::Seconds(8);
    // Of asking for a tick and looking whether the last one came. A hang shows
    // two periods after hang_timeout.
    absl::Duration period = absl::Milliseconds(500);
    // How long it stays ready after its last target has left, as new requests
    // wait for the next one; 0: they do not.
    int64_t hold_ns = 0;
    Clock now_ns = MonotonicNs;  // of the hold
  };

  // Live from here on, ready when a tick has seen a target.
  explicit Health(Options options);

  // A tick has been through all locks, and these are the workers.
  void OnTick(const std::vector<WorkerStatus>& workers)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Not ready any more, for good.
  void Drain() ABSL_LOCKS_EXCLUDED(mu_);

  telemetry::HealthState state() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What a new request meets.
  enum class Target { kNone, kAwaited, kThere };

  // Whether what it watches hangs, once a period.
  void Look() ABSL_LOCKS_EXCLUDED(mu_);
  void SeeTarget(bool is_there) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells the servers what follows from the fields below.
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable absl::Mutex mu_;
  bool hung_ ABSL_GUARDED_BY(mu_) = false;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  Target target_ ABSL_GUARDED_BY(mu_) = Target::kNone;
  int64_t awaited_until_ns_ ABSL_GUARDED_BY(mu_) = 0;
  bool has_draft_ ABSL_GUARDED_BY(mu_) = false;
  bool had_draft_ ABSL_GUARDED_BY(mu_) = false;  // ready or not
  Watchdog watchdog_ ABSL_GUARDED_BY(mu_);
  PeriodicThread thread_;  // the last member: it uses the others
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_HEALTH_H_
