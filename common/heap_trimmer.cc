#include "common/heap_trimmer.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace nacre {
namespace {

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Memory that the process has and that no piece of malloc's takes: what is
// free, stacks and code.
int64_t UnusedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return ResidentBytes() - static_cast<int64_t>(info.uordblks + info.hblkhd);
}

}  // namespace

absl::optional<std::string> TunablesWithoutThreadCaches(const char* now) {
  const std::string before = now == nullptr ? "" : now;
  constexpr char kName[] = "glibc.malloc.tcache_count";
  if (absl::StrContains(before, kName)) return absl::nullopt;
  return absl::StrCat(before, before.empty() ? "" : ":", kName, "=0");
}

void LimitHeap() {
  // glibc would raise the first limit up to 32 MiB with the first large piece,
  // and hold 16 arenas on two cores.
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
  mallopt(M_ARENA_MAX, 4);
}

void StartWithSmallHeap(char** argv) {
  const auto tunables =
      TunablesWithoutThreadCaches(std::getenv("GLIBC_TUNABLES"));
  if (tunables.has_value()) {
    setenv("GLIBC_TUNABLES", tunables->c_str(), /*overwrite=*/1);
    execv("/proc/self/exe", argv);
  }
  LimitHeap();
}

bool HeapTrimmer::Look() {
  const int64_t unused = UnusedBytes();
  if (least_unused_.has_value()) {
    least_unused_ = std::min(*least_unused_, unused);
    if (unused - *least_unused_ < options_.growth_bytes) return false;
  }
  malloc_trim(0);
  least_unused_ = UnusedBytes();
  return true;
}

}  // namespace nacre
