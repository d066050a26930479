// Channels to other Nacre processes.

#ifndef COMMON_RPC_CHANNEL_H_
#define COMMON_RPC_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "common/rpc/security.h"

namespace nacre::rpc {

// Neither side accepts larger messages: an Open with a prompt of 4 M tokens
// fits.
inline constexpr int kMaxMessageBytes = 64 << 20;

// Both ends of a connection ping this often and give up on a peer that has not
// answered for the timeout: a host that vanished ends its streams, whichever
// side it was.
inline constexpr int kKeepaliveTimeMs = 20'000;
inline constexpr int kKeepaliveTimeoutMs = 10'000;

// A channel of its own connection (no sharing of back-off with other channels),
// with keepalive and quick reconnects. `address` is host:port or unix:path.
std::shared_ptr<grpc::Channel> CreateChannel(
    const std::string& address, const ChannelSecurity& security = {});

}  // namespace nacre::rpc

#endif  // COMMON_RPC_CHANNEL_H_
