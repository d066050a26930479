// Keeps gRPC's callback threads for the life of the process.
//
// gRPC 1.51 starts them with the first user of the callback API and joins them
// when the last channel or server goes. That last one may be a channel that a
// finished call lets go of. Then one of these threads joins itself, goes on and
// takes from a queue that is gone. A user that never goes prevents it.

#ifndef COMMON_RPC_CALLBACK_THREADS_H_
#define COMMON_RPC_CALLBACK_THREADS_H_

namespace nacre::rpc {

// Idempotent, thread-safe. Channels and servers call it themselves.
void KeepCallbackThreads();

}  // namespace nacre::rpc

#endif  // COMMON_RPC_CALLBACK_THREADS_H_
