// An HTTP/1 server for a public port: limits on everything that a client sends
// or leaves undone, bodies of any framing, streams with back-pressure.
//
// Every connection lives on the thread of the event loop. Boost.Beast parses,
// Boost.Asio moves bytes.

#ifndef GATEWAY_HTTP_SERVER_H_
#define GATEWAY_HTTP_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/flag_set.h"
#include "common/rpc/security.h"
#include "gateway/event_loop.h"
#include "gateway/http_message.h"

namespace nacre::gateway {

struct HttpLimits {
  int max_connections = 4096;
  int64_t max_body_bytes = int64_t{8} << 20;
  // Of all connections together, until their answers begin.
  int64_t max_held_bytes = int64_t{256} << 20;
  int max_head_bytes = 16384;
  // From the first byte of a request to the end of its head, and from there to
  // the end of its body.
  absl::Duration head_timeout = absl::Seconds(10);
  absl::Duration body_timeout = absl::Seconds(30);
  // Between two requests of a connection.
  absl::Duration idle_timeout = absl::Seconds(75);
  // A client that takes nothing of its answer for so long is gone.
  absl::Duration write_timeout = absl::Seconds(30);
  // The first answer that begins after that is a connection's last; 0: there is
  // none.
  absl::Duration max_age;
  // How long a drain keeps connections that wait for a request.
  absl::Duration drain_idle = absl::Seconds(5);

  // --max-connections, --max-connection-age, --max-request-bytes,
  // --max-header-bytes and the timeouts.
  void Register(FlagSet* flags);
  // INVALID_ARGUMENT names the flag, the value and the limit.
  absl::Status Validate() const;
};

class HttpServer {
 public:
  struct Options {
    std::string listen;  // host:port, port 0 picks a free one
    HttpLimits limits;
    rpc::TlsFiles tls;  // certificate and key; empty: plaintext
    absl::Duration tls_reload_period = rpc::kTlsReloadPeriod;
    // Told on the loop when an answer begins; the path is "" where no request
    // could be read. May be left out.
    std::function<void(const std::string& path, int status)> on_answer;
    // Of answers to what never becomes a request for the handler. `origin`: its
    // only Origin, as far as it can be read; else empty. May be left out.
    std::function<HttpHeaders(const std::string& origin)> refusal_headers;
  };

  // The loop must outlive the server. Errors: INVALID_ARGUMENT (not host:port),
  // UNAVAILABLE (the address cannot be bound), those of
  // rpc::CheckCertificateAndKey.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(Options options,
                                                           EventLoop* loop,
                                                           HttpHandler handler);
  // Closes all connections at once.
  ~HttpServer();

  // host:port that was bound.
  const std::string& address() const;

  // Accepts nothing more and waits for running answers up to `timeout`. Each
  // connection is closed after its next answer, and one without a request after
  // `drain_idle`, or half of `timeout` where that is less. Not on the loop's
  // thread. Whether all ended.
  bool Drain(absl::Duration timeout);

  int connections() const;
  int running() const;  // requests whose answer has not ended

  class Impl;  // keeps Boost out of this header

 private:
  explicit HttpServer(std::shared_ptr<Impl> impl);

  const std::shared_ptr<Impl> impl_;
};

}  // namespace nacre::gateway

#endif  // GATEWAY_HTTP_SERVER_H_
