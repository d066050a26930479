// The caller of a gRPC call: its address, certificate and token.

#ifndef COORDINATOR_API_GRPC_PEER_H_
#define COORDINATOR_API_GRPC_PEER_H_

#include <grpcpp/server_context.h>

#include "coordinator/api/authenticator.h"

namespace nacre::coordinator {

// The token is that of "authorization: Bearer TOKEN" in the call's metadata,
// which must be there once.
Peer PeerOf(const grpc::ServerContextBase& context);

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_GRPC_PEER_H_
