// What a started worker says of its health (grpc.health.v1), kept current by
// one thread of its own that watches the engine:
//
//   liveness   the engine makes progress whenever it has work, and the device
//              computes numbers (worker/soundness.h; once it does not, for
//              good)
//   readiness  and the worker takes new sessions (it does not drain)
//   startup    for good, once there is a Health
//   ""         as readiness

#ifndef WORKER_HEALTH_H_
#define WORKER_HEALTH_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "telemetry/health_state.h"
#include "worker/clock.h"
#include "worker/engine.h"

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
  ~Health();

  // Not ready any more, for good.
  void Drain() ABSL_LOCKS_EXCLUDED(mu_);
  bool hung() const ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the coordinator is to take its sessions away: it hangs, or computes
  // wrongly.
  bool unfit() const ABSL_LOCKS_EXCLUDED(mu_);
  telemetry::HealthState state() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Watch();
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
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace nacre::worker

#endif  // WORKER_HEALTH_H_
