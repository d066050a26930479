#include "coordinator/api/grpc_peer.h"

#include <grpcpp/security/auth_context.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace nacre::coordinator {
namespace {

absl::StatusOr<std::string> ShownToken(const grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  if (metadata.count("authorization") != 1) {
    return absl::UnauthenticatedError(
        "one \"authorization: Bearer TOKEN\" is needed in the call's metadata");
  }
  const grpc::string_ref value = metadata.find("authorization")->second;
  const absl::string_view text(value.data(), value.size());
  const absl::string_view scheme = "bearer ";
  if (!absl::StartsWithIgnoreCase(text, scheme)) {
    return absl::UnauthenticatedError(
        "the authorization in the call's metadata is not \"Bearer TOKEN\"");
  }
  return std::string(absl::StripAsciiWhitespace(text.substr(scheme.size())));
}

std::string CertificateName(const grpc::ServerContextBase& context) {
  const auto auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return "";
  for (const grpc::string_ref& name :
       auth->FindPropertyValues("x509_common_name")) {
    if (!name.empty()) return std::string(name.data(), name.size());
  }
  return "";
}

}  // namespace

Peer PeerOf(const grpc::ServerContextBase& context) {
  return {context.peer(), CertificateName(context), ShownToken(context)};
}

}  // namespace nacre::coordinator
