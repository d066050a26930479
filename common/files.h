// Whole files as texts.
//
// Thread-safe; what others do to the file meanwhile is theirs.

#ifndef COMMON_FILES_H_
#define COMMON_FILES_H_

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace nacre {

// The whole of a file of at most `max_bytes`. NOT_FOUND: there is none, or it
// cannot be read, or it is a folder. DATA_LOSS: it is longer.
absl::StatusOr<std::string> ReadFile(
    const std::string& path,
    int64_t max_bytes = std::numeric_limits<int64_t>::max());

// Replaces the file by `content` and the end of a line. PERMISSION_DENIED: it
// cannot be written.
absl::Status WriteFile(const std::string& path, const std::string& content);

}  // namespace nacre

#endif  // COMMON_FILES_H_
