// How many cores the control groups of this process let it use, as containers
// are limited, and so how many compute threads `--cpus auto` makes.
//
// Reads files; thread-safe.

#ifndef COMMON_CPU_QUOTA_H_
#define COMMON_CPU_QUOTA_H_

#include <limits>
#include <vector>

#include "absl/types/optional.h"
#include "common/control_groups.h"

namespace nacre {

// In a list of cores: a thread of its own, on any core.
constexpr int kAnyCpu = std::numeric_limits<int>::min();

// CPU time a second of wall time that this process may use with all others of
// its group. It is the least of its control group and those above it. nullopt:
// no limit, or none that can be read.
absl::optional<double> CpuQuota(const ControlGroupFiles& files = {});

// One entry for each thread: all of `available`, which must not be empty. Where
// the quota is below that, as many kAnyCpu as it has whole cores, at least one.
// The cores are then others' too, and a thread that is bound to one would wait
// for it while another is free.
std::vector<int> CpusWithin(const std::vector<int>& available,
                            absl::optional<double> quota);

}  // namespace nacre

#endif  // COMMON_CPU_QUOTA_H_
