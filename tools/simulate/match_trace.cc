#include "tools/simulate/match_trace.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/json_fields.h"
#include "common/status_macros.h"
#include "tools/generate/generation_json.h"

namespace nacre::tools {
namespace {

using simulation::Guess;
using simulation::MatchTrace;
using speculation::kBeyond;
using speculation::kRanks;

// No answer is longer; bounds what a few digits can ask for.
constexpr int64_t kMaxLength = 1'000'000;
constexpr int kVersion = 2;
// Softmax of less is 0 at any temperature of a calibration.
constexpr float kLeastScore = -1e6f;

// Whole numbers in 0..max; true and false are 1 and 0.
absl::StatusOr<std::vector<int64_t>> ReadNumbers(const Json& array,
                                                 absl::string_view key,
                                                 int64_t max) {
  if (!array.is_array() || array.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", key, "\" is not an array with entries"));
  }
  std::vector<int64_t> numbers;
  for (const Json& entry : array) {
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

absl::StatusOr<std::vector<float>> ReadScores(const Json& array,
                                              size_t position) {
  const auto refuse = [position](absl::string_view problem) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"scores\": entry ", position + 1, " ", problem));
  };
  if (!array.is_array() || array.empty() || array.size() > size_t{kRanks}) {
    return refuse(absl::StrCat("is not an array of 1..", kRanks, " scores"));
  }
  std::vector<float> scores;
  for (const Json& entry : array) {
    const float score = entry.is_number() ? entry.get<float>() : 1.0f;
    const float most = scores.empty() ? 0.0f : scores.back();
    if (score > most || score < kLeastScore || (scores.empty() && score < 0)) {
      return refuse(absl::StrCat("has ", entry.dump(),
                                 ": scores fall from 0 to ", kLeastScore));
    }
    scores.push_back(score);
  }
  return scores;
}

absl::StatusOr<MatchTrace> ParseRanks(const Json& json) {
  NACRE_ASSIGN_OR_RETURN(const std::vector<int64_t> ranks,
                         ReadNumbers(json["ranks"], "ranks", kRanks));
  MatchTrace trace;
  for (const int64_t rank : ranks) {
    trace.push_back({rank == 0 ? kBeyond : static_cast<int>(rank), {}});
  }
  const auto scores = json.find("scores");
  if (scores == json.end()) {
    simulation::FillScores(&trace);
    return trace;
  }
  if (!scores->is_array() || scores->size() != trace.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"scores\" is not an array of ", trace.size(),
                     " entries, as \"ranks\" is"));
  }
  for (size_t i = 0; i < trace.size(); ++i) {
    NACRE_ASSIGN_OR_RETURN(trace[i].scores, ReadScores((*scores)[i], i));
    if (trace[i].rank != kBeyond &&
        trace[i].rank > static_cast<int>(trace[i].scores.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"ranks\": entry ", i + 1, " is ", trace[i].rank,
                       ", and it has ", trace[i].scores.size(), " scores"));
    }
  }
  return trace;
}

absl::StatusOr<MatchTrace> ParseLengths(const Json& lengths) {
  NACRE_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers,
                         ReadNumbers(lengths, "accepted_lengths", kMaxLength));
  MatchTrace trace;
  for (const int64_t length : numbers) {
    trace.insert(trace.end(), static_cast<size_t>(length), Guess(true));
    trace.push_back(false);
    if (static_cast<int64_t>(trace.size()) > 10 * kMaxLength) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"accepted_lengths\" has more than ", 10 * kMaxLength, " tokens"));
    }
  }
  return trace;
}

absl::StatusOr<MatchTrace> ParseLine(absl::string_view line) {
  NACRE_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(line));
  const auto version = json.find("version");
  if (version != json.end() && *version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("version ", version->dump(), " is not ", kVersion));
  }
  if (json.count("ranks") + json.count("matches") +
          json.count("accepted_lengths") !=
      1) {
    return absl::InvalidArgumentError(
        "needs one of \"ranks\", \"matches\" and \"accepted_lengths\"");
  }
  if (json.contains("ranks")) return ParseRanks(json);
  if (json.contains("accepted_lengths")) {
    return ParseLengths(json["accepted_lengths"]);
  }
  NACRE_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers,
                         ReadNumbers(json["matches"], "matches", 1));
  MatchTrace trace;
  for (const int64_t number : numbers) trace.push_back(number == 1);
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
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  nlohmann::ordered_json scores = nlohmann::ordered_json::array();
  bool all_have_scores = true;
  for (const Guess& guess : trace) {
    ranks.push_back(guess.rank == kBeyond ? 0 : guess.rank);
    nlohmann::ordered_json of_guess = nlohmann::ordered_json::array();
    for (const float score : guess.scores) {
      of_guess.push_back(std::round(double{score} * 1000.0) / 1000.0);
    }
    scores.push_back(std::move(of_guess));
    all_have_scores = all_have_scores && !guess.scores.empty();
  }
  nlohmann::ordered_json line = {
      {"id", std::string(id)}, {"version", kVersion}, {"ranks", ranks}};
  if (all_have_scores) line["scores"] = std::move(scores);
  return JsonText(line, -1);
}

}  // namespace nacre::tools
