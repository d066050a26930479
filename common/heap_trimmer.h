// Gives memory that a burst of clients took back to the system.
//
// malloc keeps what is free below something that is not: after a burst, most of
// what that took. Only malloc_trim gives such pages back, and nothing calls it
// by itself.

#ifndef COMMON_HEAP_TRIMMER_H_
#define COMMON_HEAP_TRIMMER_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/periodic_thread.h"

namespace nacre {

// What GLIBC_TUNABLES has to be so that threads cache no freed pieces, if it
// does not say how many already. `now`: its value, null if there is none. Such
// pieces count as used: a few KiB of each size in each thread keep the pages
// that they lie in, for good.
absl::optional<std::string> TunablesWithoutThreadCaches(const char* now);

// Has malloc keep few arenas and little of large pieces. Before other threads.
void LimitHeap();

// First of all in main(): sees to both. A running program cannot change what
// threads cache, so the first time this one is started again, with the same
// arguments and process id. Where it cannot be (no /proc), threads cache.
void StartWithSmallHeap(char** argv);

// Owns one thread. Trimming takes some milliseconds for 100 MiB, in which
// threads that allocate may wait. So it comes only where more is unused than
// after the last time. The first time it always comes: a burst may have come
// and gone before.
class HeapTrimmer {
 public:
  struct Options {
    absl::Duration period = absl::Seconds(5);
    // That many more.
    int64_t growth_bytes = int64_t{2} << 20;
  };

  explicit HeapTrimmer(Options options) : options_(options) {}

  void Start() {
    thread_.Start(options_.period, [this] { Look(); });
  }
  void Stop() { thread_.Stop(); }

  // What it does each time: whether it trimmed. Not beside its thread.
  bool Look();

 private:
  const Options options_;
  // Of what is unused, since it was trimmed last.
  absl::optional<int64_t> least_unused_;
  PeriodicThread thread_;
};

}  // namespace nacre

#endif  // COMMON_HEAP_TRIMMER_H_
