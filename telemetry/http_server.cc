#include "telemetry/http_server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/listen_address.h"

namespace nacre::telemetry {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kMaxRequestBytes = 8192;
// How long it accepts nothing where it cannot.
constexpr std::chrono::milliseconds kAcceptPause(100);

// Prefers IPv4. Throws a system_error that says why no address can be bound.
tcp::acceptor Bind(asio::io_context& io, const std::string& listen) {
  const size_t colon = listen.rfind(':');
  std::string host = listen.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  error_code reason;
  for (const tcp& family : {tcp::v4(), tcp::v6()}) {
    error_code unknown;
    const auto found =
        tcp::resolver(io).resolve(family, host, listen.substr(colon + 1),
                                  tcp::resolver::numeric_service, unknown);
    if (!reason) reason = unknown;
    for (const auto& entry : found) {
      try {
        return tcp::acceptor(io, entry.endpoint());
      } catch (const boost::system::system_error& error) {
        reason = error.code();
      }
    }
  }
  throw boost::system::system_error(reason);
}

// Of bytes that are no HTTP, where there are any.
bool IsMalformed(const error_code& error) {
  return error != http::error::end_of_stream &&
         error != http::error::partial_message &&
         error.category() ==
             http::make_error_code(http::error::bad_method).category();
}

}  // namespace

// The serving thread alone uses what changes; the rendering thread sees a page.
class HttpServer::Impl {
 public:
  // Throws what Bind throws.
  Impl(Options options, Pages pages);
  ~Impl();

  const std::string& address() const { return address_; }

 private:
  class Session;

  void Accept();
  void CloseOldest();
  // Replies at once or after the rendering of the page.
  void Ask(Session& session, const std::string& path);
  // Has the page rendered that is waited for longest, one at a time.
  void Render();

  const Options options_;
  const Pages pages_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer accept_pause_;
  const std::string address_;
  std::map<uint64_t, std::shared_ptr<Session>> sessions_;  // by age
  uint64_t next_id_ = 1;
  bool renders_ = false;
  asio::thread_pool renderer_{1};
  std::thread server_;
};

// One connection.
class HttpServer::Impl::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Impl& server, uint64_t id, tcp::socket socket)
      : server_(server),
        id_(id),
        stream_(std::move(socket)),
        render_deadline_(server.io_) {}

  void Read() {
    // What a body would say is not read.
    parser_.skip(true);
    ExpectClient();
    http::async_read_header(
        stream_, buffer_, parser_,
        [self = shared_from_this()](error_code error, size_t) {
          self->OnRead(error);
        });
  }

  void AwaitPage(const Page* page) {
    page_ = page;
    render_deadline_.expires_after(
        absl::ToChronoNanoseconds(server_.options_.render_timeout));
    render_deadline_.async_wait([self = shared_from_this()](error_code) {
      if (self->page_ == nullptr) return;
      self->Reply({503, "the page takes too long\n"});
    });
  }

  void Reply(const Answer& answer) {
    StopWaiting();
    response_.result(static_cast<unsigned>(answer.status));
    response_.set(http::field::content_type,
                  "text/plain; version=0.0.4; charset=utf-8");
    response_.keep_alive(false);
    if (answer.status == 405) response_.set(http::field::allow, "GET, HEAD");
    response_.body() = answer.body;
    response_.prepare_payload();
    // Its length is said all the same.
    if (is_head_) response_.body().clear();
    ExpectClient();
    http::async_write(stream_, response_,
                      [self = shared_from_this()](error_code error, size_t) {
                        self->OnWritten(error);
                      });
  }

  void Close() {
    StopWaiting();
    stream_.close();
    server_.sessions_.erase(id_);
  }

  // That it waits for; none: it waits for its client.
  const Page* page() const { return page_; }
  // Whether that page is being rendered for it.
  bool is_rendered = false;

 private:
  void ExpectClient() {
    stream_.expires_after(
        absl::ToChronoNanoseconds(server_.options_.client_timeout));
  }

  void StopWaiting() {
    page_ = nullptr;
    is_rendered = false;
    render_deadline_.cancel();
  }

  void OnRead(const error_code& error) {
    // Closed to make room, after the read had ended.
    if (!stream_.socket().is_open()) return Close();
    if (error == http::error::buffer_overflow ||
        error == http::error::header_limit) {
      return Reply({431, "the request is too long\n"});
    }
    if (error) {
      return IsMalformed(error) ? Reply({400, "this is no HTTP/1 request\n"})
                                : Close();
    }
    is_head_ = parser_.get().method() == http::verb::head;
    if (!is_head_ && parser_.get().method() != http::verb::get) {
      return Reply({405, "only GET and HEAD are served\n"});
    }
    const std::string target(parser_.get().target());
    server_.Ask(*this, target.substr(0, target.find('?')));
  }

  // To close at once might throw away what the client has yet to receive.
  void OnWritten(error_code error) {
    if (!error) stream_.socket().shutdown(tcp::socket::shutdown_send, error);
    if (error) return Close();
    ExpectClient();
    AwaitHangUp();
  }

  void AwaitHangUp() {
    buffer_.clear();
    stream_.async_read_some(
        buffer_.prepare(kMaxRequestBytes),
        [self = shared_from_this()](error_code error, size_t) {
          error ? self->Close() : self->AwaitHangUp();
        });
  }

  Impl& server_;
  const uint64_t id_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_{kMaxRequestBytes};
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> response_;
  bool is_head_ = false;
  const Page* page_ = nullptr;
  asio::steady_timer render_deadline_;
};

HttpServer::Impl::Impl(Options options, Pages pages)
    : options_(std::move(options)),
      pages_(std::move(pages)),
      acceptor_(Bind(io_, options_.listen)),
      accept_pause_(io_),
      address_(
          absl::StrCat(options_.listen.substr(0, options_.listen.rfind(':')),
                       ":", acceptor_.local_endpoint().port())) {
  Accept();
  server_ = std::thread([this] { io_.run(); });
}

HttpServer::Impl::~Impl() {
  io_.stop();
  server_.join();
}

void HttpServer::Impl::Accept() {
  acceptor_.async_accept([this](error_code error, tcp::socket socket) {
    if (error) {
      // Mostly because the process has no descriptors left.
      CloseOldest();
      accept_pause_.expires_after(kAcceptPause);
      accept_pause_.async_wait([this](error_code) { Accept(); });
      return;
    }
    if (sessions_.size() >= options_.max_connections) CloseOldest();
    const auto session =
        std::make_shared<Session>(*this, next_id_, std::move(socket));
    sessions_.emplace(next_id_++, session);
    session->Read();
    Accept();
  });
}

void HttpServer::Impl::CloseOldest() {
  if (sessions_.empty()) return;
  // One that waits for a page has asked: it goes last.
  auto oldest = std::find_if(
      sessions_.begin(), sessions_.end(),
      [](const auto& entry) { return entry.second->page() == nullptr; });
  if (oldest == sessions_.end()) oldest = sessions_.begin();
  const std::shared_ptr<Session> session = oldest->second;
  session->Close();
}

void HttpServer::Impl::Ask(Session& session, const std::string& path) {
  const auto page = pages_.find(path);
  if (page == pages_.end()) {
    return session.Reply({404, "there is no such page\n"});
  }
  if (!page->second.may_block) return session.Reply(page->second.render());
  session.AwaitPage(&page->second);
  Render();
}

void HttpServer::Impl::Render() {
  if (renders_) return;
  const Page* page = nullptr;
  for (const auto& [id, session] : sessions_) {
    if (page == nullptr) page = session->page();
    session->is_rendered = page != nullptr && session->page() == page;
  }
  if (page == nullptr) return;
  renders_ = true;
  asio::post(renderer_, [this, page] {
    asio::post(io_, [this, answer = page->render()] {
      for (const auto& [id, session] : sessions_) {
        if (session->is_rendered) session->Reply(answer);
      }
      renders_ = false;
      Render();
    });
  });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() = default;

const std::string& HttpServer::address() const { return impl_->address(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(Options options,
                                                              Pages pages) {
  if (!IsHostPort(options.listen)) {
    return absl::InvalidArgumentError(
        absl::StrCat("HTTP address \"", options.listen,
                     "\" is not host:port with a port in [0, 65535]"));
  }
  const std::string listen = options.listen;
  try {
    return absl::WrapUnique(new HttpServer(
        std::make_unique<Impl>(std::move(options), std::move(pages))));
  } catch (const boost::system::system_error& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", listen, ": ", error.what()));
  }
}

}  // namespace nacre::telemetry
