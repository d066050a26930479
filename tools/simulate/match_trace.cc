#include "tools/simulate/match_trace.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "tools/generate/generation_json.h"

namespace nacre::tools {
namespace {

using simulation::MatchTrace;

// No answer is longer; bounds what a few digits can ask for.
constexpr int64_t kMaxLength = 1'000'000;

// Whole numbers in 0..max; true and false are 1 and 0.
absl::StatusOr<std::vector<int64_t>> ReadNumbers(const nlohmann::json& array,
                                                 absl::string_view key,
                                                 int64_t max) {
  if (!array.is_array() || array.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", key, "\" is not an array with entries"));
  }
  std::vector<int64_t> numbers;
  for (const nlohmann::json& entry : array) {
    const bool in_range = entry.is_boolean() ||
                          (entry.is_number_unsigned() &&
                           entry.get<uint64_t>() <= static_cast<uint64_t>(max));
    if (!in_range) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", key, "\": entry ", numbers.size() + 1, " is ",
                       entry.dump(), ", not in 0..", max));
    }
    numbers.push_back(entry.is_boolean() ? (entry.get<bool>() ? 1 : 0)
                                         : entry.get<int64_t>());
  }
  return numbers;
}

absl::StatusOr<MatchTrace> ParseLine(absl::string_view line) {
  const auto json =
      nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError("not a JSON object");
  }
  const auto matches = json.find("matches");
  const auto lengths = json.find("accepted_lengths");
  if ((matches == json.end()) == (lengths == json.end())) {
    return absl::InvalidArgumentError(
        "needs one of \"matches\" and \"accepted_lengths\"");
  }
  MatchTrace trace;
  if (matches != json.end()) {
    NACRE_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers,
                           ReadNumbers(*matches, "matches", 1));
    trace.assign(numbers.begin(), numbers.end());
    return trace;
  }
  NACRE_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers,
                         ReadNumbers(*lengths, "accepted_lengths", kMaxLength));
  for (const int64_t length : numbers) {
    trace.insert(trace.end(), static_cast<size_t>(length), true);
    trace.push_back(false);
    if (static_cast<int64_t>(trace.size()) > 10 * kMaxLength) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"accepted_lengths\" has more than ", 10 * kMaxLength, " tokens"));
    }
  }
  return trace;
}

}  // namespace

absl::StatusOr<std::vector<std::shared_ptr<const MatchTrace>>> ParseMatchTraces(
    absl::string_view name, absl::string_view content) {
  std::vector<std::shared_ptr<const MatchTrace>> traces;
  int line_number = 0;
  for (const absl::string_view line : absl::StrSplit(content, '\n')) {
    ++line_number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    absl::StatusOr<MatchTrace> trace = ParseLine(line);
    if (!trace.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ":", line_number, ": ", trace.status().message()));
    }
    traces.push_back(std::make_shared<const MatchTrace>(*std::move(trace)));
  }
  if (traces.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has no line"));
  }
  return traces;
}

std::string MatchTraceLine(absl::string_view id, const MatchTrace& trace) {
  nlohmann::ordered_json matches = nlohmann::ordered_json::array();
  for (const bool match : trace) matches.push_back(match ? 1 : 0);
  const nlohmann::ordered_json line = {{"id", std::string(id)},
                                       {"matches", matches}};
  return JsonText(line, -1);
}

}  // namespace nacre::tools
