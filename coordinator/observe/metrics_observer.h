// The coordinator's metrics of requests and speculation (docs/metrics.md):
// counts what the observer sees.
//
// Every series exists at 0 from the start. The callbacks cost atomic additions
// and, for histograms, the library's own lock around a few of them.

#ifndef COORDINATOR_OBSERVE_METRICS_OBSERVER_H_
#define COORDINATOR_OBSERVE_METRICS_OBSERVER_H_

#include <prometheus/collectable.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/observer.h"

namespace nacre::coordinator {

class MetricsObserver final : public Observer {
 public:
  // `model` labels the series; `now_ns` is the dispatcher's clock.
  explicit MetricsObserver(const std::string& model,
                           Clock now_ns = MonotonicNs);
  ~MetricsObserver() override;

  // What a MetricsServer serves. Thread-safe.
  std::shared_ptr<prometheus::Collectable> collectable() const;

  void OnQueued(const RequestSpec& request, int position) override;
  void OnRefused(const RequestSpec& request,
                 const absl::Status& status) override;
  void OnStarted(uint64_t session_id, const RequestSpec& request,
                 const Placement& placement, int64_t queue_ns) override;
  void OnOpened(uint64_t session_id, int cached_tokens) override;
  void OnCached(uint64_t session_id, int tokens) override;
  void OnTail(uint64_t session_id, const speculation::Tail& tail) override;
  void OnSpan(uint64_t session_id, WorkerRole role, const SpanRecord& span,
              int64_t clock_offset_ns) override;
  void OnAccepted(uint64_t session_id, int num_shown) override;
  void OnRound(uint64_t session_id, const speculation::Verdict& verdict,
               int num_shown) override;
  void OnVerdictsHandled(int64_t duration_ns) override;
  void OnMoved(uint64_t session_id, const Placement& placement) override;
  void OnFinished(uint64_t session_id, const RequestSpec& request,
                  const absl::Status& status,
                  const Completion* completion) override;
  void OnAnswered(absl::string_view request_id, const absl::Status& status,
                  absl::optional<Finish> finish) override;

 private:
  struct Series;
  // A running request.
  struct Session;

  void CountShown(Session& session, int num_shown);
  void CountRound(Session& session, const speculation::Verdict& verdict);

  const Clock now_ns_;
  const std::unique_ptr<Series> series_;
  // Used by one call at a time.
  absl::flat_hash_map<uint64_t, std::unique_ptr<Session>> sessions_;
  absl::flat_hash_set<std::pair<std::string, int>> queued_;  // id and choice
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_OBSERVE_METRICS_OBSERVER_H_
