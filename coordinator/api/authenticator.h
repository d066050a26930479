// Who calls, and whether they may: tokens of clients and of operators. Knows no
// protocol.

#ifndef COORDINATOR_API_AUTHENTICATOR_H_
#define COORDINATOR_API_AUTHENTICATOR_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/rpc/bearer_tokens.h"
#include "speculation/suffix_index.h"

namespace nacre::coordinator {

// The other end of a call, as its front end sees it.
struct Peer {
  std::string address;      // "ipv4:10.0.0.1:4711", "ipv6:[::1]:4711", "unix:"
  std::string certificate;  // the name in its verified one; empty: it has none
  // The bearer token that it shows. UNAUTHENTICATED, with the front end's words
  // on how to show one: it shows none.
  absl::StatusOr<std::string> token = absl::UnauthenticatedError("no token");
};

// Thread-safe. Does not block.
class Authenticator {
 public:
  // Null: that port asks for no token.
  Authenticator(std::unique_ptr<rpc::BearerTokens> client_tokens,
                std::unique_ptr<rpc::BearerTokens> admin_tokens)
      : client_tokens_(std::move(client_tokens)),
        admin_tokens_(std::move(admin_tokens)) {}
  Authenticator() = default;

  // The client's identity, for limits and logs: the name of its token. Where no
  // tokens are in use it is that of its certificate, else the host it calls
  // from. UNAUTHENTICATED: no token, or one that is not accepted.
  absl::StatusOr<std::string> AuthenticateClient(const Peer& peer) const;

  // What stands for a client of this name in what workers keep of texts: a
  // digest. All zeros where clients show no tokens. A host is no proof of who
  // calls, and a certificate may be a gateway's, which calls for many.
  speculation::TextOwner TextOwnerOf(absl::string_view name) const;

  // UNAUTHENTICATED as above; PERMISSION_DENIED for a client's token.
  absl::Status AuthenticateOperator(const Peer& peer) const;

 private:
  const std::unique_ptr<rpc::BearerTokens> client_tokens_;
  const std::unique_ptr<rpc::BearerTokens> admin_tokens_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_AUTHENTICATOR_H_
