// Traces of sampled requests: remembers what the observer sees and hands it to
// the exporter, which makes the spans on its own thread.

#ifndef COORDINATOR_TRACE_OBSERVER_H_
#define COORDINATOR_TRACE_OBSERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "coordinator/clock.h"
#include "coordinator/observer.h"
#include "coordinator/request_trace.h"
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

  void OnQueued(const RequestSpec& request, int position) override;
  void OnRefused(const RequestSpec& request,
                 const absl::Status& status) override;
  void OnStarted(uint64_t session_id, const RequestSpec& request,
                 const Placement& placement, int64_t queue_ns) override;
  void OnOpened(uint64_t session_id, int cached_tokens) override;
  void OnSpan(uint64_t session_id, WorkerRole role, const SpanRecord& span,
              int64_t clock_offset_ns) override;
  void OnRound(uint64_t session_id, const speculation::Verdict& verdict,
               int num_shown) override;
  void OnMoved(uint64_t session_id, const Placement& placement) override;
  void OnFinished(uint64_t session_id, const RequestSpec& request,
                  const absl::Status& status,
                  const Completion* completion) override;

 private:
  // Null where the request is not sampled.
  RequestTrace* Find(uint64_t session_id);
  static void Remember(RequestTrace* trace, RequestTrace::Event event);

  const Options options_;
  // Under the dispatcher's lock.
  absl::flat_hash_map<uint64_t, std::unique_ptr<RequestTrace>> traces_;
  // By id and choice.
  absl::flat_hash_map<std::pair<std::string, int>, int> queue_positions_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_TRACE_OBSERVER_H_
