// Progress that a log file can bear: ten lines a second where they overwrite
// each other, one in five seconds elsewhere.

#ifndef TOOLS_THROTTLED_PROGRESS_H_
#define TOOLS_THROTTLED_PROGRESS_H_

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tools/terminal.h"

namespace nacre::tools {

// Not thread-safe. The terminal outlives it.
class ThrottledProgress {
 public:
  explicit ThrottledProgress(const Terminal& terminal)
      : terminal_(terminal),
        interval_(terminal.err_is_tty ? absl::Milliseconds(100)
                                      : absl::Seconds(5)) {}

  void operator()(const std::string& line) {
    if (absl::Now() < next_) return;
    next_ = absl::Now() + interval_;
    terminal_.Progress(line);
  }

 private:
  const Terminal& terminal_;
  const absl::Duration interval_;
  absl::Time next_ = absl::InfinitePast();
};

}  // namespace nacre::tools

#endif  // TOOLS_THROTTLED_PROGRESS_H_
