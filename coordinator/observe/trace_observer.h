// Traces of sampled requests: remembers what the observer sees and hands it to
// the exporter, which makes the spans on its own thread.

#ifndef COORDINATOR_OBSERVE_TRACE_OBSERVER_H_
#define COORDINATOR_OBSERVE_TRACE_OBSERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/observer.h"
#include "coordinator/observe/request_trace.h"
#include "telemetry/otlp_exporter.h"

namespace nacre::coordinator {

class TraceObserver final : public Observer {
 public:
  struct Options {
    telemetry::OtlpExporter* exporter = nullptr;  // outlives the observer
    std::string model;
    // Of the requests whose client sends no traceparent; with one the client
    // decides, unless it is not to.
    double sample_ratio = 1.0;
    bool client_decides = true;
    Clock now_ns = MonotonicNs;            // the dispatcher's
    std::function<int64_t()> unix_now_ns;  // empty: the system's clock
  };

  explicit TraceObserver(Options options);
  ~TraceObserver() override;

  // Where clients reach this process, for the requests that start from now on.
  // Any thread may call it.
  void SetServer(const std::string& host, int port) ABSL_LOCKS_EXCLUDED(mu_);

  void OnQueued(const RequestSpec& request, int position) override;
  void OnRefused(const RequestSpec& request,
                 const absl::Status& status) override;
  void OnStarted(uint64_t session_id, const RequestSpec& request,
                 const Placement& placement, int64_t queue_ns) override;
  void OnOpened(uint64_t session_id, int cached_tokens) override;
  void OnCached(uint64_t session_id, int tokens) override;
  void OnSpan(uint64_t session_id, WorkerRole role, const SpanRecord& span,
              int64_t clock_offset_ns) override;
  void OnAccepted(uint64_t session_id, int num_shown) override;
  void OnRound(uint64_t session_id, const speculation::Verdict& verdict,
               int num_shown) override;
  void OnMoved(uint64_t session_id, const Placement& placement) override;
  void OnFinished(uint64_t session_id, const RequestSpec& request,
                  const absl::Status& status,
                  const Completion* completion) override;

 private:
  // The step of a worker that was heard of last: all that it did for one
  // coordinator comes in one message.
  struct LastStep {
    std::string worker;
    int64_t start_ns = 0;
    std::shared_ptr<SharedStep> step;
    telemetry::SpanId last_request{};  // that joined it
  };

  // That of the span, which the request has joined; null for waits and
  // instants.
  std::shared_ptr<const SharedStep> Join(const RequestTrace& trace,
                                         WorkerRole role,
                                         const SpanRecord& span);
  // Null where the request is not sampled.
  RequestTrace* Find(uint64_t session_id);
  static void Remember(RequestTrace* trace, RequestTrace::Event event);

  const Options options_;
  // Used by one call at a time.
  absl::flat_hash_map<uint64_t, std::unique_ptr<RequestTrace>> traces_;
  LastStep last_step_;  // likewise
  // By id and choice.
  absl::flat_hash_map<std::pair<std::string, int>, int> queue_positions_;

  absl::Mutex mu_;
  std::string server_host_ ABSL_GUARDED_BY(mu_);
  int server_port_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_OBSERVE_TRACE_OBSERVER_H_
