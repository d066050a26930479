#include "kernels/device_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace nacre::kernels {

int64_t DeviceMemory::available() const {
  if (!limit.has_value()) return free;
  return std::max<int64_t>(0, std::min(free, *limit - used));
}

std::string DeviceMemory::ToString() const {
  std::string text = absl::StrCat(free, " of ", total, " are free");
  if (limit.has_value()) {
    absl::StrAppend(&text, "; ", used, " of the limit of ", *limit,
                    " are used");
  }
  return text;
}

}  // namespace nacre::kernels
