// A gRPC server as every Nacre process runs it: binds (port 0 is fine), health,
// reflection, orderly shutdown.

#ifndef COMMON_RPC_SERVER_H_
#define COMMON_RPC_SERVER_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/acceptor.h"
#include "common/rpc/channel.h"
#include "common/rpc/connections.h"

namespace nacre::rpc {

// Thread-safe.
class RpcServer {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";  // host:port, port 0 picks a free one
    // If set, receives the real address, written when the server accepts calls.
    std::string address_file;
    // Null: plaintext.
    std::shared_ptr<grpc::ServerCredentials> credentials;
    // Larger requests get RESOURCE_EXHAUSTED.
    int max_request_bytes = kMaxMessageBytes;
    // One more takes the place of one without a call (callers.h), or is closed
    // at once where each has one. 0: no limit, and gRPC's own listener
    // (acceptor.h says what that means). Not for unix:path.
    int max_connections = 0;
    // If set, receives them, where there is such a limit.
    std::shared_ptr<Connections> connections = nullptr;
    // A connection that has not said by then that it speaks gRPC is closed.
    absl::Duration handshake_timeout = absl::Seconds(10);
    Keepalive keepalive = {};
    // A connection without a call is closed then: its client connects anew for
    // the next.
    absl::Duration max_idle = absl::Minutes(5);
    // A connection that old, give or take a tenth, takes no more calls: its
    // client connects anew for the next. Those that run go on to their ends.
    absl::Duration max_age = absl::InfiniteDuration();
    // Calls of one connection at once: more wait at their client.
    int max_streams_per_connection = 4096;
    // What the connections may take in all, what was received and is not
    // parsed included; beyond it gRPC refuses connections and ends calls. 0: no
    // limit.
    int64_t max_memory_bytes = 0;
    // Of services that block: calls beyond it get RESOURCE_EXHAUSTED. Of ours
    // only gRPC's reflection does, each stream of which holds a thread, and
    // anyone may open one.
    int max_threads = 8;
  };

  // Starts to serve. The services must outlive the server. Errors: UNAVAILABLE
  // (the address cannot be bound), INVALID_ARGUMENT (not host:port),
  // PERMISSION_DENIED (the address file cannot be written).
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const Options& options, const std::vector<grpc::Service*>& services);

  ~RpcServer();

  // host:port that was bound.
  const std::string& address() const { return address_; }

  // grpc.health.v1: "" (all), "startup", "liveness" and "readiness", each
  // NOT_SERVING until told otherwise.
  void SetServing(const std::string& service, bool serving);

  // Stops accepting calls, waits up to `grace` for running ones, cancels the
  // rest. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  using External = grpc::experimental::ExternalConnectionAcceptor;

  RpcServer(std::unique_ptr<Acceptor> acceptor,
            std::unique_ptr<External> external,
            std::unique_ptr<grpc::Server> server, std::string address);

  std::unique_ptr<Acceptor> acceptor_;  // null: gRPC's own
  std::unique_ptr<External> external_;  // what it hands connections to
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace nacre::rpc

#endif  // COMMON_RPC_SERVER_H_
