#include "tools/bench/match_recorder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace nacre::tools {

using simulation::Guess;

namespace {

constexpr float kLeastRecordedScore = -1e6f;  // that a trace may have

}  // namespace

MatchRecorder::Shown MatchRecorder::ShownBy(
    const google::protobuf::RepeatedPtrField<v1::TraceLane>& lanes) const {
  Shown shown;
  std::map<int64_t, int64_t> since;  // on the coordinator's clock
  for (const v1::TraceLane& lane : lanes) {
    if (lane.role() != v1::WORKER_ROLE_DRAFT) continue;
    for (const v1::Span& span : lane.spans()) {
      if (span.kind() != v1::Span::KIND_DRAFT || span.length() == 0) continue;
      const int64_t position = int64_t{span.length()} - 1 - prompt_tokens_;
      const int64_t start_ns =
          static_cast<int64_t>(span.start_ns()) - lane.clock_offset_ns();
      const auto [it, is_first] = since.try_emplace(position, start_ns);
      if (!is_first && start_ns < it->second) continue;
      it->second = start_ns;
      shown[position] = &span.candidates();
    }
  }
  return shown;
}

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
  const Shown shown = ShownBy(lanes);
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
      NACRE_RETURN_IF_ERROR(Decide(first + i, true, shown));
    }
    if (committed == matched + 1 && step->rows() > matched + 1) {
      NACRE_RETURN_IF_ERROR(Decide(first + matched, false, shown));
    }
  }
  return absl::OkStatus();
}

absl::Status MatchRecorder::Decide(int64_t position, bool match,
                                   const Shown& shown) {
  if (position < 0 || position >= static_cast<int64_t>(guesses_.size())) {
    return absl::OkStatus();
  }
  NACRE_ASSIGN_OR_RETURN(Guess guess, GuessOf(position, match, shown));
  std::optional<Guess>& known = guesses_[static_cast<size_t>(position)];
  if (known.has_value() && known->matches() != match) {
    return absl::DataLossError(absl::StrFormat(
        "the draft's token %d matched in one run and not in another",
        position));
  }
  // One run may have had a draft that knows no ranks.
  if (known.has_value() && !known->scores.empty()) {
    if (guess.scores.empty() || guess.rank == known->rank) {
      return absl::OkStatus();
    }
    return absl::DataLossError(absl::StrFormat(
        "token %d has rank %d among the draft's candidates in one run and %d "
        "in another",
        position, known->rank, guess.rank));
  }
  known = std::move(guess);
  return absl::OkStatus();
}

absl::StatusOr<Guess> MatchRecorder::GuessOf(int64_t position, bool match,
                                             const Shown& shown) const {
  Guess guess = match;
  const auto it = shown.find(position);
  if (it == shown.end()) return guess;
  const Candidates& candidates = *it->second;
  for (int i = 0; i < candidates.size(); ++i) {
    // A thousandth is finer than any calibration. After one that is no number
    // nothing is known.
    const float score = candidates[i].score() - candidates[0].score();
    if (!std::isfinite(score)) break;
    if (i == 0) guess.rank = speculation::kBeyond;
    guess.scores.push_back(
        std::max(kLeastRecordedScore, std::round(score * 1000.0f) / 1000.0f));
    if (candidates[i].token_id() == token_ids_[static_cast<size_t>(position)]) {
      guess.rank = i + 1;
    }
  }
  if (!guess.scores.empty() && guess.matches() != match) {
    return absl::DataLossError(absl::StrFormat(
        "token %d %s, and has rank %d among the draft's candidates", position,
        match ? "matched" : "did not match", guess.rank));
  }
  return guess;
}

std::optional<int> MatchRecorder::first_open() const {
  const auto open = std::find(guesses_.begin(), guesses_.end(), std::nullopt);
  if (open == guesses_.end()) return std::nullopt;
  return static_cast<int>(open - guesses_.begin());
}

int MatchRecorder::num_open() const {
  return static_cast<int>(
      std::count(guesses_.begin(), guesses_.end(), std::nullopt));
}

simulation::MatchTrace MatchRecorder::matches() const {
  simulation::MatchTrace trace;
  for (const std::optional<Guess>& guess : guesses_) {
    if (!guess.has_value()) break;
    trace.push_back(*guess);
  }
  return trace;
}

}  // namespace nacre::tools
