// What a started worker says of its health (grpc.health.v1), kept current by
// one thread of its own that watches the engine:
//
//   liveness   the engine makes progress whenever it has work, and the device
//              computes numbers (worker/engine/soundness.h). Once it does not,
//              liveness is lost for good
//   readiness  as liveness, and the worker takes new sessions (it does not
//              drain)
//   startup    for good, once there is a Health
//   ""         as readiness

#ifndef WORKER_PROCESS_HEALTH_H_
#define WORKER_PROCESS_HEALTH_H_

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/periodic_thread.h"
#include "common/watchdog.h"
#include "telemetry/health_state.h"
#include "worker/engine/clock.h"
#include "worker/engine/engine.h"

namespace nacre::worker {

// Thread-safe.
class Health {
 public:
  struct Options {
    const Engine* engine = nullptr;  // outlives this
    // rpc::RpcServer::SetServing, which outlives this.
    std::function<void(const std::string& service, bool serving)> set_serving;
    absl::Duration hang_timeout = absl::Seconds(8);
    // Of looking at the engine. A hang shows two periods after hang_timeout.
    absl::Duration period = absl::Milliseconds(500);
    Clock now_ns = MonotonicNowNs;
  };

  // Everything is SERVING from here on.
  explicit Health(Options options);

  // Not ready any more, for good.
  void Drain() ABSL_LOCKS_EXCLUDED(mu_);
  bool hung() const ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the coordinator is to take its sessions away: it hangs, or computes
  // wrongly.
  bool unfit() const ABSL_LOCKS_EXCLUDED(mu_);
  telemetry::HealthState state() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Whether what it watches hangs, once a period.
  void Look() ABSL_LOCKS_EXCLUDED(mu_);
  bool IsLive() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !hung_ && !computes_wrongly_;
  }
  // Tells the server what follows from the states below.
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable absl::Mutex mu_;
  bool hung_ ABSL_GUARDED_BY(mu_) = false;
  bool computes_wrongly_ ABSL_GUARDED_BY(mu_) = false;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  Watchdog watchdog_ ABSL_GUARDED_BY(mu_);
  PeriodicThread thread_;  // the last member: it uses the others
};

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_HEALTH_H_
