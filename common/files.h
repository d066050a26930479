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

// The whole of a file of at most `max_bytes`, or of a pipe, for whose writer it
// waits. NOT_FOUND: there is none, or it
// cannot be read, or it is a folder. DATA_LOSS: it is longer.
absl::StatusOr<std::string> ReadFile(
    const std::string& path,
    int64_t max_bytes = std::numeric_limits<int64_t>::max());

// The same of a file that is there to stay, as a model's are, or a link to one:
// INVALID_ARGUMENT where it is a pipe, a device or a socket, at once.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path,
                                            int64_t max_bytes);

// Replaces the file by `content` and the end of a line. PERMISSION_DENIED: it
// cannot be written.
absl::Status WriteFile(const std::string& path, const std::string& content);

}  // namespace nacre

#endif  // COMMON_FILES_H_
