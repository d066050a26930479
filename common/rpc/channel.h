// Channels to other Nacre processes.

#ifndef COMMON_RPC_CHANNEL_H_
#define COMMON_RPC_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/rpc/security.h"

namespace nacre::rpc {

// Neither side accepts larger messages: an Open with a prompt of 4 M tokens
// fits.
inline constexpr int kMaxMessageBytes = 64 << 20;

// Both ends of a connection ping this often and give up on a peer that has not
// answered for the timeout. A host that vanished ends its streams, whichever
// side it was. gRPC pings once a second at most.
struct Keepalive {
  absl::Duration time = absl::Seconds(20);
  absl::Duration timeout = absl::Seconds(10);
};

// Whether gRPC itself sends a call again that no server has begun. It keeps a
// copy of what each call sends for it: 5 KiB of the memory of a call.
enum class Retries { kOfGrpc, kNone };

// A channel of its own connection (no sharing of back-off with other channels),
// with keepalive and quick reconnects. `address` is host:port or unix:path.
std::shared_ptr<grpc::Channel> CreateChannel(
    const std::string& address, const ChannelSecurity& security = {},
    const Keepalive& keepalive = {}, Retries retries = Retries::kOfGrpc);

}  // namespace nacre::rpc

#endif  // COMMON_RPC_CHANNEL_H_
