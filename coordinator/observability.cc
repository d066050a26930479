#include "coordinator/observability.h"

#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/listen_address.h"
#include "common/status_macros.h"
#include "coordinator/fleet_metrics.h"

namespace nacre::coordinator {

Observability::Observability(Options options)
    : options_(std::move(options)), metrics_(options_.model) {
  std::vector<Observer*> observers = {&metrics_, &logs_};
  if (!options_.otlp_endpoint.empty()) {
    telemetry::OtlpExporter::Options exporter;
    exporter.endpoint = options_.otlp_endpoint;
    exporter.service_name = "nacre-coordinator";
    exporter_ = std::make_unique<telemetry::OtlpExporter>(std::move(exporter));
    TraceObserver::Options traces;
    traces.exporter = exporter_.get();
    traces.model = options_.model;
    traces.sample_ratio = options_.otlp_sample_ratio;
    traces_ = std::make_unique<TraceObserver>(std::move(traces));
    observers.push_back(traces_.get());
  }
  observers_ = std::make_unique<Observers>(std::move(observers));
}

absl::Status Observability::Validate(const Options& options) {
  if (!options.otlp_endpoint.empty() && !IsHostPort(options.otlp_endpoint)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--otlp-endpoint \"", options.otlp_endpoint, "\" is not host:port"));
  }
  // Also false for NaN.
  if (!(options.otlp_sample_ratio >= 0 && options.otlp_sample_ratio <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("--otlp-sample-ratio ",
                                                   options.otlp_sample_ratio,
                                                   " is not in [0, 1]"));
  }
  return absl::OkStatus();
}

absl::Status Observability::Start(RegistryService* registry) {
  if (options_.metrics.listen.empty()) return absl::OkStatus();
  std::vector<telemetry::MetricsServer::Source> sources = {
      metrics_.collectable(), std::make_shared<FleetMetrics>(registry)};
  if (exporter_ != nullptr) sources.push_back(exporter_->collectable());
  NACRE_ASSIGN_OR_RETURN(
      metrics_server_,
      telemetry::MetricsServer::Start(options_.metrics, std::move(sources)));
  spdlog::info("metrics on {}", metrics_server_->address());
  return absl::OkStatus();
}

void Observability::Stop() { metrics_server_.reset(); }

}  // namespace nacre::coordinator
