// Termination without handlers: main blocks the signals before any thread
// exists and later waits for one.

#ifndef COMMON_RPC_SIGNALS_H_
#define COMMON_RPC_SIGNALS_H_

namespace nacre::rpc {

// Blocks SIGINT and SIGTERM for this thread and those it starts; ignores
// SIGPIPE. Call first in main.
void BlockTerminationSignals();

// Returns the first SIGINT or SIGTERM. A second one then ends the process at
// once.
int WaitForTerminationSignal();

}  // namespace nacre::rpc

#endif  // COMMON_RPC_SIGNALS_H_
