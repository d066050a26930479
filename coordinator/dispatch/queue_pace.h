// How fast a queue that does not get empty moves, and so when a client that
// finds it full should try again.
//
// Pure: no I/O, no clock, no threads.

#ifndef COORDINATOR_DISPATCH_QUEUE_PACE_H_
#define COORDINATOR_DISPATCH_QUEUE_PACE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace nacre::coordinator {

class QueuePace {
 public:
  // The pace is that of so many starts, the last ones.
  static constexpr size_t kStarts = 32;
  static constexpr int64_t kMaxRetrySeconds = 60;

  // The queue was empty, and is not now.
  void Begin(int64_t now_ns) {
    starts_.clear();
    since_ns_ = now_ns;
  }

  // A request has started.
  void NoteStart(int64_t now_ns) {
    starts_.push_back(now_ns);
    if (starts_.size() <= kStarts) return;
    since_ns_ = starts_.front();
    starts_.pop_front();
  }

  // In how many seconds, from 1 to kMaxRetrySeconds, the `waiting` requests
  // have started at the pace so far. 0: none has started since the queue is not
  // empty.
  int64_t RetryAfterSeconds(int waiting, int64_t now_ns) const {
    if (starts_.empty()) return 0;
    const double elapsed_s = static_cast<double>(now_ns - since_ns_) * 1e-9;
    const double seconds = elapsed_s * static_cast<double>(waiting) /
                           static_cast<double>(starts_.size());
    if (!(seconds < static_cast<double>(kMaxRetrySeconds))) {
      return kMaxRetrySeconds;
    }
    // Rounded up.
    const auto whole = static_cast<int64_t>(seconds);
    return std::max<int64_t>(
        1, static_cast<double>(whole) < seconds ? whole + 1 : whole);
  }

 private:
  std::deque<int64_t> starts_;  // since `since_ns_`
  int64_t since_ns_ = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_QUEUE_PACE_H_
