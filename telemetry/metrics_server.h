// Serves /metrics in Prometheus' text format and what probes ask for, on a port
// of its own. Neither shares a thread with gRPC, nor one with the other. A
// scrape that hangs and connections that say nothing delay no probe.
//
//   /startup /liveness /readiness   200, or 503 where it is not so; the body
//                                   says why. As the services of
//                                   grpc.health.v1, for probes that cannot do
//                                   gRPC or TLS.

#ifndef TELEMETRY_METRICS_SERVER_H_
#define TELEMETRY_METRICS_SERVER_H_

#include <prometheus/collectable.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "telemetry/health_state.h"
#include "telemetry/http_server.h"

namespace nacre::telemetry {

class MetricsServer {
 public:
  struct Options {
    std::string listen;        // host:port, port 0 picks a free one
    std::string address_file;  // receives the real address; empty: none
  };
  using Source = std::shared_ptr<prometheus::Collectable>;
  using Health = std::function<HealthState()>;

  // Serves nacre_build_info and what the sources collect. They are asked on a
  // thread of their own, where they may block. Scrapes that come meanwhile
  // share the next answer. `health` is asked at each request and must not
  // block; without it there are no probes. Errors: INVALID_ARGUMENT (not
  // host:port), UNAVAILABLE (the address cannot be bound), PERMISSION_DENIED
  // (the address file cannot be written).
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const Options& options, std::vector<Source> sources,
      const Health& health = nullptr);

  // host:port that was bound.
  const std::string& address() const { return server_->address(); }

 private:
  MetricsServer() = default;

  // Its destructor waits for running requests: after it the sources
  // are not asked, and the port is closed.
  std::unique_ptr<HttpServer> server_;
};

}  // namespace nacre::telemetry

#endif  // TELEMETRY_METRICS_SERVER_H_
