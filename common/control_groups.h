// The control groups of this process, by which containers are limited, version
// 1 and 2.
//
// Reads files; thread-safe.

#ifndef COMMON_CONTROL_GROUPS_H_
#define COMMON_CONTROL_GROUPS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace nacre {

struct ControlGroupFiles {
  std::string groups = "/proc/self/cgroup";  // lists those of the process
  std::string mount = "/sys/fs/cgroup";      // below are their files
};

// The folders of the groups that `controller` ("cpu", "memory") limits this
// process in, and of those above each. Some may not be there: a container may
// see its own group as the root, under a path that is only the host's.
std::vector<std::string> ControlGroupFolders(absl::string_view controller,
                                             const ControlGroupFiles& files);

}  // namespace nacre

#endif  // COMMON_CONTROL_GROUPS_H_
