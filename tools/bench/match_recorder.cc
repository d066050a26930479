#include "tools/bench/match_recorder.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace nacre::tools {

absl::Status MatchRecorder::Add(
    const google::protobuf::RepeatedPtrField<v1::TraceLane>& lanes) {
  std::vector<const v1::Span*> steps;
  for (const v1::TraceLane& lane : lanes) {
    if (lane.role() != v1::WORKER_ROLE_TARGET) continue;
    for (const v1::Span& span : lane.spans()) {
      if (span.kind() == v1::Span::KIND_VERIFY) steps.push_back(&span);
    }
  }
  // Several targets, where one was lost.
  std::stable_sort(steps.begin(), steps.end(),
                   [](const v1::Span* a, const v1::Span* b) {
                     return a->length() < b->length();
                   });
  int64_t base = prompt_tokens_;
  for (const v1::Span* step : steps) {
    const int64_t committed = step->length() - base;
    const int64_t first = base - prompt_tokens_;
    const int64_t matched = step->matched();
    base = step->length();
    // One token more than matched, unless a matching one was the end. What does
    // not follow the step before it has lost its place.
    if (committed != matched + 1 && committed != matched) continue;
    for (int64_t i = 0; i < matched; ++i) {
      NACRE_RETURN_IF_ERROR(Decide(static_cast<int>(first + i), true));
    }
    if (committed == matched + 1 && step->rows() > matched + 1) {
      NACRE_RETURN_IF_ERROR(Decide(static_cast<int>(first + matched), false));
    }
  }
  return absl::OkStatus();
}

absl::Status MatchRecorder::Decide(int position, bool match) {
  if (position < 0 || position >= static_cast<int>(matches_.size())) {
    return absl::OkStatus();
  }
  std::optional<bool>& known = matches_[position];
  if (known.has_value() && *known != match) {
    return absl::DataLossError(absl::StrFormat(
        "the draft's token %d matched in one run and not in another",
        position));
  }
  known = match;
  return absl::OkStatus();
}

std::optional<int> MatchRecorder::first_open() const {
  const auto open =
      std::find(matches_.begin(), matches_.end(), std::optional<bool>());
  if (open == matches_.end()) return std::nullopt;
  return static_cast<int>(open - matches_.begin());
}

int MatchRecorder::num_open() const {
  return static_cast<int>(
      std::count(matches_.begin(), matches_.end(), std::optional<bool>()));
}

simulation::MatchTrace MatchRecorder::matches() const {
  simulation::MatchTrace trace;
  for (const std::optional<bool>& match : matches_) {
    if (!match.has_value()) break;
    trace.push_back(*match);
  }
  return trace;
}

}  // namespace nacre::tools
