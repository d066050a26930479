#include "gateway/http_session.h"

#include <boost/asio/error.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gateway/request_head.h"

namespace nacre::gateway {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr size_t kReadBytes = 8192;
// While an answer runs reads only tell that the client has gone.
constexpr size_t kWatchBytes = 512;
// Of requests that a client sends before it has its answer.
constexpr size_t kMaxAheadBytes = 16384;
// An answer that has so much waiting for its client fetches no more.
constexpr size_t kRoomBytes = 16384;
// How long what the client still sends is read and thrown away after the last
// answer. To close at once might destroy what it has yet to receive.
constexpr absl::Duration kLinger = absl::Seconds(2);
constexpr absl::Duration kNoLimit = absl::Hours(24 * 365);
constexpr char kBlankLine[] = "\r\n\r\n";

absl::string_view ToView(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

std::string HeadLine(int status) {
  // No standard has it; the library knows no name.
  if (status == kClientClosedRequest) {
    return absl::StrCat("HTTP/1.1 ", status, " Client Closed Request\r\n");
  }
  const auto known = ToView(http::obsolete_reason(
      http::int_to_status(static_cast<unsigned>(status))));
  return absl::StrCat("HTTP/1.1 ", status, " ", known, "\r\n");
}

// Some servers end a line there, others do not.
bool HasBareLf(absl::string_view head) {
  for (size_t at = head.find('\n'); at != absl::string_view::npos;
       at = head.find('\n', at + 1)) {
    if (at == 0 || head[at - 1] != '\r') return true;
  }
  return false;
}

// `limit` 0: none ever is.
bool IsOlderThan(absl::Duration limit,
                 std::chrono::steady_clock::time_point opened) {
  return limit > absl::ZeroDuration() &&
         absl::FromChrono(std::chrono::steady_clock::now() - opened) >= limit;
}

ApiError TooLate(absl::string_view what, absl::Duration limit) {
  return {
      .status = 408,
      .message = absl::StrCat("the ", what, " of the request took more than ",
                              absl::FormatDuration(limit)),
      .type = "timeout_error"};
}

ApiError SyntaxError(const boost::system::error_code& error,
                     const HttpLimits& limits) {
  if (error == http::error::body_limit) {
    return {.status = 413,
            .message =
                absl::StrCat("the body is longer than ", limits.max_body_bytes,
                             " bytes (--max-request-bytes)")};
  }
  return BadRequest(absl::StrCat("no HTTP/1 request: ", error.message()));
}

HttpRequest HeadOf(const http::request<http::string_body>& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  for (const auto& field : message) {
    request.headers.emplace_back(
        absl::AsciiStrToLower(ToView(field.name_string())),
        std::string(field.value()));
  }
  return request;
}

}  // namespace

HttpSession::HttpSession(std::shared_ptr<SessionHost> host,
                         std::unique_ptr<Transport> transport)
    : host_(std::move(host)),
      transport_(std::move(transport)),
      since_(std::chrono::steady_clock::now()),
      opened_(since_),
      deadline_(*host_->io, [this] { OnTimeout(); }) {}

void HttpSession::Start() {
  ExpectWithin(host_->limits.head_timeout);
  transport_->Handshake(
      [self = shared_from_this()](const Error& error, size_t) {
        if (error) return self->Close();
        if (self->state_ == State::kIdle) self->Receive();
      });
}

void HttpSession::Close() {
  if (state_ == State::kClosed) return;
  const bool was_answering = state_ == State::kAnswering;
  state_ = State::kClosed;
  transport_->Close();
  deadline_.Cancel();
  LetGoOfBody();
  on_room_ = nullptr;
  const auto on_gone = std::exchange(on_gone_, nullptr);
  if (was_answering) {
    --host_->running;
    if (on_gone != nullptr && !ended_) on_gone();
    host_->on_changed();
  }
  host_->on_closed(this);
}

void HttpSession::NextRequest() {
  state_ = State::kIdle;
  since_ = std::chrono::steady_clock::now();
  ExpectWithin(host_->limits.idle_timeout);
  if (!in_.empty()) Parse();
  if (state_ != State::kIdle) return;
  if (!host_->keeps_idle) return Close();
  Receive();
}

void HttpSession::Receive() {
  if (receiving_) return;
  receiving_ = true;
  const size_t size = state_ == State::kAnswering ? kWatchBytes : kReadBytes;
  const std::shared_ptr<char[]> buffer(new char[size]);
  transport_->ReadSome(
      asio::buffer(buffer.get(), size),
      [self = shared_from_this(), buffer](const Error& error, size_t bytes) {
        self->receiving_ = false;
        if (self->state_ != State::kEnding) {
          self->in_.append(buffer.get(), bytes);
        }
        self->OnReceived(error, bytes);
      });
}

void HttpSession::OnReceived(const Error& error, size_t) {
  switch (state_) {
    case State::kClosed:
      return;
    case State::kEnding:
      return error ? Close() : Receive();
    case State::kAnswering:
      if (error && ended_) {
        keep_alive_ = false;  // what is left is still written
      } else if (error) {
        Close();
      } else if (in_.size() <= kMaxAheadBytes) {
        Receive();
      }
      return;
    case State::kIdle:
      return error ? Close() : Parse();
    case State::kHead:
    case State::kBody:
      if (error == asio::error::eof) {
        return Refuse(BadRequest("the request ends early"), in_);
      }
      return error ? Close() : Parse();
  }
}

void HttpSession::Parse() {
  if (state_ == State::kIdle) {
    // Some clients end a body with a line that it does not have.
    if (absl::StartsWith(in_, "\r\n")) in_.erase(0, 2);
    if (in_.empty() || in_ == "\r") return Receive();
    state_ = State::kHead;
    since_ = std::chrono::steady_clock::now();
    // Until the head is read: nothing of the request before holds.
    is_http_1_1_ = true;
    is_head_ = false;
    ExpectWithin(host_->limits.head_timeout);
  }
  if (state_ == State::kHead && !ParseHead()) return;
  if (state_ == State::kBody && !ParseBody()) return;
}

bool HttpSession::ParseHead() {
  const auto limit = static_cast<size_t>(host_->limits.max_head_bytes);
  if (!CanBeginRequest(in_[0])) {
    Refuse(BadRequest("these bytes are no HTTP/1 request"), in_);
    return false;
  }
  const size_t end = in_.find(kBlankLine);
  if (end == std::string::npos ? in_.size() > limit : end + 4 > limit) {
    Refuse({.status = 431,
            .message = absl::StrCat("the head of the request is longer than ",
                                    limit, " bytes")},
           in_);
    return false;
  }
  // At once: by such lines a head never comes to its end.
  if (HasBareLf(absl::string_view(in_).substr(0, end))) {
    Refuse(BadRequest("a line of the head ends with LF and not CR LF"), in_);
    return false;
  }
  if (end == std::string::npos) {
    Receive();
    return false;
  }
  const std::string head = in_.substr(0, end + 4);
  in_.erase(0, end + 4);
  return AcceptHead(head);
}

bool HttpSession::AcceptHead(absl::string_view head) {
  if (auto error = CheckHeadBytes(head)) {
    Refuse(*error, head);
    return false;
  }
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(host_->limits.max_head_bytes));
  parser_->body_limit(static_cast<uint64_t>(host_->limits.max_body_bytes));
  Error error;
  parser_->put(asio::buffer(head.data(), head.size()), error);
  if (error) {
    Refuse(SyntaxError(error, host_->limits), head);
    return false;
  }
  request_ = HeadOf(parser_->get());
  request_id_ = request_.id = RequestIdOf(request_);
  const auto no_target = ReadTarget(ToView(parser_->get().target()), &request_);
  path_ = request_.path;
  is_http_1_1_ = parser_->get().version() == 11;
  is_head_ = request_.method == "HEAD";
  keep_alive_ = parser_->get().keep_alive() && !AsksToClose(request_.headers) &&
                !host_->draining;
  auto refused = CheckHeaders(request_.headers, is_http_1_1_);
  if (!refused) refused = no_target;
  if (refused) {
    Refuse(*refused);
    return false;
  }
  return ExpectBody();
}

bool HttpSession::ExpectBody() {
  if (parser_->is_done()) {
    Dispatch();
    return false;
  }
  state_ = State::kBody;
  chunks_.reset();
  if (parser_->chunked()) {
    chunks_.emplace(static_cast<size_t>(host_->limits.max_head_bytes));
  }
  held_ = std::make_shared<HeldBytes>(host_->held_bytes);
  ExpectWithin(host_->limits.body_timeout);
  if (is_http_1_1_ && in_.empty() && request_.Has("expect")) {
    absl::StrAppend(&out_.tail(), "HTTP/1.1 100 Continue", kBlankLine);
    Flush();
  }
  return true;
}

bool HttpSession::ParseBody() {
  if (chunks_.has_value()) {
    if (auto error = chunks_->Check(in_)) {
      Refuse(*error);
      return false;
    }
  }
  while (!in_.empty() && !parser_->is_done()) {
    Error error;
    const size_t used = parser_->put(asio::buffer(in_), error);
    in_.erase(0, used);
    if (chunks_.has_value()) chunks_->Parsed(used);
    held_->Set(static_cast<int64_t>(parser_->get().body().size()));
    if (error == http::error::need_more) {
      // The length of a chunk, or a trailer, that does not end.
      if (in_.size() <= static_cast<size_t>(host_->limits.max_head_bytes))
        break;
      Refuse(BadRequest("a line between chunks is too long"));
      return false;
    }
    if (error) {
      Refuse(SyntaxError(error, host_->limits));
      return false;
    }
    if (*host_->held_bytes > host_->limits.max_held_bytes) {
      Refuse({.status = 503,
              .message = "too many large requests come at once",
              .type = "service_unavailable_error",
              .retry_after_s = 1});
      return false;
    }
    if (used == 0) break;
  }
  if (parser_->is_done()) {
    Dispatch();
  } else {
    Receive();
  }
  return true;
}

void HttpSession::Dispatch() {
  state_ = State::kAnswering;
  ended_ = chunked_ = false;
  request_.body = std::move(parser_->get().body());
  request_.body_charge = held_;
  parser_.reset();
  in_.shrink_to_fit();
  ++host_->running;
  host_->on_changed();
  ExpectWithin(kNoLimit);
  Receive();
  host_->handler(std::exchange(request_, {}), shared_from_this());
}

void HttpSession::LetGoOfBody() {
  parser_.reset();
  held_.reset();
}

void HttpSession::Refuse(const ApiError& error, absl::string_view head) {
  HttpHeaders headers = ErrorHeaders(error);
  if (host_->refusal_headers != nullptr) {
    const std::string* const origin = request_.Find("origin");
    const HttpHeaders added =
        host_->refusal_headers(origin != nullptr ? *origin : OriginIn(head));
    headers.insert(headers.end(), added.begin(), added.end());
  }
  request_ = {};
  state_ = State::kAnswering;
  ended_ = chunked_ = keep_alive_ = false;
  if (request_id_.empty()) request_id_ = RequestIdOf({});
  LetGoOfBody();
  in_.clear();
  ++host_->running;
  host_->on_changed();
  Send(error.status, headers, ErrorBody(error));
}

void HttpSession::WriteHead(int status, const HttpHeaders& headers,
                            std::optional<size_t> content_length) {
  LetGoOfBody();  // what is answered has been read
  if (host_->draining || IsOlderThan(host_->limits.max_age, opened_)) {
    keep_alive_ = false;
  }
  if (host_->on_answer != nullptr) host_->on_answer(path_, status);
  absl::StrAppend(&out_.tail(), HeadLine(status));
  for (const auto& [name, value] : headers) {
    absl::StrAppend(&out_.tail(), name, ": ", value, "\r\n");
  }
  if (content_length.has_value()) {
    absl::StrAppend(&out_.tail(), "Content-Length: ", *content_length, "\r\n");
  } else if (chunked_) {
    absl::StrAppend(&out_.tail(), "Transfer-Encoding: chunked\r\n");
  }
  absl::StrAppend(
      &out_.tail(), "Connection: ", keep_alive_ ? "keep-alive" : "close",
      "\r\nX-Content-Type-Options: nosniff\r\nX-Request-Id: ", request_id_,
      kBlankLine);
}

void HttpSession::Send(int status, const HttpHeaders& headers,
                       std::string body) {
  if (state_ != State::kAnswering || ended_) return;
  WriteHead(status, headers, body.size());
  if (!is_head_) out_.tail().append(body);
  ended_ = true;
  Flush();
}

void HttpSession::Begin(int status, const HttpHeaders& headers) {
  if (state_ != State::kAnswering || ended_) return;
  chunked_ = is_http_1_1_;
  if (!chunked_) keep_alive_ = false;
  WriteHead(status, headers, std::nullopt);
  Flush();
}

void HttpSession::Write(absl::string_view bytes) {
  // An empty chunk would be the end.
  if (state_ != State::kAnswering || ended_ || bytes.empty()) return;
  if (chunked_) {
    absl::StrAppend(&out_.tail(), absl::Hex(bytes.size()), "\r\n", bytes,
                    "\r\n");
  } else {
    out_.tail().append(bytes.data(), bytes.size());
  }
  Flush();
}

void HttpSession::End() {
  if (state_ != State::kAnswering || ended_) return;
  if (chunked_) absl::StrAppend(&out_.tail(), "0", kBlankLine);
  ended_ = true;
  if (out_.empty()) return AnswerEnded();
  Flush();
}

bool HttpSession::HasRoom() const { return out_.size() < kRoomBytes; }

void HttpSession::OnRoom(std::function<void()> on_room) {
  on_room_ = std::move(on_room);
}

void HttpSession::OnGone(std::function<void()> on_gone) {
  if (state_ == State::kAnswering) {
    on_gone_ = std::move(on_gone);
  } else {
    on_gone();
  }
}

void HttpSession::Flush() {
  if (out_.Begin()) OnWritten({}, 0);
}

void HttpSession::OnWritten(const Error& error, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (error) return Close();
  const bool was_full = !HasRoom();
  out_.Written(bytes);
  if (out_.is_writing()) {
    if (state_ == State::kAnswering) ExpectWithin(host_->limits.write_timeout);
    const absl::string_view rest = out_.unwritten();
    transport_->WriteSome(
        asio::buffer(rest.data(), rest.size()),
        [self = shared_from_this()](const Error& failed, size_t count) {
          self->OnWritten(failed, count);
        });
  } else {
    if (state_ != State::kAnswering) return;
    if (ended_) return AnswerEnded();
    ExpectWithin(kNoLimit);
  }
  if (was_full && HasRoom() && on_room_ != nullptr) {
    const auto on_room = on_room_;  // may be replaced meanwhile
    on_room();
  }
}

void HttpSession::AnswerEnded() {
  on_room_ = on_gone_ = nullptr;
  request_id_.clear();
  path_.clear();
  --host_->running;
  // The client of a connection that was to go on may have sent more by now.
  const bool goes_on = keep_alive_ && (host_->keeps_idle || !in_.empty());
  state_ = goes_on ? State::kIdle : State::kEnding;
  host_->on_changed();
  if (state_ == State::kClosed) return;
  if (goes_on) return NextRequest();
  transport_->EndWrites();
  ExpectWithin(kLinger);
  Receive();
}

void HttpSession::ExpectWithin(absl::Duration timeout) {
  deadline_.Set(timeout, shared_from_this());
}

void HttpSession::OnTimeout() {
  switch (state_) {
    case State::kHead:
      return Refuse(TooLate("head", host_->limits.head_timeout), in_);
    case State::kBody:
      return Refuse(TooLate("body", host_->limits.body_timeout));
    case State::kIdle:
    case State::kAnswering:
    case State::kEnding:
    case State::kClosed:
      return Close();
  }
}

}  // namespace nacre::gateway
