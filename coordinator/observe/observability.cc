#include "coordinator/observe/observability.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/status_macros.h"
#include "coordinator/observe/fleet_metrics.h"

namespace nacre::coordinator {

Observability::Observability(Options options)
    : options_(std::move(options)), metrics_(options_.model) {
  std::vector<Observer*> observers = {&metrics_, &logs_};
  const telemetry::TraceSettings& settings = options_.traces;
  if (!settings.problem.empty()) {
    spdlog::warn("no traces: {}", settings.problem);
  }
  if (!settings.collector.endpoint.empty()) {
    telemetry::OtlpExporter::Options exporter;
    exporter.collector = settings.collector;
    exporter.service_name = settings.service_name;
    exporter.resource_attributes = settings.resource_attributes;
    exporter_ = std::make_unique<telemetry::OtlpExporter>(std::move(exporter));
    TraceObserver::Options traces;
    traces.exporter = exporter_.get();
    traces.model = options_.model;
    traces.sample_ratio = settings.sample_ratio;
    traces.client_decides = settings.client_decides;
    traces_ = std::make_unique<TraceObserver>(std::move(traces));
    observers.push_back(traces_.get());
    spdlog::info("traces to {} ({}) as {}", settings.collector.endpoint,
                 settings.collector.security.credentials == nullptr
                     ? "plaintext"
                     : "TLS",
                 settings.service_name);
  }
  observers_ = std::make_unique<Observers>(std::move(observers));
}

void Observability::SetServer(const std::string& address) {
  if (traces_ == nullptr) return;
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port)) {
    return;
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') {
    host = host.substr(1, host.size() - 2);
  }
  // All addresses of this host are its name.
  std::array<char, 256> name{};
  if ((host == "0.0.0.0" || host == "::") &&
      gethostname(name.data(), name.size() - 1) == 0) {
    host = name.data();
  }
  traces_->SetServer(host, port);
}

absl::Status Observability::Start(
    RegistryService* registry, const Dispatcher* dispatcher,
    const telemetry::MetricsServer::Health& health) {
  if (options_.metrics.listen.empty()) return absl::OkStatus();
  std::vector<telemetry::MetricsServer::Source> sources = {
      metrics_.collectable(),
      std::make_shared<FleetMetrics>(registry, dispatcher)};
  if (exporter_ != nullptr) sources.push_back(exporter_->collectable());
  NACRE_ASSIGN_OR_RETURN(metrics_server_,
                         telemetry::MetricsServer::Start(
                             options_.metrics, std::move(sources), health));
  spdlog::info("metrics on {}", metrics_server_->address());
  return absl::OkStatus();
}

void Observability::Stop() { metrics_server_.reset(); }

}  // namespace nacre::coordinator
