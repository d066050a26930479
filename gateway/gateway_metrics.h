// What the gateway tells Prometheus (docs/openai.md, "Metrics").
//
// Thread-safe.

#ifndef GATEWAY_GATEWAY_METRICS_H_
#define GATEWAY_GATEWAY_METRICS_H_

#include <prometheus/collectable.h>

#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "telemetry/metric_builder.h"

namespace nacre::gateway {

class GatewayMetrics {
 public:
  GatewayMetrics() : builder_({}) {}

  // An answer with this status has begun. Paths that are not served count as
  // "other".
  void CountAnswer(const std::string& path, int status);
  // A field that the gateway does not know. Names that are not plain
  // (field_reader.h), and those after the first 32, count as "other".
  void CountIgnored(const std::string& field) ABSL_LOCKS_EXCLUDED(mu_);
  // A call to a coordinator beyond a request's first: `kind` is "retry" before
  // its first token, "resume" after it.
  void CountFurtherCall(const std::string& kind);
  void SetConnections(int connections, int running);

  std::shared_ptr<prometheus::Collectable> collectable() const {
    return builder_.registry();
  }

 private:
  telemetry::MetricBuilder builder_;
  absl::Mutex mu_;
  std::set<std::string> fields_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::gateway

#endif  // GATEWAY_GATEWAY_METRICS_H_
