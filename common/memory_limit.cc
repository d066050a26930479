#include "common/memory_limit.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "common/files.h"

namespace nacre {
namespace {

// Where the files of a version of control groups say what.
struct Names {
  const char* limit;
  const char* high;  // above it a group is slowed; null: the version has none
  const char* usage;
  // Lines of memory.stat.
  const char* inactive_file;
  const char* active_file;
};

constexpr Names kVersion2 = {"memory.max", "memory.high", "memory.current",
                             "inactive_file", "active_file"};
constexpr Names kVersion1 = {"memory.limit_in_bytes", nullptr,
                             "memory.usage_in_bytes", "total_inactive_file",
                             "total_active_file"};

// The first number of a text; "max" is none.
absl::optional<int64_t> Number(absl::string_view text) {
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
  int64_t number = 0;
  if (words.empty() || !absl::SimpleAtoi(words[0], &number) || number < 0) {
    return absl::nullopt;
  }
  return number;
}

absl::optional<int64_t> NumberIn(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  return text.ok() ? Number(*text) : absl::nullopt;
}

// Of the line that begins with `name`.
absl::optional<int64_t> NumberOf(absl::string_view name,
                                 const std::string& text) {
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(absl::ByAnyChar(": "), 1));
    if (parts.size() == 2 && parts[0] == name) return Number(parts[1]);
  }
  return absl::nullopt;
}

// Swap that a group with this limit of memory may have.
int64_t SwapOf(const std::string& folder, int64_t limit, int64_t all_swap) {
  if (const auto swap = NumberIn(folder + "/memory.swap.max")) {
    return std::min(*swap, all_swap);
  }
  if (const auto both = NumberIn(folder + "/memory.memsw.limit_in_bytes")) {
    return std::min(std::max<int64_t>(*both - limit, 0), all_swap);
  }
  return all_swap;
}

// What a group leaves of `limit`.
int64_t Available(const std::string& folder, const Names& names,
                  int64_t limit) {
  const int64_t used =
      NumberIn(absl::StrCat(folder, "/", names.usage)).value_or(0);
  const std::string stat = ReadFile(folder + "/memory.stat").value_or("");
  const int64_t cached = NumberOf(names.inactive_file, stat).value_or(0) +
                         NumberOf(names.active_file, stat).value_or(0);
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, used - cached));
}

void AddLimits(const std::string& folder, const Names& names, int64_t all_swap,
               std::vector<MemoryLimit>* limits) {
  const std::string path = absl::StrCat(folder, "/", names.limit);
  const auto limit = NumberIn(path);
  int64_t with_swap = 0;
  // Version 1 writes a huge number where there is no limit.
  if (limit.has_value() &&
      !__builtin_add_overflow(*limit, SwapOf(folder, *limit, all_swap),
                              &with_swap)) {
    limits->push_back({path, with_swap, Available(folder, names, *limit)});
  }
  if (names.high == nullptr) return;
  const std::string high_path = absl::StrCat(folder, "/", names.high);
  if (const auto high = NumberIn(high_path)) {
    limits->push_back(
        {high_path, kNoMemoryLimit, Available(folder, names, *high)});
  }
}

}  // namespace

std::vector<MemoryLimit> MemoryLimits(const MemoryFiles& files) {
  std::vector<MemoryLimit> limits;
  // In units of 1024 bytes.
  const std::string machine = ReadFile(files.machine).value_or("");
  const auto bytes = [&](const char* name) {
    return NumberOf(name, machine).value_or(0) * 1024;
  };
  const int64_t all_swap = bytes("SwapTotal");
  const int64_t total = bytes("MemTotal");
  if (total > 0) {
    limits.push_back({"the machine", total + all_swap, bytes("MemAvailable")});
  }
  for (const std::string& folder :
       ControlGroupFolders("memory", files.groups)) {
    for (const Names& names : {kVersion2, kVersion1}) {
      AddLimits(folder, names, all_swap, &limits);
    }
  }
  return limits;
}

}  // namespace nacre
