#include "coordinator/dispatch/tick_thread.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"

namespace nacre::coordinator {

void TickThread::Start(std::function<int64_t()> tick) {
  thread_ = std::thread([this, tick = std::move(tick)] { Run(tick); });
}

void TickThread::WakeAt(int64_t at_ns) {
  absl::MutexLock lock(&mu_);
  if (at_ns >= at_ns_) return;
  at_ns_ = at_ns;
  changed_.Signal();
}

Progress TickThread::progress() const {
  absl::MutexLock lock(&mu_);
  return {num_ticks_, ticking_ || at_ns_ <= MonotonicNs()};
}

void TickThread::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    changed_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

void TickThread::Run(const std::function<int64_t()>& tick) {
  absl::MutexLock lock(&mu_);
  bool first = true;  // at once
  while (!stopped_) {
    if (!first) {
      if (at_ns_ == kNever) {
        changed_.Wait(&mu_);
        continue;
      }
      const int64_t left_ns = at_ns_ - MonotonicNs();
      if (left_ns > 0) {
        changed_.WaitWithTimeout(&mu_, absl::Nanoseconds(left_ns));
        continue;
      }
      at_ns_ = kNever;
    }
    first = false;
    ticking_ = true;
    mu_.Unlock();
    const int64_t next_ns = tick();
    mu_.Lock();
    ticking_ = false;
    ++num_ticks_;
    at_ns_ = std::min(at_ns_, next_ns);
  }
}

}  // namespace nacre::coordinator
