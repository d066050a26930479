#include "tools/cluster/security_flags.h"

#include <cstdlib>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/bearer_tokens.h"
#include "common/status_macros.h"

namespace nacre::tools {

void ClientSecurity::Apply(grpc::ClientContext* context) const {
  if (!token.empty()) {
    context->AddMetadata("authorization", absl::StrCat("Bearer ", token));
  }
}

void SecurityFlags::Register(FlagSet* flags) {
  flags->Add("tls", "", &tls.tls,
             "TLS; implied by the flags below, without them the system's "
             "authorities are believed");
  flags->Add("tls-ca", "FILE", &tls.files.ca_file,
             "authority that signs the coordinator's certificate (PEM)");
  flags->Add("tls-cert", "FILE", &tls.files.cert_file,
             "certificate to show the coordinator (PEM)");
  flags->Add("tls-key", "FILE", &tls.files.key_file,
             "private key of --tls-cert (PEM)");
  flags->Add("tls-server-name", "NAME", &tls.server_name,
             "name in the coordinator's certificate, where the address has "
             "another");
  flags->Add("token-file", "FILE", &token_file,
             "holds the token to show (default: NACRE_TOKEN of the "
             "environment)");
}

absl::Status ClientSecurity::Explain(const absl::Status& status) const {
  const absl::string_view message = status.message();
  if (!absl::IsUnavailable(status) ||
      !absl::StrContains(message, "failed to connect") ||
      !(absl::StrContains(message, "Socket closed") ||
        absl::StrContains(message, "Connection reset"))) {
    return status;
  }
  return absl::UnavailableError(absl::StrCat(
      "the server hung up; it may want ",
      channel.credentials == nullptr ? "TLS (--tls-ca)"
      : shows_certificate            ? "no TLS, or another --tls-cert"
                          : "no TLS, or a certificate (--tls-cert, --tls-key)",
      ": ", message));
}

absl::StatusOr<ClientSecurity> SecurityFlags::Load() const {
  ClientSecurity security;
  security.shows_certificate = !tls.files.cert_file.empty();
  NACRE_ASSIGN_OR_RETURN(security.channel, rpc::LoadClientTls(tls));
  std::vector<rpc::NamedToken> tokens;
  const char* environment = std::getenv("NACRE_TOKEN");
  if (!token_file.empty()) {
    NACRE_ASSIGN_OR_RETURN(tokens, rpc::ReadTokens(token_file));
  } else if (environment != nullptr && *environment != '\0') {
    auto parsed = rpc::ParseTokens(environment);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("NACRE_TOKEN: ", parsed.status().message()));
    }
    tokens = *std::move(parsed);
  }
  if (!tokens.empty()) security.token = tokens.front().token;
  return security;
}

void RegisterTlsFiles(rpc::TlsFiles* files, FlagSet* flags) {
  flags->Add("tls-cert", "FILE", &files->cert_file,
             "certificate of all processes (PEM); TLS everywhere");
  flags->Add("tls-key", "FILE", &files->key_file,
             "private key of --tls-cert (PEM)");
  flags->Add("tls-ca", "FILE", &files->ca_file,
             "authority that signs workers' and operators' certificates (PEM)");
}

}  // namespace nacre::tools
