// Ctrl-C and SIGTERM as a callback.

#ifndef TOOLS_INTERRUPT_H_
#define TOOLS_INTERRUPT_H_

#include <functional>
#include <thread>

namespace nacre::tools {

// While it lives, the first SIGINT or SIGTERM calls `on_signal` once, on a
// thread of its own; a second one ends the process at once. The signals must be
// blocked in every thread (rpc::BlockTerminationSignals first in main).
class InterruptWatcher {
 public:
  enum class Signals {
    kFirst,          // as above
    kEachInterrupt,  // each SIGINT calls it; SIGTERM ends the process at once
  };
  explicit InterruptWatcher(std::function<void()> on_signal,
                            Signals signals = Signals::kFirst);
  ~InterruptWatcher();
  InterruptWatcher(const InterruptWatcher&) = delete;
  InterruptWatcher& operator=(const InterruptWatcher&) = delete;

 private:
  void Watch();

  const std::function<void()> on_signal_;
  const Signals signals_;
  int stop_event_;  // eventfd: readable when the watcher is to end
  std::thread thread_;
};

}  // namespace nacre::tools

#endif  // TOOLS_INTERRUPT_H_
