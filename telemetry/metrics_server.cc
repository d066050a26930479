#include "telemetry/metrics_server.h"

#include <prometheus/exposer.h>

#include <exception>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/listen_address.h"
#include "common/status_macros.h"
#include "telemetry/build_info.h"

namespace nacre::telemetry {
namespace {

class BuildInfoSource final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    return {BuildInfoFamily()};
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const Options& options, std::vector<Source> sources) {
  if (!IsHostPort(options.listen)) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics address \"", options.listen,
                     "\" is not host:port with a port in [0, 65535]"));
  }
  auto server = absl::WrapUnique(new MetricsServer);
  // The library reports by exception; ours end here.
  try {
    server->exposer_ = std::make_unique<prometheus::Exposer>(options.listen);
  } catch (const std::exception&) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", options.listen,
                     ": bad host, or the port is taken"));
  }
  server->sources_ = std::move(sources);
  server->sources_.push_back(std::make_shared<BuildInfoSource>());
  for (const Source& source : server->sources_) {
    server->exposer_->RegisterCollectable(source);
  }
  server->address_ =
      absl::StrCat(options.listen.substr(0, options.listen.rfind(':')), ":",
                   server->exposer_->GetListeningPorts().front());
  if (!options.address_file.empty()) {
    NACRE_RETURN_IF_ERROR(
        WriteAddressFile(options.address_file, server->address_));
  }
  return server;
}

MetricsServer::~MetricsServer() = default;

}  // namespace nacre::telemetry
