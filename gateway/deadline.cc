#include "gateway/deadline.h"

#include <utility>

namespace nacre::gateway {

Deadline::Deadline(boost::asio::io_context& io, std::function<void()> on_passed)
    : timer_(io), on_passed_(std::move(on_passed)) {}

void Deadline::Set(absl::Duration timeout, std::shared_ptr<void> owner) {
  if (is_cancelled_) return;
  at_ = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  if (!is_waiting_) {
    is_waiting_ = true;
    Wait(std::move(owner));
  } else if (at_ < timer_.expiry()) {
    timer_.cancel();  // and wait for the new one
  }
}

void Deadline::Cancel() {
  is_cancelled_ = true;
  timer_.cancel();
}

void Deadline::Wait(std::shared_ptr<void> owner) {
  timer_.expires_at(at_);
  timer_.async_wait(
      [this, owner = std::move(owner)](const boost::system::error_code&) {
        if (is_cancelled_) return;
        if (std::chrono::steady_clock::now() < at_) return Wait(owner);
        is_waiting_ = false;
        on_passed_();
      });
}

}  // namespace nacre::gateway
