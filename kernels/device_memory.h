// Memory of a device that is not the host's, in bytes.
//
// Values and pure functions.

#ifndef KERNELS_DEVICE_MEMORY_H_
#define KERNELS_DEVICE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/types/optional.h"

namespace nacre::kernels {

struct DeviceMemory {
  int64_t total = 0;
  int64_t free = 0;               // not in use
  int64_t used = 0;               // by the buffers of one backend
  absl::optional<int64_t> limit;  // most that `used` may be

  // What the backend may still allocate.
  int64_t available() const;
  // "5000 of 8000 are free", and with a limit "; 100 of the limit of 4000 are
  // used".
  std::string ToString() const;
};

}  // namespace nacre::kernels

#endif  // KERNELS_DEVICE_MEMORY_H_
