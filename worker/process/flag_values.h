// Values of flags that several groups of flags have. Any thread.

#ifndef WORKER_PROCESS_FLAG_VALUES_H_
#define WORKER_PROCESS_FLAG_VALUES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/optional.h"

namespace nacre::worker {

// "1073741824", "1024M" or "1G".
absl::Status SetBytes(const std::string& text, absl::optional<int64_t>* value);

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_FLAG_VALUES_H_
