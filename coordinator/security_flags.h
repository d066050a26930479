// The coordinator's flags about TLS and tokens, and what they name.

#ifndef COORDINATOR_SECURITY_FLAGS_H_
#define COORDINATOR_SECURITY_FLAGS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/flag_set.h"
#include "common/rpc/security.h"
#include "coordinator/api/authenticator.h"

namespace nacre::coordinator {

struct CoordinatorSecurity {
  rpc::PeerSecurity peers;                           // workers, operators
  std::shared_ptr<grpc::ServerCredentials> clients;  // null: plaintext
  std::unique_ptr<Authenticator> authenticator;
};

struct CoordinatorSecurityFlags {
  rpc::PeerTlsFlags peers;
  rpc::TlsFiles clients;
  std::string auth_tokens_file;
  std::string admin_tokens_file;

  // The peers' flags, --public-tls-cert, -key, -ca, --auth-tokens-file and
  // --admin-tokens-file.
  void Register(FlagSet* flags);
  // Reads the files that the flags name and goes on watching them. Errors:
  // those of rpc::LoadPeerSecurity, rpc::LoadServerTls and
  // rpc::BearerTokens::Load.
  absl::StatusOr<CoordinatorSecurity> Load() const;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_SECURITY_FLAGS_H_
