// Several observers as one.

#ifndef COORDINATOR_OBSERVE_OBSERVERS_H_
#define COORDINATOR_OBSERVE_OBSERVERS_H_

#include <utility>
#include <vector>

#include "coordinator/dispatch/observer.h"

namespace nacre::coordinator {

// Calls each, in their order. They must outlive it.
class Observers final : public Observer {
 public:
  explicit Observers(std::vector<Observer*> observers)
      : observers_(std::move(observers)) {}

  void OnQueued(const RequestSpec& request, int position) override {
    for (Observer* each : observers_) each->OnQueued(request, position);
  }
  void OnRefused(const RequestSpec& request,
                 const absl::Status& status) override {
    for (Observer* each : observers_) each->OnRefused(request, status);
  }
  void OnStarted(uint64_t session_id, const RequestSpec& request,
                 const Placement& placement, int64_t queue_ns) override {
    for (Observer* each : observers_) {
      each->OnStarted(session_id, request, placement, queue_ns);
    }
  }
  void OnOpened(uint64_t session_id, int cached_tokens) override {
    for (Observer* each : observers_) each->OnOpened(session_id, cached_tokens);
  }
  void OnCached(uint64_t session_id, int tokens) override {
    for (Observer* each : observers_) each->OnCached(session_id, tokens);
  }
  void OnTail(uint64_t session_id, const speculation::Tail& tail) override {
    for (Observer* each : observers_) each->OnTail(session_id, tail);
  }
  void OnSpan(uint64_t session_id, WorkerRole role, const SpanRecord& span,
              int64_t clock_offset_ns) override {
    for (Observer* each : observers_) {
      each->OnSpan(session_id, role, span, clock_offset_ns);
    }
  }
  void OnAccepted(uint64_t session_id, int num_shown) override {
    for (Observer* each : observers_) each->OnAccepted(session_id, num_shown);
  }
  void OnRound(uint64_t session_id, const speculation::Verdict& verdict,
               int num_shown) override {
    for (Observer* each : observers_) {
      each->OnRound(session_id, verdict, num_shown);
    }
  }
  void OnVerdictsHandled(int64_t duration_ns) override {
    for (Observer* each : observers_) each->OnVerdictsHandled(duration_ns);
  }
  void OnMoved(uint64_t session_id, const Placement& placement) override {
    for (Observer* each : observers_) each->OnMoved(session_id, placement);
  }
  void OnFinished(uint64_t session_id, const RequestSpec& request,
                  const absl::Status& status,
                  const Completion* completion) override {
    for (Observer* each : observers_) {
      each->OnFinished(session_id, request, status, completion);
    }
  }
  void OnAnswered(absl::string_view request_id, const absl::Status& status,
                  absl::optional<Finish> finish) override {
    for (Observer* each : observers_) {
      each->OnAnswered(request_id, status, finish);
    }
  }

 private:
  const std::vector<Observer*> observers_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_OBSERVE_OBSERVERS_H_
