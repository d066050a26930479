// Why a worker's main thread should end the process, told by any thread.
//
// Thread-safe.

#ifndef WORKER_PROCESS_EXIT_SIGNAL_H_
#define WORKER_PROCESS_EXIT_SIGNAL_H_

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace nacre::worker {

class ExitSignal {
 public:
  // Finish what is open, then exit: a termination signal, or the coordinator.
  void Drain() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    draining_ = true;
  }
  // Exit now; the first failure counts.
  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (failure_.ok()) failure_ = status;
  }

  // Returns when either has been called.
  void Wait() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(this, &ExitSignal::Requested));
  }
  // Likewise, and true; false: EndLoading has been called before.
  bool WaitWhileLoading() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(this, &ExitSignal::EndedOrRequested));
    return !loaded_;
  }
  void EndLoading() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    loaded_ = true;
  }
  // Returns on Fail, or after `timeout`.
  void WaitForFailure(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(this, &ExitSignal::Failed), timeout);
  }

  bool draining() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return draining_;
  }
  // OK while nothing has failed.
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return failure_;
  }

 private:
  bool Failed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !failure_.ok();
  }
  bool Requested() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return draining_ || Failed();
  }
  bool EndedOrRequested() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return loaded_ || Requested();
  }

  mutable absl::Mutex mu_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool loaded_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_EXIT_SIGNAL_H_
