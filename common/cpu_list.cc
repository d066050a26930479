#include "common/cpu_list.h"

#include <sched.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace nacre {
namespace {

absl::Status BadList(const std::string& text, const std::string& reason) {
  return absl::InvalidArgumentError(
      absl::StrCat("cpu list \"", text, "\": ", reason,
                   "; expected cores and ranges such as 0,2-4"));
}

// Digits only: SimpleAtoi would take signs and blanks.
bool ParseCore(absl::string_view text, int* core) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit) &&
         absl::SimpleAtoi(text, core);
}

}  // namespace

absl::StatusOr<std::vector<int>> ParseCpuList(const std::string& text) {
  std::vector<int> cores;
  for (absl::string_view item : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(item, '-');
    int first = 0;
    int last = 0;
    if (ends.size() > 2 || !ParseCore(ends.front(), &first) ||
        !ParseCore(ends.back(), &last)) {
      return BadList(text, absl::StrCat("\"", item, "\" is no core or range"));
    }
    if (last >= CPU_SETSIZE) {
      return BadList(text, absl::StrCat("core ", last, " exceeds the limit ",
                                        CPU_SETSIZE - 1));
    }
    if (last < first) {
      return BadList(text, absl::StrCat("range \"", item, "\" runs backwards"));
    }
    for (int core = first; core <= last; ++core) {
      if (std::find(cores.begin(), cores.end(), core) != cores.end()) {
        return BadList(text, absl::StrCat("core ", core, " appears twice"));
      }
      cores.push_back(core);
    }
  }
  return cores;
}

}  // namespace nacre
