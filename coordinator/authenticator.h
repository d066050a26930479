// Who calls, and whether they may: tokens of clients and of operators.

#ifndef COORDINATOR_AUTHENTICATOR_H_
#define COORDINATOR_AUTHENTICATOR_H_

#include <grpcpp/server_context.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/bearer_tokens.h"

namespace nacre::coordinator {

// Thread-safe. Does not block.
class Authenticator {
 public:
  // Null: that port asks for no token.
  Authenticator(std::unique_ptr<rpc::BearerTokens> client_tokens,
                std::unique_ptr<rpc::BearerTokens> admin_tokens)
      : client_tokens_(std::move(client_tokens)),
        admin_tokens_(std::move(admin_tokens)) {}
  Authenticator() = default;

  // The client's identity, for limits and logs: the name of its token; where
  // no tokens are in use, that of its certificate, else the host it calls
  // from. UNAUTHENTICATED: no token, or one that is not accepted.
  absl::StatusOr<std::string> AuthenticateClient(
      const grpc::ServerContextBase& context) const;

  // UNAUTHENTICATED as above; PERMISSION_DENIED for a client's token.
  absl::Status AuthenticateOperator(
      const grpc::ServerContextBase& context) const;

 private:
  const std::unique_ptr<rpc::BearerTokens> client_tokens_;
  const std::unique_ptr<rpc::BearerTokens> admin_tokens_;
};

// Who calls, as the connection alone tells: the name in the peer's verified
// certificate, else the host it calls from.
std::string ClientIdentity(const grpc::ServerContextBase& context);

}  // namespace nacre::coordinator

#endif  // COORDINATOR_AUTHENTICATOR_H_
