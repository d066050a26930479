#include "coordinator/authenticator.h"

#include <grpcpp/security/auth_context.h>

#include <vector>

#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "coordinator/client_streams.h"

namespace nacre::coordinator {
namespace {

absl::Status UnknownToken() {
  return absl::UnauthenticatedError("the token is not accepted");
}

}  // namespace

std::string ClientIdentity(const grpc::ServerContextBase& context) {
  const auto auth = context.auth_context();
  if (auth != nullptr && auth->IsPeerAuthenticated()) {
    for (const grpc::string_ref& name :
         auth->FindPropertyValues("x509_common_name")) {
      if (!name.empty()) return std::string(name.data(), name.size());
    }
  }
  return ClientStreams::HostOf(context.peer());
}

absl::StatusOr<std::string> Authenticator::AuthenticateClient(
    const grpc::ServerContextBase& context) const {
  if (client_tokens_ == nullptr) return ClientIdentity(context);
  NACRE_ASSIGN_OR_RETURN(const std::string token, rpc::ShownToken(context));
  absl::optional<std::string> name = client_tokens_->Find(token);
  if (!name.has_value()) return UnknownToken();
  return *std::move(name);
}

absl::Status Authenticator::AuthenticateOperator(
    const grpc::ServerContextBase& context) const {
  if (admin_tokens_ == nullptr) return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(const std::string token, rpc::ShownToken(context));
  if (admin_tokens_->Find(token).has_value()) return absl::OkStatus();
  if (client_tokens_ != nullptr && client_tokens_->Find(token).has_value()) {
    return absl::PermissionDeniedError("a client's token opens no Admin call");
  }
  return UnknownToken();
}

}  // namespace nacre::coordinator
