// Sends spans to an OpenTelemetry collector (OTLP over gRPC), in batches, from
// a thread of its own. Its caller never waits: what does not fit
// into the queue, and what the collector does not take, is dropped and counted.

#ifndef TELEMETRY_OTLP_EXPORTER_H_
#define TELEMETRY_OTLP_EXPORTER_H_

#include <prometheus/collectable.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "telemetry/collector.h"
#include "telemetry/span.h"

namespace nacre::telemetry {

class OtlpClient;

// Thread-safe.
class OtlpExporter {
 public:
  struct Options {
    Collector collector;
    std::string service_name;  // of this process
    // More of it, or another service.version than the build's.
    std::vector<std::pair<std::string, std::string>> resource_attributes = {};
    size_t max_queued_spans = 16384;
    size_t max_batch_spans = 512;
    absl::Duration max_delay = absl::Seconds(5);  // of a batch that is not full
  };

  explicit OtlpExporter(Options options);
  // Sends what is queued; waits at most two of the collector's timeouts for it.
  ~OtlpExporter();

  // Queues what `make_spans` returns, `count` spans at most; it is called once,
  // on the exporter's thread, or never. Does not block.
  void Export(size_t count, std::function<std::vector<Span>()> make_spans);
  // Spans that were lost before they came here.
  void CountDropped(size_t count);

  // nacre_otlp_exported_spans_total, nacre_otlp_dropped_spans_total{reason}.
  std::shared_ptr<prometheus::Collectable> collectable() const;

 private:
  struct Batch {
    size_t count;
    std::function<std::vector<Span>()> make_spans;
  };
  struct Series;

  void Run();
  void Send(const std::vector<Span>& spans, absl::Time stop_at);

  const Options options_;
  const std::unique_ptr<Series> series_;
  const std::unique_ptr<OtlpClient> client_;
  bool reachable_ = true;  // as of the last call; the thread's own

  absl::Mutex mu_;
  std::deque<Batch> queue_ ABSL_GUARDED_BY(mu_);
  size_t queued_spans_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace nacre::telemetry

#endif  // TELEMETRY_OTLP_EXPORTER_H_
