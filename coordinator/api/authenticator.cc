#include "coordinator/api/authenticator.h"

#include <openssl/sha.h>

#include <array>
#include <cstring>

#include "absl/types/optional.h"
#include "common/status_macros.h"
#include "coordinator/api/client_streams.h"

namespace nacre::coordinator {
namespace {

absl::Status UnknownToken() {
  return absl::UnauthenticatedError("the token is not accepted");
}

}  // namespace

absl::StatusOr<std::string> Authenticator::AuthenticateClient(
    const Peer& peer) const {
  if (client_tokens_ == nullptr) {
    return peer.certificate.empty() ? ClientStreams::HostOf(peer.address)
                                    : peer.certificate;
  }
  NACRE_RETURN_IF_ERROR(peer.token.status());
  absl::optional<std::string> name = client_tokens_->Find(*peer.token);
  if (!name.has_value()) return UnknownToken();
  return *std::move(name);
}

speculation::TextOwner Authenticator::TextOwnerOf(
    absl::string_view name) const {
  // A certificate may be that of a gateway, whose clients are many.
  if (client_tokens_ == nullptr) return {};
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(name.data()), name.size(),
         digest.data());
  speculation::TextOwner owner;
  std::memcpy(owner.data(), digest.data(), sizeof(owner));
  return owner;
}

absl::Status Authenticator::AuthenticateOperator(const Peer& peer) const {
  if (admin_tokens_ == nullptr) return absl::OkStatus();
  NACRE_RETURN_IF_ERROR(peer.token.status());
  if (admin_tokens_->Find(*peer.token).has_value()) return absl::OkStatus();
  if (client_tokens_ != nullptr &&
      client_tokens_->Find(*peer.token).has_value()) {
    return absl::PermissionDeniedError("a client's token opens no Admin call");
  }
  return UnknownToken();
}

}  // namespace nacre::coordinator
