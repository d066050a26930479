// Lets several threads tell an observer, one at a time.

#ifndef COORDINATOR_DISPATCH_SERIAL_OBSERVER_H_
#define COORDINATOR_DISPATCH_SERIAL_OBSERVER_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/dispatch/observer.h"

namespace nacre::coordinator {

// Thread-safe. The observer must outlive it; null: nothing is told.
class SerialObserver final : public Observer {
 public:
  explicit SerialObserver(Observer* observer) : observer_(observer) {}

  void OnQueued(const RequestSpec& request, int position) override {
    Tell([&] { observer_->OnQueued(request, position); });
  }
  void OnRefused(const RequestSpec& request,
                 const absl::Status& status) override {
    Tell([&] { observer_->OnRefused(request, status); });
  }
  void OnStarted(uint64_t session_id, const RequestSpec& request,
                 const Placement& placement, int64_t queue_ns) override {
    Tell([&] {
      observer_->OnStarted(session_id, request, placement, queue_ns);
    });
  }
  void OnOpened(uint64_t session_id, int cached_tokens) override {
    Tell([&] { observer_->OnOpened(session_id, cached_tokens); });
  }
  void OnCached(uint64_t session_id, int tokens) override {
    Tell([&] { observer_->OnCached(session_id, tokens); });
  }
  void OnTail(uint64_t session_id, const speculation::Tail& tail) override {
    Tell([&] { observer_->OnTail(session_id, tail); });
  }
  void OnSpan(uint64_t session_id, WorkerRole role, const SpanRecord& span,
              int64_t clock_offset_ns) override {
    Tell([&] { observer_->OnSpan(session_id, role, span, clock_offset_ns); });
  }
  void OnAccepted(uint64_t session_id, int num_shown) override {
    Tell([&] { observer_->OnAccepted(session_id, num_shown); });
  }
  void OnRound(uint64_t session_id, const speculation::Verdict& verdict,
               int num_shown) override {
    Tell([&] { observer_->OnRound(session_id, verdict, num_shown); });
  }
  void OnVerdictsHandled(int64_t duration_ns) override {
    Tell([&] { observer_->OnVerdictsHandled(duration_ns); });
  }
  void OnMoved(uint64_t session_id, const Placement& placement) override {
    Tell([&] { observer_->OnMoved(session_id, placement); });
  }
  void OnFinished(uint64_t session_id, const RequestSpec& request,
                  const absl::Status& status,
                  const Completion* completion) override {
    Tell([&] {
      observer_->OnFinished(session_id, request, status, completion);
    });
  }

  // Returns once a call that is telling it something has ended.
  void PassThrough() ABSL_LOCKS_EXCLUDED(mu_) { absl::MutexLock lock(&mu_); }

 private:
  template <typename Call>
  void Tell(const Call& call) ABSL_LOCKS_EXCLUDED(mu_) {
    if (observer_ == nullptr) return;
    absl::MutexLock lock(&mu_);
    call();
  }

  Observer* const observer_;
  absl::Mutex mu_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_SERIAL_OBSERVER_H_
