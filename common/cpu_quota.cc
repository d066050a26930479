#include "common/cpu_quota.h"

#include <algorithm>

#include "absl/strings/numbers.h"
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

}  // namespace

absl::optional<double> CpuQuota(const ControlGroupFiles& files) {
  absl::optional<double> least;
  for (const std::string& folder : ControlGroupFolders("cpu", files)) {
    const absl::optional<double> quota = QuotaOf(folder);
    if (quota.has_value()) least = std::min(*quota, least.value_or(*quota));
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
