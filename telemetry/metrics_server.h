// Serves /metrics in Prometheus' text format and what probes ask for
// (civetweb), on a port of its own: neither shares a thread with gRPC.
//
//   /startup /liveness /readiness   200, or 503 where it is not so; the body
//   says
//                                   why. As the services of grpc.health.v1, for
//                                   probes that cannot do gRPC or TLS.

#ifndef TELEMETRY_METRICS_SERVER_H_
#define TELEMETRY_METRICS_SERVER_H_

#include <prometheus/collectable.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "telemetry/health_state.h"

class CivetServer;

namespace nacre::telemetry {

class MetricsServer {
 public:
  struct Options {
    std::string listen;        // host:port, port 0 picks a free one
    std::string address_file;  // receives the real address; empty: none
  };
  using Source = std::shared_ptr<prometheus::Collectable>;
  using Health = std::function<HealthState()>;

  // Serves nacre_build_info and what the sources collect; they and `health` are
  // asked on the server's threads, at each request. Without `health` there are
  // no probes. Errors: INVALID_ARGUMENT (not host:port), UNAVAILABLE (the
  // address cannot be bound), PERMISSION_DENIED (the address file cannot be
  // written).
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const Options& options, std::vector<Source> sources,
      Health health = nullptr);

  // Waits for running requests: after it nobody asks the sources, and nobody
  // listens.
  ~MetricsServer();

  // host:port that was bound.
  const std::string& address() const { return address_; }

 private:
  class Page;

  MetricsServer();
  void AddPages(std::vector<Source> sources, const Health& health);

  std::string address_;
  std::vector<std::unique_ptr<Page>> pages_;
  std::unique_ptr<CivetServer> server_;
};

}  // namespace nacre::telemetry

#endif  // TELEMETRY_METRICS_SERVER_H_
