#include "gateway/transport.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <string>
#include <utility>

#include "common/rpc/pem_files.h"
#include "common/status_macros.h"

namespace nacre::gateway {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using asio::ip::tcp;
using boost::system::error_code;

class PlainTransport : public Transport {
 public:
  explicit PlainTransport(tcp::socket socket) : socket_(std::move(socket)) {}

  void Handshake(Done done) override { done({}, 0); }
  void ReadSome(asio::mutable_buffer buffer, Done done) override {
    socket_.async_read_some(buffer, std::move(done));
  }
  void WriteSome(asio::const_buffer buffer, Done done) override {
    socket_.async_write_some(buffer, std::move(done));
  }
  void EndWrites() override {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }
  void Close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  tcp::socket socket_;
};

class TlsTransport : public Transport {
 public:
  TlsTransport(tcp::socket socket, std::shared_ptr<ssl::context> context)
      : context_(std::move(context)), stream_(std::move(socket), *context_) {}

  void Handshake(Done done) override {
    stream_.async_handshake(
        ssl::stream_base::server,
        [done = std::move(done)](const error_code& error) { done(error, 0); });
  }
  void ReadSome(asio::mutable_buffer buffer, Done done) override {
    stream_.async_read_some(buffer, std::move(done));
  }
  void WriteSome(asio::const_buffer buffer, Done done) override {
    stream_.async_write_some(buffer, std::move(done));
  }
  // The framing of HTTP says where an answer ends: a close_notify that the
  // client need not wait for is not exchanged.
  void EndWrites() override {
    error_code ignored;
    stream_.next_layer().shutdown(tcp::socket::shutdown_send, ignored);
  }
  void Close() override {
    error_code ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  const std::shared_ptr<ssl::context> context_;  // outlives the stream
  ssl::stream<tcp::socket> stream_;
};

class PlainFactory : public TransportFactory {
 public:
  std::unique_ptr<Transport> Make(tcp::socket socket) override {
    return std::make_unique<PlainTransport>(std::move(socket));
  }
};

absl::StatusOr<std::shared_ptr<ssl::context>> LoadContext(
    const rpc::TlsFiles& files) {
  NACRE_RETURN_IF_ERROR(
      rpc::CheckCertificateAndKey(files.cert_file, files.key_file));
  if (!files.ca_file.empty()) {
    NACRE_RETURN_IF_ERROR(rpc::CheckAuthorities(files.ca_file));
  }
  try {
    auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
    context->set_options(ssl::context::default_workarounds |
                         ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
    context->use_certificate_chain_file(files.cert_file);
    context->use_private_key_file(files.key_file, ssl::context::pem);
    if (!files.ca_file.empty()) {
      context->load_verify_file(files.ca_file);
      context->set_verify_mode(ssl::verify_peer |
                               ssl::verify_fail_if_no_peer_cert);
    }
    return context;
  } catch (const boost::system::system_error& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

// What changes when a file is replaced: its time, size and number.
std::string Stamp(const rpc::TlsFiles& files) {
  std::string stamp;
  for (const std::string& file :
       {files.cert_file, files.key_file, files.ca_file}) {
    struct stat status {};
    if (stat(file.c_str(), &status) != 0) continue;
    stamp.append(reinterpret_cast<const char*>(&status.st_mtim),
                 sizeof(status.st_mtim));
    stamp.append(reinterpret_cast<const char*>(&status.st_ino),
                 sizeof(status.st_ino));
  }
  return stamp;
}

class TlsFactory : public TransportFactory,
                   public std::enable_shared_from_this<TlsFactory> {
 public:
  TlsFactory(rpc::TlsFiles files, std::shared_ptr<ssl::context> context,
             absl::Duration period, EventLoop* loop)
      : files_(std::move(files)),
        stamp_(Stamp(files_)),
        context_(std::move(context)),
        period_(period),
        loop_(loop) {}

  std::unique_ptr<Transport> Make(tcp::socket socket) override {
    return std::make_unique<TlsTransport>(std::move(socket), context_);
  }

  void Watch() {
    loop_->PostAfter(period_, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      self->Look();
      self->Watch();
    });
  }

 private:
  void Look() {
    std::string stamp = Stamp(files_);
    if (stamp == stamp_) return;
    stamp_ = std::move(stamp);
    auto context = LoadContext(files_);
    if (!context.ok()) {
      spdlog::warn("the certificate is not replaced: {}",
                   std::string(context.status().message()));
      return;
    }
    context_ = *std::move(context);
    spdlog::info("the certificate {} was replaced", files_.cert_file);
  }

  const rpc::TlsFiles files_;
  std::string stamp_;
  std::shared_ptr<ssl::context> context_;
  const absl::Duration period_;
  EventLoop* const loop_;
};

// Keeps a factory that others only watch.
class SharedFactory : public TransportFactory {
 public:
  explicit SharedFactory(std::shared_ptr<TlsFactory> factory)
      : factory_(std::move(factory)) {}
  std::unique_ptr<Transport> Make(tcp::socket socket) override {
    return factory_->Make(std::move(socket));
  }

 private:
  const std::shared_ptr<TlsFactory> factory_;
};

}  // namespace

std::unique_ptr<TransportFactory> PlainTransports() {
  return std::make_unique<PlainFactory>();
}

absl::StatusOr<std::unique_ptr<TransportFactory>> TlsTransports(
    const rpc::TlsFiles& files, absl::Duration reload_period, EventLoop* loop) {
  NACRE_ASSIGN_OR_RETURN(std::shared_ptr<ssl::context> context,
                         LoadContext(files));
  const auto factory = std::make_shared<TlsFactory>(files, std::move(context),
                                                    reload_period, loop);
  factory->Watch();
  return std::make_unique<SharedFactory>(factory);
}

}  // namespace nacre::gateway
