// Statuses of calls whose server has gone, in words of gRPC's own.

#ifndef COMMON_RPC_LOST_SERVER_H_
#define COMMON_RPC_LOST_SERVER_H_

#include "absl/status/status.h"

namespace nacre::rpc {

// UNAVAILABLE in place of
// - CANCELLED, where a server's gRPC says it of a call that comes while it
//   closes: our own words for it are a sentence;
// - INTERNAL, where a proxy that has lost the server ends the call's stream:
//   other words may stand around gRPC's.
// Else the status as it is.
absl::Status NameLostServer(const absl::Status& status);

}  // namespace nacre::rpc

#endif  // COMMON_RPC_LOST_SERVER_H_
