#include "telemetry/metrics_server.h"

#include <CivetServer.h>
#include <netdb.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <iterator>
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

struct Answer {
  bool ok = true;
  std::string body;
};

Answer RenderMetrics(const std::vector<MetricsServer::Source>& sources) {
  std::vector<prometheus::MetricFamily> families = {BuildInfoFamily()};
  for (const MetricsServer::Source& source : sources) {
    std::vector<prometheus::MetricFamily> more = source->Collect();
    std::move(more.begin(), more.end(), std::back_inserter(families));
  }
  const prometheus::TextSerializer serializer;
  return {true, serializer.Serialize(families)};
}

Answer RenderProbe(bool ok, const std::string& note) {
  return {ok, absl::StrCat(ok ? "ok" : "not ok", note.empty() ? "" : ": ", note,
                           "\n")};
}

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

// Answers GET; several at once.
class MetricsServer::Page final : public CivetHandler {
 public:
  explicit Page(std::function<Answer()> render) : render_(std::move(render)) {}

  using CivetHandler::handleGet;
  bool handleGet(CivetServer*, mg_connection* connection) override {
    const Answer answer = render_();
    const std::string text = absl::StrCat(
        "HTTP/1.1 ", answer.ok ? "200 OK" : "503 Service Unavailable",
        "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8"
        "\r\nContent-Length: ",
        answer.body.size(), "\r\nConnection: close\r\n\r\n", answer.body);
    // Whoever has hung up needs no answer.
    static_cast<void>(mg_write(connection, text.data(), text.size()));
    return true;
  }

 private:
  const std::function<Answer()> render_;
};

MetricsServer::MetricsServer() = default;

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const Options& options, std::vector<Source> sources, Health health) {
  if (!IsHostPort(options.listen)) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics address \"", options.listen,
                     "\" is not host:port with a port in [0, 65535]"));
  }
  auto server = absl::WrapUnique(new MetricsServer);
  // The library reports by exception; ours end here.
  try {
    server->server_ = std::make_unique<CivetServer>(std::vector<std::string>{
        "listening_ports", options.listen, "num_threads", "2"});
  } catch (const std::exception&) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", options.listen,
                     ": bad host, or the port is taken"));
  }
  server->AddPages(std::move(sources), health);
  server->address_ =
      absl::StrCat(options.listen.substr(0, options.listen.rfind(':')), ":",
                   server->server_->getListeningPorts().front());
  if (!options.address_file.empty()) {
    NACRE_RETURN_IF_ERROR(
        WriteAddressFile(options.address_file, server->address_));
  }
  return server;
}

void MetricsServer::AddPages(std::vector<Source> sources,
                             const Health& health) {
  const auto add = [this](const char* path, std::function<Answer()> render) {
    pages_.push_back(std::make_unique<Page>(std::move(render)));
    server_->addHandler(path, *pages_.back());
  };
  add("/metrics",
      [sources = std::move(sources)] { return RenderMetrics(sources); });
  if (!health) return;
  // Who answers has started.
  add("/startup", [] { return RenderProbe(true, ""); });
  add("/liveness", [health] {
    const HealthState state = health();
    return RenderProbe(state.live, state.live ? "" : state.note);
  });
  add("/readiness", [health] {
    const HealthState state = health();
    return RenderProbe(state.ready, state.note);
  });
}

MetricsServer::~MetricsServer() {
  if (server_ == nullptr) return;
  // The library's listening thread looks every two seconds whether it is to
  // end, or when somebody connects.
  absl::Notification stopped;
  std::thread stopper([this, &stopped] {
    server_.reset();
    stopped.Notify();
  });
  while (!stopped.WaitForNotificationWithTimeout(absl::Milliseconds(10))) {
    Knock(address_);
  }
  stopper.join();
}

}  // namespace nacre::telemetry
