#include "gateway/http_server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/system_error.hpp>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/listen_address.h"
#include "common/status_macros.h"
#include "gateway/http_session.h"
#include "gateway/transport.h"

namespace nacre::gateway {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

// How long it accepts nothing where it cannot.
constexpr std::chrono::milliseconds kAcceptPause(100);

// Throws a system_error that says why no address can be bound.
tcp::acceptor BindAcceptor(boost::asio::io_context& io,
                           const std::string& listen) {
  const size_t colon = listen.rfind(':');
  std::string host = listen.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  error_code reason;
  for (const auto& entry : tcp::resolver(io).resolve(
           host, listen.substr(colon + 1),
           tcp::resolver::numeric_service | tcp::resolver::passive)) {
    try {
      return tcp::acceptor(io, entry.endpoint());
    } catch (const boost::system::system_error& error) {
      if (!reason) reason = error.code();
    }
  }
  throw boost::system::system_error(reason);
}

absl::Status CheckRange(absl::string_view flag, int64_t value, int64_t least,
                        int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, " is ", value, ", must be in [", least, ", ", most, "]"));
}

absl::Status CheckPositive(absl::string_view flag, absl::Duration value) {
  if (value > absl::ZeroDuration() && value <= absl::Hours(24)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, " is ", absl::FormatDuration(value),
                   ", must be over 0 and at most 24h"));
}

}  // namespace

void HttpLimits::Register(FlagSet* flags) {
  flags->Add("max-connections", "N", &max_connections,
             "one more takes the place of the one idle for longest, or else of "
             "the one whose request comes for longest");
  flags->Add("max-connection-age", "DURATION", &max_age,
             "an answer that begins after that is the last of its connection, "
             "and its client makes another; 0: there is no such limit");
  flags->Add("max-request-bytes", "N", &max_body_bytes,
             "a longer body is answered with 413");
  flags->Add("max-held-bytes", "N", &max_held_bytes,
             "of all bodies whose answer has not begun; over it: 503");
  flags->Add("max-header-bytes", "N", &max_head_bytes,
             "of a request line and its headers; over it: 431");
  flags->Add("header-timeout", "DURATION", &head_timeout,
             "for a TLS handshake, and for a head; over it: 408");
  flags->Add("body-timeout", "DURATION", &body_timeout,
             "for a body; over it: 408");
  flags->Add("idle-timeout", "DURATION", &idle_timeout,
             "between two requests of a connection, then it is closed");
  flags->Add("write-timeout", "DURATION", &write_timeout,
             "a client that takes nothing of its answer for so long is gone");
  flags->Add("drain-idle", "DURATION", &drain_idle,
             "how long SIGTERM leaves connections open that wait for a "
             "request, which is then their last; at most half of "
             "--drain-timeout");
}

absl::Status HttpLimits::Validate() const {
  NACRE_RETURN_IF_ERROR(
      CheckRange("max-connections", max_connections, 1, 1 << 20));
  NACRE_RETURN_IF_ERROR(
      CheckRange("max-request-bytes", max_body_bytes, 1024, int64_t{1} << 30));
  NACRE_RETURN_IF_ERROR(CheckRange("max-held-bytes", max_held_bytes,
                                   max_body_bytes, int64_t{1} << 40));
  NACRE_RETURN_IF_ERROR(
      CheckRange("max-header-bytes", max_head_bytes, 1024, 1 << 20));
  NACRE_RETURN_IF_ERROR(CheckPositive("header-timeout", head_timeout));
  NACRE_RETURN_IF_ERROR(CheckPositive("body-timeout", body_timeout));
  NACRE_RETURN_IF_ERROR(CheckPositive("idle-timeout", idle_timeout));
  NACRE_RETURN_IF_ERROR(CheckPositive("write-timeout", write_timeout));
  if (drain_idle < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--drain-idle is ", absl::FormatDuration(drain_idle), ", below 0"));
  }
  return max_age == absl::ZeroDuration()
             ? absl::OkStatus()
             : CheckPositive("max-connection-age", max_age);
}

class HttpServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  // Throws what BindAcceptor throws.
  Impl(Options options, EventLoop* loop, HttpHandler handler,
       std::unique_ptr<TransportFactory> transports)
      : loop_(loop),
        transports_(std::move(transports)),
        acceptor_(BindAcceptor(loop->io(), options.listen)),
        accept_pause_(loop->io()),
        address_(
            absl::StrCat(options.listen.substr(0, options.listen.rfind(':')),
                         ":", acceptor_.local_endpoint().port())) {
    host_->limits = options.limits;
    host_->handler = std::move(handler);
    host_->on_answer = std::move(options.on_answer);
    host_->refusal_headers = std::move(options.refusal_headers);
    host_->io = &loop->io();
  }

  void Start() {
    host_->on_changed = [this] { Count(); };
    host_->on_closed = [this](HttpSession* session) {
      sessions_.erase(session);
      Count();
    };
    loop_->Post([self = shared_from_this()] { self->Accept(); });
  }

  void Close() {
    acceptor_.close();
    accept_pause_.cancel();
    closed_ = true;
    host_->draining = true;
    host_->keeps_idle = false;
    const std::set<HttpSession*> sessions = sessions_;
    for (HttpSession* session : sessions) session->shared_from_this()->Close();
    host_->handler = nullptr;
  }

  // What comes is answered, and its connection closed after that. A proxy may
  // send a request on a connection that it keeps before it hears that it is
  // closed. It must not repeat a POST. So connections that wait for a request
  // stay for a while.
  void BeginDrain(absl::Duration timeout) {
    acceptor_.close();
    closed_ = true;
    host_->draining = true;
    const absl::Duration kept = std::min(host_->limits.drain_idle, timeout / 2);
    if (kept <= absl::ZeroDuration()) return CloseIdle();
    loop_->PostAfter(kept, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->CloseIdle();
    });
  }

  bool AwaitRest(absl::Duration timeout) {
    const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return connections_ == 0;
    };
    absl::MutexLock lock(&mu_);
    return mu_.AwaitWithTimeout(absl::Condition(&ended), timeout);
  }

  const std::string& address() const { return address_; }
  EventLoop* loop() const { return loop_; }
  int connections() const {
    absl::MutexLock lock(&mu_);
    return connections_;
  }
  int running() const {
    absl::MutexLock lock(&mu_);
    return running_;
  }

 private:
  void Accept() {
    if (closed_) return;
    acceptor_.async_accept(
        [self = shared_from_this()](error_code error, tcp::socket socket) {
          if (self->closed_) return;
          if (error) return self->Pause();
          self->Take(std::move(socket));
          self->Accept();
        });
  }

  // Mostly because the process has no descriptors left.
  void Pause() {
    CloseIdlest();
    accept_pause_.expires_after(kAcceptPause);
    accept_pause_.async_wait(
        [self = shared_from_this()](error_code) { self->Accept(); });
  }

  void Take(tcp::socket socket) {
    if (sessions_.size() >=
            static_cast<size_t>(host_->limits.max_connections) &&
        !CloseIdlest()) {
      return;  // each has an answer that runs: this one is closed
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    const auto session = std::make_shared<HttpSession>(
        host_, transports_->Make(std::move(socket)));
    sessions_.insert(session.get());
    session->Start();
    Count();
  }

  // From now on nothing waits for a request.
  void CloseIdle() {
    host_->keeps_idle = false;
    const std::set<HttpSession*> sessions = sessions_;
    for (HttpSession* session : sessions) {
      if (session->is_idle()) session->shared_from_this()->Close();
    }
    Count();
  }

  // Of those whose requests still come the oldest goes: else some that never
  // end theirs would keep all others out. False: each has a running answer.
  bool CloseIdlest() {
    HttpSession* idlest = nullptr;
    const auto goes_before = [&idlest](const HttpSession& session) {
      if (idlest == nullptr) return true;
      if (session.is_idle() != idlest->is_idle()) return session.is_idle();
      return session.waits_since() < idlest->waits_since();
    };
    for (HttpSession* session : sessions_) {
      if (!session->is_idle() && !session->is_receiving()) continue;
      if (goes_before(*session)) idlest = session;
    }
    if (idlest == nullptr) return false;
    idlest->shared_from_this()->Close();
    return true;
  }

  void Count() {
    absl::MutexLock lock(&mu_);
    connections_ = static_cast<int>(sessions_.size());
    running_ = host_->running;
  }

  EventLoop* const loop_;
  const std::unique_ptr<TransportFactory> transports_;
  tcp::acceptor acceptor_;
  boost::asio::steady_timer accept_pause_;
  const std::string address_;
  const std::shared_ptr<SessionHost> host_ = std::make_shared<SessionHost>();
  std::set<HttpSession*> sessions_;  // each keeps itself
  bool closed_ = false;
  mutable absl::Mutex mu_;
  int connections_ ABSL_GUARDED_BY(mu_) = 0;
  int running_ ABSL_GUARDED_BY(mu_) = 0;
};

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  absl::Notification closed;
  impl_->loop()->Post([&] {
    impl_->Close();
    closed.Notify();
  });
  closed.WaitForNotification();
}

const std::string& HttpServer::address() const { return impl_->address(); }
int HttpServer::connections() const { return impl_->connections(); }
int HttpServer::running() const { return impl_->running(); }

bool HttpServer::Drain(absl::Duration timeout) {
  impl_->loop()->Post([impl = impl_, timeout] { impl->BeginDrain(timeout); });
  absl::Notification begun;
  impl_->loop()->Post([&begun] { begun.Notify(); });
  begun.WaitForNotification();
  return impl_->AwaitRest(timeout);
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    Options options, EventLoop* loop, HttpHandler handler) {
  if (!IsHostPort(options.listen)) {
    return absl::InvalidArgumentError(
        absl::StrCat("HTTP address \"", options.listen,
                     "\" is not host:port with a port in [0, 65535]"));
  }
  NACRE_RETURN_IF_ERROR(options.limits.Validate());
  std::unique_ptr<TransportFactory> transports = PlainTransports();
  if (!options.tls.empty()) {
    NACRE_ASSIGN_OR_RETURN(
        transports,
        TlsTransports(options.tls, options.tls_reload_period, loop));
  }
  const std::string listen = options.listen;
  try {
    auto impl = std::make_shared<Impl>(
        std::move(options), loop, std::move(handler), std::move(transports));
    impl->Start();
    return absl::WrapUnique(new HttpServer(std::move(impl)));
  } catch (const boost::system::system_error& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", listen, ": ", error.what()));
  }
}

}  // namespace nacre::gateway
