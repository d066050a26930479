// The bytes of one connection, with or without TLS. For http_session.cc and
// http_server.cc: it includes Boost.Asio.
//
// On the thread of the event loop.

#ifndef GATEWAY_TRANSPORT_H_
#define GATEWAY_TRANSPORT_H_

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/security.h"
#include "gateway/event_loop.h"

namespace nacre::gateway {

// At most one read and one write at a time. What ran when Close is called ends
// with an error.
class Transport {
 public:
  using Done =
      std::function<void(const boost::system::error_code& error, size_t bytes)>;

  virtual ~Transport() = default;
  virtual void Handshake(Done done) = 0;
  virtual void ReadSome(boost::asio::mutable_buffer buffer, Done done) = 0;
  virtual void WriteSome(boost::asio::const_buffer buffer, Done done) = 0;
  // Tells the client that nothing more comes.
  virtual void EndWrites() = 0;
  virtual void Close() = 0;
};

// Makes the transports of a server. Owned by it, and lets go of the loop when
// it goes.
class TransportFactory {
 public:
  virtual ~TransportFactory() = default;
  virtual std::unique_ptr<Transport> Make(
      boost::asio::ip::tcp::socket socket) = 0;
};

std::unique_ptr<TransportFactory> PlainTransports();

// TLS 1.2 and later with the certificate and key of `files`; where there is a
// ca_file clients must show a certificate that it signed. The files are looked
// at each period. What comes after a change is served with the new ones. A bad
// change is logged and not taken. Errors: those of rpc::CheckCertificateAndKey
// and rpc::CheckAuthorities.
absl::StatusOr<std::unique_ptr<TransportFactory>> TlsTransports(
    const rpc::TlsFiles& files, absl::Duration reload_period, EventLoop* loop);

}  // namespace nacre::gateway

#endif  // GATEWAY_TRANSPORT_H_
