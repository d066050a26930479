// What a process says of its health (grpc.health.v1), kept current by one
// thread of its own that looks whether something makes progress:
//
//   liveness   what a derived class says; at least that nothing hangs
//   readiness  as liveness, and the process does not drain, and what else a
//              derived class asks for
//   startup    for good, once it has started
//   ""         as readiness

#ifndef COMMON_RPC_WATCHED_HEALTH_H_
#define COMMON_RPC_WATCHED_HEALTH_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/periodic_thread.h"
#include "common/watchdog.h"

namespace nacre::rpc {

struct HealthOptions {
  // RpcServer::SetServing of all servers, which outlive this.
  std::function<void(const std::string& service, bool serving)> set_serving;
  absl::Duration hang_timeout = absl::Seconds(8);
  // Of looking at what is watched. A hang shows two periods after hang_timeout.
  absl::Duration period = absl::Milliseconds(500);
};

// Thread-safe. A derived class calls Start at the end of its constructor and
// Stop at the beginning of its destructor: in between Look is called.
class WatchedHealth {
 public:
  WatchedHealth(const WatchedHealth&) = delete;
  WatchedHealth& operator=(const WatchedHealth&) = delete;

  // Not ready any more, for good.
  void Drain() ABSL_LOCKS_EXCLUDED(mu_);
  bool hung() const ABSL_LOCKS_EXCLUDED(mu_);

 protected:
  explicit WatchedHealth(const HealthOptions& options);
  virtual ~WatchedHealth() = default;

  void Start() ABSL_LOCKS_EXCLUDED(mu_);
  void Stop() { thread_.Stop(); }

  // Once a period: to call Observe, at least.
  virtual void Look() ABSL_LOCKS_EXCLUDED(mu_) = 0;
  virtual bool IsLive() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !hung_;
  }
  virtual bool IsReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return IsLive() && !draining_;
  }

  // Whether what is watched has begun to hang, or goes on.
  bool Observe(const Progress& progress, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells the servers what follows from IsLive and IsReady.
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool hangs() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return hung_; }
  bool drains() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return draining_; }
  int64_t stalled_ms() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return watchdog_.stalled_ns() / 1'000'000;
  }

  mutable absl::Mutex mu_;

 private:
  const HealthOptions options_;
  bool hung_ ABSL_GUARDED_BY(mu_) = false;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  Watchdog watchdog_ ABSL_GUARDED_BY(mu_);
  PeriodicThread thread_;
};

}  // namespace nacre::rpc

#endif  // COMMON_RPC_WATCHED_HEALTH_H_
