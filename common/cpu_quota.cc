#include "common/cpu_quota.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/files.h"

namespace nacre {
namespace {

// The numbers of "max 100000" and the like; nullopt where one is none.
absl::optional<double> Share(const std::string& quota,
                             const std::string& period) {
  double time = 0;
  double of = 0;
  if (!absl::SimpleAtod(quota, &time) || !absl::SimpleAtod(period, &of) ||
      time <= 0 || of <= 0) {
    return absl::nullopt;  // "max" and -1: no limit
  }
  return time / of;
}

// Of one group, whose files are in `folder`.
absl::optional<double> QuotaOf(const std::string& folder) {
  const auto both = ReadFile(folder + "/cpu.max");
  if (both.ok()) {
    const std::vector<std::string> words =
        absl::StrSplit(*both, absl::ByAnyChar(" \n"), absl::SkipEmpty());
    if (words.size() == 2) return Share(words[0], words[1]);
  }
  const auto quota = ReadFile(folder + "/cpu.cfs_quota_us");
  const auto period = ReadFile(folder + "/cpu.cfs_period_us");
  if (!quota.ok() || !period.ok()) return absl::nullopt;
  return Share(*quota, *period);
}

// Of the group `path` below `root` and of those above it. A container may see
// its own group as the root, under a path that is only the host's.
void Lower(const std::string& root, std::string path,
           absl::optional<double>* least) {
  while (true) {
    const absl::optional<double> quota = QuotaOf(root + path);
    if (quota.has_value()) {
      *least = std::min(*quota, least->value_or(*quota));
    }
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return;
    path.resize(slash);
  }
}

}  // namespace

absl::optional<double> CpuQuota(const std::string& groups,
                                const std::string& mount) {
  absl::optional<double> least;
  const auto text = ReadFile(groups);
  if (!text.ok()) return least;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(*text, '\n'))) {
    // "0::/path" of version 2, "4:cpu,cpuacct:/path" of version 1.
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[1].empty()) {
      Lower(mount, parts[2], &least);
    } else if (std::count(controllers.begin(), controllers.end(), "cpu") > 0) {
      Lower(absl::StrCat(mount, "/", parts[1]), parts[2], &least);
    }
  }
  return least;
}

std::vector<int> CpusWithin(const std::vector<int>& available,
                            absl::optional<double> quota) {
  NACRE_CHECK(!available.empty(), "a process runs on a core");
  if (!quota.has_value() || *quota >= static_cast<double>(available.size())) {
    return available;
  }
  return std::vector<int>(std::max(1, static_cast<int>(*quota)), kAnyCpu);
}

}  // namespace nacre
