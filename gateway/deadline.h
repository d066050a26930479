// A moment that may be put off or brought forward, and what happens then. For
// http_session.h: it includes Boost.Asio.
//
// On the thread of the event loop. What waits keeps the owner alive.

#ifndef GATEWAY_DEADLINE_H_
#define GATEWAY_DEADLINE_H_

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace nacre::gateway {

class Deadline {
 public:
  // `on_passed` is called when the moment has passed, and then no more until
  // the next Set.
  Deadline(boost::asio::io_context& io, std::function<void()> on_passed);

  // In `timeout` from now, in place of the moment before. `owner` holds this.
  void Set(absl::Duration timeout, std::shared_ptr<void> owner);
  // For good: nothing is called any more, and the owner is let go of.
  void Cancel();

 private:
  void Wait(std::shared_ptr<void> owner);

  boost::asio::steady_timer timer_;
  const std::function<void()> on_passed_;
  std::chrono::steady_clock::time_point at_;
  bool is_waiting_ = false;
  bool is_cancelled_ = false;
};

}  // namespace nacre::gateway

#endif  // GATEWAY_DEADLINE_H_
