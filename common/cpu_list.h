// Lists of cores as users write them.
//
// Thread-safe: a pure function.

#ifndef COMMON_CPU_LIST_H_
#define COMMON_CPU_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace nacre {

// Parses "0,2-4" into {0, 2, 3, 4}. INVALID_ARGUMENT on anything else.
absl::StatusOr<std::vector<int>> ParseCpuList(const std::string& text);

}  // namespace nacre

#endif  // COMMON_CPU_LIST_H_
