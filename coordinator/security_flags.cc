#include "coordinator/security_flags.h"

#include <spdlog/spdlog.h>

#include <string>
#include <utility>

#include "common/rpc/bearer_tokens.h"
#include "common/status_macros.h"

namespace nacre::coordinator {
namespace {

// Null where clients talk plaintext. The certificate is that of the process
// unless clients have one of their own.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> PublicCredentials(
    const CoordinatorSecurityFlags& flags) {
  rpc::TlsFiles files = flags.clients;
  if (files.cert_file.empty() && files.key_file.empty()) {
    files.cert_file = flags.peers.files.cert_file;
    files.key_file = flags.peers.files.key_file;
  }
  if (files.empty()) return nullptr;
  return rpc::LoadServerTls(files, "--public-tls");
}

// Null without a file.
absl::StatusOr<std::unique_ptr<rpc::BearerTokens>> Tokens(
    const std::string& path) {
  if (path.empty()) return nullptr;
  return rpc::BearerTokens::Load(path);
}

}  // namespace

void CoordinatorSecurityFlags::Register(FlagSet* flags) {
  peers.Register(flags);
  flags->Add("public-tls-cert", "FILE", &clients.cert_file,
             "PEM file: certificate for clients (default: --tls-cert)");
  flags->Add("public-tls-key", "FILE", &clients.key_file,
             "PEM file: private key of --public-tls-cert");
  flags->Add("public-tls-ca", "FILE", &clients.ca_file,
             "PEM file: authority of the certificates that clients must show "
             "(default: they need none)");
  flags->Add("auth-tokens-file", "FILE", &auth_tokens_file,
             "file with one NAME:TOKEN a line: clients must show one of them");
  flags->Add("admin-tokens-file", "FILE", &admin_tokens_file,
             "the same for operators");
}

absl::StatusOr<CoordinatorSecurity> CoordinatorSecurityFlags::Load() const {
  CoordinatorSecurity security;
  NACRE_ASSIGN_OR_RETURN(security.peers, rpc::LoadPeerSecurity(peers));
  NACRE_ASSIGN_OR_RETURN(security.clients, PublicCredentials(*this));
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<rpc::BearerTokens> client_tokens,
                         Tokens(auth_tokens_file));
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<rpc::BearerTokens> operator_tokens,
                         Tokens(admin_tokens_file));
  if (client_tokens != nullptr && security.clients == nullptr) {
    spdlog::warn("the tokens of clients travel in plaintext: no TLS");
  }
  if (operator_tokens != nullptr && security.peers.server == nullptr) {
    spdlog::warn("the tokens of operators travel in plaintext: no TLS");
  }
  security.authenticator = std::make_unique<Authenticator>(
      std::move(client_tokens), std::move(operator_tokens));
  return security;
}

}  // namespace nacre::coordinator
