// What `nacre bench` compares: the list of --methods.

#ifndef TOOLS_BENCH_METHODS_H_
#define TOOLS_BENCH_METHODS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/inference.pb.h"

namespace nacre::tools {

// One entry: a method, perhaps at a window of its own.
struct BenchMethod {
  std::string name;  // as typed: "sd:4"
  v1::Method method = v1::METHOD_UNSPECIFIED;
  std::optional<uint32_t> window;
};

// "ar,sd:4,pearl:6,async": names with an optional window in 1..64, which
// `default_window` fills where there is none (but ar has no window).
// INVALID_ARGUMENT: an unknown method, a bad window, a window of ar, an entry
// twice.
absl::StatusOr<std::vector<BenchMethod>> ParseBenchMethods(
    absl::string_view text, std::optional<uint32_t> default_window);

}  // namespace nacre::tools

#endif  // TOOLS_BENCH_METHODS_H_
