// All that watches the coordinator from inside, behind one observer: metrics,
// the log of requests, traces.

#ifndef COORDINATOR_OBSERVE_OBSERVABILITY_H_
#define COORDINATOR_OBSERVE_OBSERVABILITY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "coordinator/api/registry_service.h"
#include "coordinator/dispatch/dispatcher.h"
#include "coordinator/observe/log_observer.h"
#include "coordinator/observe/metrics_observer.h"
#include "coordinator/observe/observers.h"
#include "coordinator/observe/trace_observer.h"
#include "telemetry/metrics_server.h"
#include "telemetry/otlp_exporter.h"
#include "telemetry/trace_settings.h"

namespace nacre::coordinator {

// Must outlive the dispatcher and the services.
class Observability {
 public:
  struct Options {
    std::string model;                          // labels the metrics
    telemetry::MetricsServer::Options metrics;  // listen empty: not served
    telemetry::TraceSettings traces;            // no collector: none
  };

  explicit Observability(Options options);

  Observer* observer() { return observers_.get(); }

  const MetricsObserver& metrics() const { return metrics_; }

  // Where clients are served, host:port as it was bound.
  void SetServer(const std::string& address);

  // Begins to serve; probes where there is `health`. Both are asked until Stop.
  // Errors: those of MetricsServer::Start.
  absl::Status Start(RegistryService* registry, const Dispatcher* dispatcher,
                     const telemetry::MetricsServer::Health& health = nullptr);

  // host:port of /metrics; empty where it is not served.
  std::string metrics_address() const {
    return metrics_server_ == nullptr ? "" : metrics_server_->address();
  }

  // Registry, dispatcher and health are asked no more.
  void Stop();

 private:
  const Options options_;
  MetricsObserver metrics_;
  LogObserver logs_;
  std::unique_ptr<telemetry::OtlpExporter> exporter_;  // null: no traces
  std::unique_ptr<TraceObserver> traces_;
  std::unique_ptr<Observers> observers_;
  std::unique_ptr<telemetry::MetricsServer> metrics_server_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_OBSERVE_OBSERVABILITY_H_
