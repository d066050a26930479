// The flags that say how a client secures its calls, shared by `generate` and
// `bench`.

#ifndef TOOLS_CLUSTER_SECURITY_FLAGS_H_
#define TOOLS_CLUSTER_SECURITY_FLAGS_H_

#include <grpcpp/client_context.h>

#include <string>

#include "absl/status/statusor.h"
#include "common/flag_set.h"
#include "common/rpc/security.h"

namespace nacre::tools {

// How calls are secured. The default is plaintext.
struct ClientSecurity {
  rpc::ChannelSecurity channel;
  std::string token;  // empty: none
  bool shows_certificate = false;

  // To every call before it starts.
  void Apply(grpc::ClientContext* context) const;
  // A server that ends a connection before the first call does not say why.
  // What it may have wanted is added to such a call's status. Others stay as
  // they are.
  absl::Status Explain(const absl::Status& status) const;
};

struct SecurityFlags {
  rpc::ClientTlsFlags tls;
  std::string token_file;

  // --tls, --tls-ca, --tls-cert, --tls-key, --tls-server-name, --token-file.
  void Register(FlagSet* flags);
  // Whether any was given.
  bool wanted() const { return tls.wanted() || !token_file.empty(); }
  // Reads the files and, where no --token-file is given, the environment's
  // NACRE_TOKEN. Errors: those of rpc::LoadClientTls and rpc::ReadTokens.
  absl::StatusOr<ClientSecurity> Load() const;
};

// --tls-cert, --tls-key and --tls-ca of programs that are started.
void RegisterTlsFiles(rpc::TlsFiles* files, FlagSet* flags);

}  // namespace nacre::tools

#endif  // TOOLS_CLUSTER_SECURITY_FLAGS_H_
