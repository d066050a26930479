#include "tools/bench_methods.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "tools/method_names.h"

namespace nacre::tools {
namespace {

constexpr uint32_t kMaxWindow = 64;

absl::StatusOr<BenchMethod> ParseEntry(absl::string_view text,
                                       std::optional<uint32_t> default_window) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const bool has_window = text.find(':') != absl::string_view::npos;
  BenchMethod entry;
  entry.name = std::string(text);
  NACRE_ASSIGN_OR_RETURN(entry.method, ParseMethod(parts.first));
  if (entry.method == v1::METHOD_AR) {
    if (has_window) {
      return absl::InvalidArgumentError(
          absl::StrCat("method \"", text, "\": ar has no window"));
    }
    return entry;
  }
  entry.window = default_window;
  if (has_window) {
    uint32_t window = 0;
    if (!absl::SimpleAtoi(parts.second, &window) || window < 1 ||
        window > kMaxWindow) {
      return absl::InvalidArgumentError(absl::StrCat(
          "method \"", text, "\": the window is not in 1..", kMaxWindow));
    }
    entry.window = window;
  }
  return entry;
}

}  // namespace

absl::StatusOr<std::vector<BenchMethod>> ParseBenchMethods(
    absl::string_view text, std::optional<uint32_t> default_window) {
  std::vector<BenchMethod> methods;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    NACRE_ASSIGN_OR_RETURN(BenchMethod entry, ParseEntry(part, default_window));
    for (const BenchMethod& other : methods) {
      if (other.method == entry.method && other.window == entry.window) {
        return absl::InvalidArgumentError(
            absl::StrCat("method \"", part, "\" is given twice"));
      }
    }
    methods.push_back(std::move(entry));
  }
  return methods;
}

}  // namespace nacre::tools
