// How much memory this process may come to have: what the machine has, and what
// its control groups let it have, as containers are limited.
//
// Reads files; thread-safe.

#ifndef COMMON_MEMORY_LIMIT_H_
#define COMMON_MEMORY_LIMIT_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/control_groups.h"

namespace nacre {

inline constexpr int64_t kNoMemoryLimit = std::numeric_limits<int64_t>::max();

// In bytes.
struct MemoryLimit {
  std::string origin;  // "the machine", or the file of a control group
  // Memory and swap that this process may have together with others;
  // kNoMemoryLimit of a file above whose bytes it is slowed, but not killed.
  int64_t limit = 0;
  // Free memory now; caches of files count as free.
  int64_t available = 0;
};

struct MemoryFiles {
  ControlGroupFiles groups;
  std::string machine = "/proc/meminfo";
};

// The machine's, and those of each control group that has some; without those
// that cannot be read.
std::vector<MemoryLimit> MemoryLimits(const MemoryFiles& files = {});

}  // namespace nacre

#endif  // COMMON_MEMORY_LIMIT_H_
