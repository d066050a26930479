#include "common/control_groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files.h"

namespace nacre {
namespace {

// `group` and those above it, below `root`: "/a/b", or "/", the root itself.
void AddUpTo(const std::string& root, absl::string_view group,
             std::vector<std::string>* folders) {
  std::string path(absl::StripSuffix(group, "/"));
  while (true) {
    folders->push_back(root + path);
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return;
    path.resize(slash);
  }
}

}  // namespace

std::vector<std::string> ControlGroupFolders(absl::string_view controller,
                                             const ControlGroupFiles& files) {
  std::vector<std::string> folders;
  const auto text = ReadFile(files.groups);
  if (!text.ok()) return folders;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(*text, '\n'))) {
    // "0::/path" of version 2, "4:cpu,cpuacct:/path" of version 1.
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[1].empty()) {
      AddUpTo(files.mount, parts[2], &folders);
    } else if (std::count(controllers.begin(), controllers.end(), controller) >
               0) {
      AddUpTo(absl::StrCat(files.mount, "/", parts[1]), parts[2], &folders);
    }
  }
  return folders;
}

}  // namespace nacre
