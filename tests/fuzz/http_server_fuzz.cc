// Any bytes on a connection of the gateway's server: what reaches the handler
// is a request that no proxy could read in another way, and what comes back is
// HTTP.

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/check.h"
#include "gateway/cors.h"
#include "gateway/event_loop.h"
#include "gateway/http_server.h"
#include "gateway/request_head.h"
#include "tests/testing/loopback.h"

namespace {

namespace gateway = nacre::gateway;

constexpr int64_t kMaxBody = 1024;  // the least that it takes

void Handle(const gateway::HttpRequest& request,
            const std::shared_ptr<gateway::HttpReply>& reply) {
  NACRE_CHECK(request.body.size() <= kMaxBody, "a body over the limit");
  NACRE_CHECK(!request.path.empty() && !request.method.empty(), "no request");
  NACRE_CHECK(!gateway::CheckHeaders(request.headers, /*is_http_1_1=*/false) ||
                  !gateway::CheckHeaders(request.headers, /*is_http_1_1=*/true),
              "headers that are refused");
  for (const auto& [name, value] : request.headers) {
    NACRE_CHECK(std::none_of(name.begin(), name.end(),
                             [](char c) { return c >= 'A' && c <= 'Z'; }),
                "a name in upper case");
    NACRE_CHECK(value.find_first_of("\r\n") == std::string::npos,
                "two lines in one");
  }
  NACRE_CHECK(!request.id.empty() && request.id.size() <= 128, "its id");
  if (request.body.size() % 2 == 0) return reply->Send(200, {}, request.body);
  reply->Begin(200, {});
  reply->Write(request.body);
  reply->End();
}

class Server {
 public:
  Server() {
    gateway::HttpLimits limits;
    limits.max_body_bytes = kMaxBody;
    limits.max_head_bytes = 1024;
    gateway::HttpServer::Options options{"127.0.0.1:0", limits, {}};
    options.refusal_headers = [](const std::string& origin) {
      return gateway::CorsHeaders({"https://a"}, origin);
    };
    auto server =
        gateway::HttpServer::Start(std::move(options), &loop_, Handle);
    NACRE_CHECK(server.ok(), "no server");
    server_ = *std::move(server);
  }
  const std::string& address() const { return server_->address(); }

 private:
  gateway::EventLoop loop_;
  std::unique_ptr<gateway::HttpServer> server_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Server* const server = new Server;
  nacre::testing::LoopbackConnection connection(server->address());
  if (!connection.connected()) {
    // The port of a closed connection stays taken for a minute.
    NACRE_CHECK(errno == EADDRNOTAVAIL, std::strerror(errno));
    return 0;
  }
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  // In two parts, cut where the input says.
  const size_t cut = size == 0 ? 0 : data[size - 1] % (size + 1);
  if (!connection.Send(bytes.substr(0, cut)) ||
      !connection.Send(bytes.substr(cut))) {
    return 0;  // it has hung up: what it said is lost with the connection
  }
  connection.HalfClose();
  const std::string answer = connection.ReadAll();
  NACRE_CHECK(answer.empty() || absl::StartsWith(answer, "HTTP/1.1 "),
              "no HTTP");
  return 0;
}
