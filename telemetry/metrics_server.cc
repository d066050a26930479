#include "telemetry/metrics_server.h"

#include <netdb.h>
#include <prometheus/exposer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
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

// Connects and hangs up. Does not block; failing is no error.
void Knock(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* peer = nullptr;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &peer) !=
      0) {
    return;
  }
  const int fd = socket(peer->ai_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (fd >= 0) {
    static_cast<void>(connect(fd, peer->ai_addr, peer->ai_addrlen));
    close(fd);
  }
  freeaddrinfo(peer);
}

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

MetricsServer::~MetricsServer() {
  if (exposer_ == nullptr) return;
  // The library's listening thread looks every two seconds whether it is to
  // end, or when somebody connects.
  absl::Notification stopped;
  std::thread stopper([this, &stopped] {
    exposer_.reset();
    stopped.Notify();
  });
  while (!stopped.WaitForNotificationWithTimeout(absl::Milliseconds(10))) {
    Knock(address_);
  }
  stopper.join();
}

}  // namespace nacre::telemetry
