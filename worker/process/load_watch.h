// Ends a node of a model on several nodes while it loads, when it is told to
// terminate or hears that another node has ended. Loading takes minutes and
// cannot be interrupted.
//
// Not thread-safe. A thread of its own watches.

#ifndef WORKER_PROCESS_LOAD_WATCH_H_
#define WORKER_PROCESS_LOAD_WATCH_H_

#include <functional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "worker/process/exit_signal.h"

namespace nacre::worker {

// What a node has of its process.
struct NodeProcess {
  ExitSignal* exit = nullptr;  // outlives the node
  // Ends the process, with this failure or in order; called on any thread.
  // Null: it is not ended while it loads.
  std::function<void(const absl::Status&)> quit;
};

class LoadWatch {
 public:
  // `tell` has the other nodes know. OK: this process was told to terminate.
  LoadWatch(NodeProcess process, std::function<void(const absl::Status&)> tell);
  // Everything is loaded, or nothing will be. If the process is about to be
  // ended, that comes first.
  ~LoadWatch();
  LoadWatch(const LoadWatch&) = delete;
  LoadWatch& operator=(const LoadWatch&) = delete;

 private:
  const NodeProcess process_;
  std::thread thread_;  // none: there is no `quit`
};

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_LOAD_WATCH_H_
