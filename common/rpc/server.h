// A gRPC server as every Nacre process runs it: binds (port 0 is fine), health,
// reflection, orderly shutdown.

#ifndef COMMON_RPC_SERVER_H_
#define COMMON_RPC_SERVER_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"

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
    // A connection that has not said by then that it speaks gRPC is closed.
    absl::Duration handshake_timeout = absl::Seconds(10);
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
  RpcServer(std::unique_ptr<grpc::Server> server, std::string address);

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace nacre::rpc

#endif  // COMMON_RPC_SERVER_H_
