// Serves /metrics in Prometheus' text format (prometheus-cpp over civetweb), on
// a port of its own: scrapes never share a thread with gRPC.

#ifndef TELEMETRY_METRICS_SERVER_H_
#define TELEMETRY_METRICS_SERVER_H_

#include <prometheus/collectable.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace prometheus {
class Exposer;
}

namespace nacre::telemetry {

class MetricsServer {
 public:
  struct Options {
    std::string listen;        // host:port, port 0 picks a free one
    std::string address_file;  // receives the real address; empty: none
  };
  using Source = std::shared_ptr<prometheus::Collectable>;

  // Serves nacre_build_info and what the sources collect; they are asked on
  // the server's threads, at each scrape. Errors: INVALID_ARGUMENT (not
  // host:port), UNAVAILABLE (the address cannot be bound), PERMISSION_DENIED
  // (the address file cannot be written).
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const Options& options, std::vector<Source> sources);

  // Waits for running scrapes: after it nobody asks the sources, and nobody
  // listens.
  ~MetricsServer();

  // host:port that was bound.
  const std::string& address() const { return address_; }

 private:
  MetricsServer() = default;

  std::string address_;
  std::vector<Source> sources_;  // the exposer only keeps weak pointers
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace nacre::telemetry

#endif  // TELEMETRY_METRICS_SERVER_H_
