// A small HTTP server for pages that programs ask for: metrics, probes. One
// thread serves all connections and waits for none of them, so that no number
// of idle or slow ones delays an answer. Pages that may block are rendered on a
// second thread. Boost.Beast reads and writes the HTTP, Boost.Asio the sockets.
//
// A connection gets one answer, to a GET or HEAD.

#ifndef TELEMETRY_HTTP_SERVER_H_
#define TELEMETRY_HTTP_SERVER_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace nacre::telemetry {

class HttpServer {
 public:
  struct Answer {
    int status = 200;
    std::string body;
  };
  struct Page {
    std::function<Answer()> render;
    // Requests that wait for such a page share one rendering.
    bool may_block = false;
  };
  using Pages = std::map<std::string, Page>;  // by path
  struct Options {
    std::string listen;  // host:port, port 0 picks a free one
    // One more closes the oldest that waits for its client.
    size_t max_connections = 256;
    // Of a client: to ask, and again to take the answer.
    absl::Duration client_timeout = absl::Seconds(5);
    // Of a page that may block: then the answer is 503.
    absl::Duration render_timeout = absl::Seconds(30);
  };

  // Errors: INVALID_ARGUMENT (not host:port), UNAVAILABLE (the address cannot
  // be bound).
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(Options options,
                                                           Pages pages);

  // Waits for pages that are being rendered; none is asked after it.
  ~HttpServer();

  // host:port that was bound.
  const std::string& address() const;

 private:
  class Impl;  // keeps Boost out of this header

  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace nacre::telemetry

#endif  // TELEMETRY_HTTP_SERVER_H_
