#include "gateway/gateway_flags.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/listen_address.h"
#include "common/rpc/security.h"
#include "common/status_macros.h"
#include "gateway/cors.h"

namespace nacre::gateway {

void WaitFlags::Register(FlagSet* flags) {
  flags->Add("ping-period", "DURATION", &ping_period,
             "of silence, after which a stream gets a comment");
  flags->Add(
      "request-timeout", "DURATION", &request_timeout,
      "deadline of a request, over all coordinators that it is tried on; 0: "
      "the coordinator's");
  flags->Add(
      "resume-timeout", "DURATION", &resume_timeout,
      "how long a request that no coordinator takes, or whose answer was "
      "cut off, waits for one that does; 0: it ends");
  flags->Add("drain-timeout", "DURATION", &drain_timeout,
             "how long SIGTERM waits for running answers");
}

absl::Status WaitFlags::Validate() const {
  if (ping_period < absl::Milliseconds(10)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ping-period is ", absl::FormatDuration(ping_period),
                     ", must be at least 10ms"));
  }
  for (const auto& [name, value] :
       {std::pair("request-timeout", request_timeout),
        std::pair("resume-timeout", resume_timeout),
        std::pair("drain-timeout", drain_timeout)}) {
    if (value < absl::ZeroDuration()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", name, " is ", absl::FormatDuration(value), ", below 0"));
    }
  }
  return absl::OkStatus();
}

void GatewayFlags::Register(FlagSet* flags) {
  flags->Add(
      "tokenizer", "DIR", &tokenizer,
      "folder of the target's checkpoint, for its tokenizer, chat "
      "template and generation_config.json, or its GGUF file (required)");
  flags->Add("coordinator", "HOST:PORT,...", &coordinators,
             "where coordinators serve clients; requests go to them in turn");
  flags->Add("listen", "HOST:PORT", &listen,
             "for HTTP; port 0 picks a free one");
  flags->Add("address-file", "FILE", &address_file,
             "receives the real host:port");
  flags->Add("metrics-listen", "HOST:PORT", &metrics_listen,
             "to serve /metrics and probes on, port 0 picks a free one; "
             "empty: off");
  flags->Add("metrics-address-file", "FILE", &metrics_address_file,
             "receives the real host:port of /metrics");
  served.Register(flags);
  flags->Add("auth-tokens-file", "FILE", &auth_tokens_file,
             "one NAME:TOKEN a line: clients must show one of them");
  flags->Add(
      "token-file", "FILE", &token_file,
      "holds the gateway's own token for coordinators, watched; requests "
      "carry their client's");
  flags->Add("admin", "HOST:PORT,...", &admins,
             "where coordinators serve operators: their workers and sessions "
             "are then at /nacre/fleet; empty: they are not shown");
  flags->Add("admin-tokens-file", "FILE", &admin_tokens_file,
             "one NAME:TOKEN a line: a caller of /nacre/fleet must show one of "
             "them; needed for it where clients must show tokens");
  flags->Add("cors-origin", "ORIGIN,...", &cors_origins,
             "pages of these origins (https://host:8443) may read answers in a "
             "browser; *: of any; empty: of none but the gateway's own");
  flags->Add("public-tls-cert", "FILE", &public_tls.cert_file,
             "certificate for clients (PEM); watched; empty: plaintext");
  flags->Add("public-tls-key", "FILE", &public_tls.key_file,
             "private key of --public-tls-cert (PEM)");
  flags->Add("public-tls-ca", "FILE", &public_tls.ca_file,
             "clients must show a certificate that it signed (PEM)");
  flags->Add("tls", "", &client_tls.tls,
             "TLS to coordinators; implied by the flags below");
  flags->Add("tls-ca", "FILE", &client_tls.files.ca_file,
             "who signs the coordinators' certificates (PEM)");
  flags->Add("tls-cert", "FILE", &client_tls.files.cert_file,
             "certificate to show coordinators (PEM)");
  flags->Add("tls-key", "FILE", &client_tls.files.key_file,
             "private key of --tls-cert (PEM)");
  flags->Add("tls-server-name", "NAME", &client_tls.server_name,
             "name in the coordinators' certificates");
  http.Register(flags);
  waits.Register(flags);
  log.Register(flags);
}

std::vector<std::string> GatewayFlags::Addresses() const {
  return absl::StrSplit(coordinators, ',', absl::SkipWhitespace());
}

std::vector<std::string> GatewayFlags::AdminAddresses() const {
  return absl::StrSplit(admins, ',', absl::SkipWhitespace());
}

std::vector<std::string> GatewayFlags::Origins() const {
  return absl::StrSplit(cors_origins, ',', absl::SkipWhitespace());
}

namespace {

absl::Status CheckAddresses(const char* flag,
                            const std::vector<std::string>& addresses) {
  for (const std::string& address : addresses) {
    if (!IsHostPort(address)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " \"", address, "\" is not host:port"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status GatewayFlags::Validate() const {
  if (tokenizer.empty()) {
    return absl::InvalidArgumentError("--tokenizer MODEL_DIR is required");
  }
  if (Addresses().empty()) {
    return absl::InvalidArgumentError("--coordinator has no address");
  }
  NACRE_RETURN_IF_ERROR(CheckAddresses("coordinator", Addresses()));
  NACRE_RETURN_IF_ERROR(CheckAddresses("admin", AdminAddresses()));
  NACRE_RETURN_IF_ERROR(CheckOrigins(Origins()));
  if (!public_tls.empty()) {
    NACRE_RETURN_IF_ERROR(
        rpc::CheckCertificateFlags(public_tls, "--public-tls"));
  }
  // Else whoever reaches a coordinator that asks operators for nothing would
  // see through this door what it keeps from clients without a token.
  const char* const client_tokens = !auth_tokens_file.empty()
                                        ? "auth-tokens-file"
                                    : !token_file.empty() ? "token-file"
                                                          : nullptr;
  if (!AdminAddresses().empty() && client_tokens != nullptr &&
      admin_tokens_file.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--admin with --", client_tokens, " needs --admin-tokens-file, too"));
  }
  NACRE_RETURN_IF_ERROR(served.Validate());
  NACRE_RETURN_IF_ERROR(waits.Validate());
  return http.Validate();
}

}  // namespace nacre::gateway
