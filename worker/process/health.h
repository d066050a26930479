// What a started worker says of its health (common/rpc/watched_health.h):
//
//   liveness   the engine makes progress whenever it has work, and the device
//              computes numbers (worker/engine/soundness.h). Once it does not,
//              liveness is lost for good
//   readiness  as liveness, and the worker takes new sessions (it does not
//              drain)

#ifndef WORKER_PROCESS_HEALTH_H_
#define WORKER_PROCESS_HEALTH_H_

#include "absl/base/thread_annotations.h"
#include "common/rpc/watched_health.h"
#include "telemetry/health_state.h"
#include "worker/engine/clock.h"
#include "worker/engine/engine.h"

namespace nacre::worker {

// Thread-safe.
class Health final : public rpc::WatchedHealth {
 public:
  struct Options : rpc::HealthOptions {
    const Engine* engine = nullptr;  // outlives this
    Clock now_ns = MonotonicNowNs;
  };

  // Everything is SERVING from here on.
  explicit Health(Options options);
  ~Health() override { Stop(); }

  // Whether the coordinator is to take its sessions away: it hangs, or computes
  // wrongly.
  bool unfit() const ABSL_LOCKS_EXCLUDED(mu_);
  telemetry::HealthState state() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Look() override ABSL_LOCKS_EXCLUDED(mu_);
  bool IsLive() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return WatchedHealth::IsLive() && !computes_wrongly_;
  }

  const Options options_;
  bool computes_wrongly_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_HEALTH_H_
