#include "worker/engine/time_partition.h"

#include <algorithm>

namespace nacre::worker {

void TimePartition::Enter(WorkerState state, int64_t now_ns) {
  const int64_t now = std::max(now_ns, since_ns_);
  by_state_ns_[static_cast<int>(state_)] += now - since_ns_;
  since_ns_ = now;
  state_ = state;
}

TimePartition::Totals TimePartition::At(int64_t now_ns) const {
  const int64_t now = std::max(now_ns, since_ns_);
  Totals totals;
  totals.elapsed_ns = now - start_ns_;
  totals.by_state_ns = by_state_ns_;
  totals.by_state_ns[static_cast<int>(state_)] += now - since_ns_;
  return totals;
}

}  // namespace nacre::worker
