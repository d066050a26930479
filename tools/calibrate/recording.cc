#include "tools/calibrate/recording.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace nacre::tools {

std::string RecordingId(int prompt) {
  return absl::StrCat("calibrate-", prompt);
}

Recording::Recording(Options options)
    : options_(std::move(options)), answers_(options_.max_tokens.size()) {}

int Recording::WantedOf(size_t prompt, size_t length) const {
  // The draft never draws the last token of the longest answer, and nothing is
  // drawn behind the last one that it draws.
  int wanted =
      std::min(static_cast<int>(length), options_.max_tokens[prompt] - 1);
  if (options_.needs_states) --wanted;
  return std::max(wanted, 0);
}

absl::Status Recording::Add(
    absl::Span<const FeatureLine> lines, const HiddenStates* states,
    const std::map<int, std::vector<int32_t>>& answers) {
  absl::flat_hash_map<std::string, int> prompts;
  for (const auto& [prompt, tokens] : answers) {
    const auto index = static_cast<size_t>(prompt);
    NACRE_CHECK(index < answers_.size(), "an answer to no prompt");
    Answer& answer = answers_[index];
    if (answer.known && answer.tokens != tokens) {
      return absl::DataLossError(
          absl::StrCat("two runs gave different answers to prompt ", prompt));
    }
    answer.known = true;
    answer.tokens = tokens;
    answer.wanted = WantedOf(index, tokens.size());
    prompts[RecordingId(prompt)] = prompt;
  }
  // Sessions in which a token without a verdict was wrong: what was drafted
  // behind it is no continuation of the answer.
  std::set<uint64_t> astray;
  for (const FeatureLine& line : lines) {
    const auto prompt = prompts.find(line.request);
    if (prompt == prompts.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a token of request \"", line.request,
                       "\" was recorded, which was not made"));
    }
    Answer& answer = answers_[static_cast<size_t>(prompt->second)];
    const auto position = static_cast<size_t>(line.position);
    if (position >= answer.tokens.size() || astray.contains(line.session)) {
      continue;
    }
    const bool accepted = line.token == answer.tokens[position];
    if (line.accepted.value_or(accepted) != accepted) {
      return absl::DataLossError(absl::StrCat(
          "position ", position, " of the answer to prompt ", prompt->second,
          ": token ", line.token, " was recorded as ",
          *line.accepted ? "accepted" : "rejected", ", the answer has ",
          answer.tokens[position]));
    }
    if (!line.accepted.has_value() && !accepted) astray.insert(line.session);
    NACRE_RETURN_IF_ERROR(AddLine(line, accepted, states, &answer));
  }
  return absl::OkStatus();
}

absl::Status Recording::AddLine(const FeatureLine& line, bool accepted,
                                const HiddenStates* states,
                                Answer* answer) const {
  const bool has_state = states != nullptr && line.fed.has_value();
  if (has_state && *line.fed >= states->count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a token refers to hidden state ", *line.fed, " of ", states->count()));
  }
  RecordedToken& token = answer->recorded[line.position];
  if (token.line.request.empty()) {
    token.line = line;
    token.accepted = accepted;
  }
  if (has_state && token.fed_state.empty()) {
    const absl::Span<const float> state = states->at(*line.fed);
    token.fed_state.assign(state.begin(), state.end());
  }
  return absl::OkStatus();
}

int Recording::RecordedOf(const Answer& answer) const {
  return static_cast<int>(std::count_if(
      answer.recorded.begin(), answer.recorded.lower_bound(answer.wanted),
      [this](const auto& entry) { return IsWhole(entry.second); }));
}

std::vector<int> Recording::Incomplete() const {
  std::vector<int> prompts;
  for (size_t i = 0; i < answers_.size(); ++i) {
    if (!answers_[i].known || RecordedOf(answers_[i]) < answers_[i].wanted) {
      prompts.push_back(static_cast<int>(i));
    }
  }
  return prompts;
}

size_t Recording::recorded() const {
  size_t sum = 0;
  for (const Answer& answer : answers_) {
    sum += static_cast<size_t>(RecordedOf(answer));
  }
  return sum;
}

size_t Recording::wanted() const {
  size_t sum = 0;
  for (const Answer& answer : answers_) {
    sum += static_cast<size_t>(answer.wanted);
  }
  return sum;
}

std::vector<const RecordedToken*> Recording::TokensOf(
    absl::Span<const int> prompts) const {
  std::vector<const RecordedToken*> tokens;
  for (const int prompt : prompts) {
    const Answer& answer = answers_[static_cast<size_t>(prompt)];
    for (const auto& [position, token] : answer.recorded) {
      if (position < answer.wanted && IsWhole(token)) tokens.push_back(&token);
    }
  }
  return tokens;
}

}  // namespace nacre::tools
