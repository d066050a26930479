#include "common/watchdog.h"

#include <algorithm>

namespace nacre {

bool Watchdog::Observe(const Progress& progress, int64_t now_ns) {
  const bool stalled =
      progress.working && last_.working && progress.finished == last_.finished;
  stalled_ns_ = stalled ? stalled_ns_ + std::clamp<int64_t>(now_ns - last_ns_,
                                                            0, max_gap_ns_)
                        : 0;
  last_ = progress;
  last_ns_ = now_ns;
  return stalled_ns_ >= hang_timeout_ns_;
}

}  // namespace nacre
