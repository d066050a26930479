// The one thread on which all connections of the gateway live, and a few more
// for what takes long: reading large prompts, rendering, tokenizing.
//
// Thread-safe.

#ifndef GATEWAY_EVENT_LOOP_H_
#define GATEWAY_EVENT_LOOP_H_

#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace boost::asio {
class io_context;
}

namespace nacre::gateway {

class EventLoop {
 public:
  explicit EventLoop(int work_threads = 2);
  ~EventLoop();  // stops
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs `function` on the loop's thread, in the order of the calls.
  void Post(std::function<void()> function);
  // The same, not before `delay` has passed.
  void PostAfter(absl::Duration delay, std::function<void()> function);
  // Runs `function` on a thread for work. False: too much waits already, and it
  // will not run.
  bool PostWork(std::function<void()> function);

  // Ends the threads for work: what waits for them does not run. Idempotent;
  // not on one of them.
  void StopWork();
  // Ends all threads. What was posted before has run then; what that posted in
  // turn and what was to wait is dropped. Idempotent; not on one of them.
  void Stop();

  // For connections. Its handlers run on the loop's thread.
  boost::asio::io_context& io();

 private:
  class Impl;  // keeps Boost out of this header

  const std::unique_ptr<Impl> impl_;
};

}  // namespace nacre::gateway

#endif  // GATEWAY_EVENT_LOOP_H_
