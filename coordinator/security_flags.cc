#include "coordinator/security_flags.h"

#include <spdlog/spdlog.h>

#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "common/rpc/bearer_tokens.h"
#include "common/status_macros.h"

ABSL_FLAG(std::string, tls_cert, "",
          "PEM file: certificate of this process; TLS on all ports");
ABSL_FLAG(std::string, tls_key, "", "PEM file: private key of --tls-cert");
ABSL_FLAG(std::string, tls_ca, "",
          "PEM file: who signs the certificates of workers and operators");
ABSL_FLAG(std::string, tls_client_auth, "",
          "require (default) or none: must workers and operators that call "
          "show a certificate?");
ABSL_FLAG(std::string, tls_server_name, "",
          "name in the workers' certificates (default: host of the address)");
ABSL_FLAG(std::string, public_tls_cert, "",
          "PEM file: certificate for clients (default: --tls-cert)");
ABSL_FLAG(std::string, public_tls_key, "",
          "PEM file: private key of --public-tls-cert");
ABSL_FLAG(std::string, public_tls_ca, "",
          "PEM file: who signs the certificates that clients must show "
          "(default: they need none)");
ABSL_FLAG(std::string, auth_tokens_file, "",
          "file with one NAME:TOKEN a line: clients must show one of them");
ABSL_FLAG(std::string, admin_tokens_file, "", "the same for operators");

namespace nacre::coordinator {
namespace {

absl::StatusOr<rpc::PeerSecurity> PeerSecurity() {
  return rpc::LoadPeerSecurity(
      {{absl::GetFlag(FLAGS_tls_cert), absl::GetFlag(FLAGS_tls_key),
        absl::GetFlag(FLAGS_tls_ca)},
       absl::GetFlag(FLAGS_tls_client_auth),
       absl::GetFlag(FLAGS_tls_server_name)});
}

// Null where clients talk plaintext.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> PublicCredentials() {
  rpc::TlsFiles files{absl::GetFlag(FLAGS_public_tls_cert),
                      absl::GetFlag(FLAGS_public_tls_key),
                      absl::GetFlag(FLAGS_public_tls_ca)};
  if (files.cert_file.empty() && files.key_file.empty()) {
    files.cert_file = absl::GetFlag(FLAGS_tls_cert);
    files.key_file = absl::GetFlag(FLAGS_tls_key);
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

absl::StatusOr<CoordinatorSecurity> LoadSecurity() {
  CoordinatorSecurity security;
  NACRE_ASSIGN_OR_RETURN(security.peers, PeerSecurity());
  NACRE_ASSIGN_OR_RETURN(security.clients, PublicCredentials());
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<rpc::BearerTokens> clients,
                         Tokens(absl::GetFlag(FLAGS_auth_tokens_file)));
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<rpc::BearerTokens> operators,
                         Tokens(absl::GetFlag(FLAGS_admin_tokens_file)));
  if (clients != nullptr && security.clients == nullptr) {
    spdlog::warn("the tokens of clients travel in plaintext: no TLS");
  }
  if (operators != nullptr && security.peers.server == nullptr) {
    spdlog::warn("the tokens of operators travel in plaintext: no TLS");
  }
  security.authenticator =
      std::make_unique<Authenticator>(std::move(clients), std::move(operators));
  return security;
}

}  // namespace nacre::coordinator
