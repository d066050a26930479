#include "tools/cpu_list.h"

#include <sched.h>

#include <algorithm>

#include "absl/strings/str_join.h"
#include "common/check.h"

namespace nacre::tools {
std::string FormatCpuList(const std::vector<int>& cpus) {
  return absl::StrJoin(cpus, ",");
}

std::vector<int> AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<std::vector<int>> DealCpus(const std::vector<int>& cpus,
                                       int num_workers) {
  NACRE_CHECK(!cpus.empty() && num_workers > 0, "nothing to deal");
  std::vector<std::vector<int>> dealt(num_workers);
  const int cards = std::max<int>(num_workers, static_cast<int>(cpus.size()));
  for (int i = 0; i < cards; ++i) {
    dealt[i % num_workers].push_back(cpus[i % cpus.size()]);
  }
  return dealt;
}

}  // namespace nacre::tools
