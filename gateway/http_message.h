// A request over HTTP and the way to answer it, without the library that reads
// and writes them.
//
// Used on the thread of the event loop only (event_loop.h).

#ifndef GATEWAY_HTTP_MESSAGE_H_
#define GATEWAY_HTTP_MESSAGE_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace nacre::gateway {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // "POST"
  std::string path;     // "/v1/models", without the query
  HttpHeaders headers;  // names in lower case; of the head, never of a trailer
  std::string body;     // without its transfer encoding
  std::string id;       // X-Request-Id where that is a good one, else a new one
  // Counts the body against the server's limit for as long as a copy lives. May
  // be let go on any thread.
  std::shared_ptr<const void> body_charge;

  // The value of the only header of that name (in lower case); null where there
  // is none, or more than one.
  const std::string* Find(absl::string_view name) const;
  // Whether there is one, or more.
  bool Has(absl::string_view name) const;
};

// How one request is answered: Send once, or Begin, any number of Writes and
// End. The connection adds Content-Length, Connection and X-Request-Id. Calls
// after the client has gone do nothing.
class HttpReply {
 public:
  virtual ~HttpReply() = default;

  virtual void Send(int status, const HttpHeaders& headers,
                    std::string body) = 0;

  // A body whose end is not known yet: chunked, or up to the end of the
  // connection where the client speaks HTTP/1.0.
  virtual void Begin(int status, const HttpHeaders& headers) = 0;
  virtual void Write(absl::string_view bytes) = 0;
  virtual void End() = 0;

  // False while so much waits for the client that more should not be fetched.
  // `on_room` is called each time that ends.
  virtual bool HasRoom() const = 0;
  virtual void OnRoom(std::function<void()> on_room) = 0;
  // `on_gone` is called once if the client goes before the answer has ended.
  virtual void OnGone(std::function<void()> on_gone) = 0;
};

// Takes each request. May keep the reply for as long as it takes; lets it go
// after the answer.
using HttpHandler =
    std::function<void(HttpRequest, const std::shared_ptr<HttpReply>&)>;

}  // namespace nacre::gateway

#endif  // GATEWAY_HTTP_MESSAGE_H_
