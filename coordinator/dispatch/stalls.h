// Clients that take nothing while their targets wait for them, and since when.
//
// Pure: no I/O, no clock, no threads.

#ifndef COORDINATOR_DISPATCH_STALLS_H_
#define COORDINATOR_DISPATCH_STALLS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "coordinator/dispatch/clock.h"

namespace nacre::coordinator {

class Stalls {
 public:
  // A client may take nothing for so long; kNever: for ever.
  explicit Stalls(int64_t timeout_ns) : timeout_ns_(timeout_ns) {}

  // The session's client has taken `taken` chunks and takes no more. Returns
  // when its time is over: kNever where that is known already.
  int64_t Begin(uint64_t session_id, int64_t now_ns, int64_t taken) {
    if (timeout_ns_ == kNever ||
        !stalls_.try_emplace(session_id, Stall{now_ns, taken}).second) {
      return kNever;
    }
    return After(now_ns, timeout_ns_);
  }
  // It takes chunks again, or there is nothing to take.
  void End(uint64_t session_id) { stalls_.erase(session_id); }

  struct Due {
    std::vector<uint64_t> sessions;  // whose time is over; the oldest first
    int64_t next_ns = kNever;        // when the next one's is
  };
  // `taken`: the chunks that a session's client has taken by now. One that took
  // some is slow, but reads: its time begins anew.
  Due At(int64_t now_ns, absl::FunctionRef<int64_t(uint64_t)> taken) {
    Due due;
    for (auto& [session_id, stall] : stalls_) {
      const int64_t taken_now = taken(session_id);
      if (taken_now > stall.taken) {
        stall = {now_ns, taken_now};
      } else if (After(stall.since_ns, timeout_ns_) <= now_ns) {
        due.sessions.push_back(session_id);
        continue;
      }
      due.next_ns = std::min(due.next_ns, After(stall.since_ns, timeout_ns_));
    }
    std::sort(due.sessions.begin(), due.sessions.end());
    return due;
  }

 private:
  struct Stall {
    int64_t since_ns = 0;
    int64_t taken = 0;
  };

  const int64_t timeout_ns_;
  absl::flat_hash_map<uint64_t, Stall> stalls_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_STALLS_H_
