// One connection of the HTTP server: its requests, one after the other, and
// their answers. For http_server.cc: it includes Boost.Beast.
//
// On the thread of the event loop. Lives as long as an operation of it runs or
// a handler holds it.

#ifndef GATEWAY_HTTP_SESSION_H_
#define GATEWAY_HTTP_SESSION_H_

#include <atomic>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gateway/api_error.h"
#include "gateway/chunk_check.h"
#include "gateway/deadline.h"
#include "gateway/http_message.h"
#include "gateway/http_server.h"
#include "gateway/out_bytes.h"
#include "gateway/transport.h"

namespace nacre::gateway {

// The bytes of one body, counted among those of all.
class HeldBytes {
 public:
  using Total = std::shared_ptr<std::atomic<int64_t>>;

  explicit HeldBytes(Total total) : total_(std::move(total)) {}
  ~HeldBytes() { Set(0); }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;
  void Set(int64_t bytes) { *total_ += bytes - std::exchange(bytes_, bytes); }

 private:
  const Total total_;
  int64_t bytes_ = 0;
};

// What connections share with their server.
struct SessionHost {
  HttpLimits limits;
  HttpHandler handler;
  boost::asio::io_context* io = nullptr;
  bool draining = false;   // answers that begin are their connections' last
  bool keeps_idle = true;  // what waits for a request stays open
  // Of bodies from their first byte until their answer begins and their request
  // is let go. That may be on another thread and after the connection.
  HeldBytes::Total held_bytes = std::make_shared<std::atomic<int64_t>>(0);
  int running = 0;  // requests whose answer has not ended
  // Told when a connection has closed, and when `running` has changed.
  std::function<void(class HttpSession*)> on_closed;
  std::function<void()> on_changed;
  std::function<void(const std::string& path, int status)> on_answer;
  std::function<HttpHeaders(const std::string& origin)> refusal_headers;
};

class HttpSession : public HttpReply,
                    public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(std::shared_ptr<SessionHost> host,
              std::unique_ptr<Transport> transport);

  void Start();
  // Waits for the next request of its client, or for the first.
  bool is_idle() const { return state_ == State::kIdle; }
  // A request of it has begun to come and has not been read to its end.
  bool is_receiving() const {
    return state_ == State::kHead || state_ == State::kBody;
  }
  // Since when it is idle or receives.
  std::chrono::steady_clock::time_point waits_since() const { return since_; }
  void Close();

  void Send(int status, const HttpHeaders& headers, std::string body) override;
  void Begin(int status, const HttpHeaders& headers) override;
  void Write(absl::string_view bytes) override;
  void End() override;
  bool HasRoom() const override;
  void OnRoom(std::function<void()> on_room) override;
  void OnGone(std::function<void()> on_gone) override;

 private:
  using Error = boost::system::error_code;
  using Parser =
      boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class State { kIdle, kHead, kBody, kAnswering, kEnding, kClosed };

  void NextRequest();
  void Receive();
  void OnReceived(const Error& error, size_t bytes);
  void Parse();
  // Each false: no request can be made of what came, and the answer is on its
  // way.
  bool ParseHead();
  bool ParseBody();
  bool AcceptHead(absl::string_view head);
  bool ExpectBody();
  void Dispatch();
  // `head`: what has come of it, where it was not read.
  void Refuse(const ApiError& error, absl::string_view head = {});

  void WriteHead(int status, const HttpHeaders& headers,
                 std::optional<size_t> content_length);
  void Flush();
  void OnWritten(const Error& error, size_t bytes);
  void AnswerEnded();
  void LetGoOfBody();

  // What is awaited comes within that time, or OnTimeout is called.
  void ExpectWithin(absl::Duration timeout);
  void OnTimeout();

  const std::shared_ptr<SessionHost> host_;
  const std::unique_ptr<Transport> transport_;
  State state_ = State::kIdle;
  std::chrono::steady_clock::time_point since_;
  const std::chrono::steady_clock::time_point opened_;
  std::string in_;  // received, not parsed
  bool receiving_ = false;
  std::optional<Parser> parser_;
  std::optional<ChunkCheck> chunks_;  // of a body that comes in chunks
  std::shared_ptr<HeldBytes> held_;   // of the body; shared with its request
  HttpRequest request_;

  // Of the current answer.
  std::string request_id_;
  std::string path_;
  bool is_http_1_1_ = true;
  bool is_head_ = false;  // HEAD: no body is written
  bool keep_alive_ = false;
  bool chunked_ = false;
  bool ended_ = false;
  OutBytes out_;
  std::function<void()> on_room_;
  std::function<void()> on_gone_;

  Deadline deadline_;
};

}  // namespace nacre::gateway

#endif  // GATEWAY_HTTP_SESSION_H_
