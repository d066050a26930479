#include "tools/calibrate/recording.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace nacre::tools {
namespace {

absl::Status UnknownRequest(const std::string& id) {
  return absl::InvalidArgumentError(absl::StrCat(
      "a token of request \"", id, "\" was recorded, which was not made"));
}

absl::StatusOr<absl::Span<const float>> StateAt(const HiddenStates& states,
                                                uint64_t index) {
  if (index < states.count()) return states.at(index);
  return absl::InvalidArgumentError(absl::StrCat(
      "a token refers to hidden state ", index, " of ", states.count()));
}

}  // namespace

std::string RecordingId(int prompt) {
  return absl::StrCat("calibrate-", prompt);
}

Recording::Recording(Options options)
    : options_(std::move(options)), answers_(options_.max_tokens.size()) {}

int Recording::WantedOf(size_t prompt, size_t length) const {
  // The draft never draws the last token of the longest answer, and nothing is
  // drawn after the last one that it draws.
  int wanted =
      std::min(static_cast<int>(length), options_.max_tokens[prompt] - 1);
  if (options_.needs == StateNeeds::kFed) --wanted;
  return std::max(wanted, 0);
}

absl::Status Recording::Add(absl::Span<const FeatureLine> lines,
                            const HiddenStates* states,
                            const std::map<int, std::vector<int32_t>>& answers,
                            const TargetStates& target) {
  Prompts prompts;
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
  // after it is no continuation of the answer.
  std::set<uint64_t> astray;
  for (const FeatureLine& line : lines) {
    const auto prompt = prompts.find(line.request);
    if (prompt == prompts.end()) {
      return UnknownRequest(line.request);
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
  return AddTarget(target, prompts);
}

absl::Status Recording::AddTarget(const TargetStates& target,
                                  const Prompts& prompts) {
  for (const StateLine& line : target.lines) {
    const auto prompt = prompts.find(line.request);
    if (prompt == prompts.end()) return UnknownRequest(line.request);
    if (!line.state.has_value()) continue;  // it was lost
    NACRE_ASSIGN_OR_RETURN(const absl::Span<const float> state,
                           StateAt(*target.states, *line.state));
    Answer& answer = answers_[static_cast<size_t>(prompt->second)];
    std::vector<float>& kept = answer.target_states[line.position];
    if (kept.empty()) kept.assign(state.begin(), state.end());
  }
  return absl::OkStatus();
}

absl::Status Recording::AddLine(const FeatureLine& line, bool accepted,
                                const HiddenStates* states,
                                Answer* answer) const {
  RecordedToken& token = answer->recorded[line.position];
  if (token.line.request.empty()) {
    token.line = line;
    token.accepted = accepted;
  }
  if (states == nullptr) return absl::OkStatus();
  const auto keep = [&](const std::optional<uint64_t>& index,
                        std::vector<float>* kept) -> absl::Status {
    if (!index.has_value()) return absl::OkStatus();
    NACRE_ASSIGN_OR_RETURN(const absl::Span<const float> state,
                           StateAt(*states, *index));
    if (kept->empty()) kept->assign(state.begin(), state.end());
    return absl::OkStatus();
  };
  NACRE_RETURN_IF_ERROR(keep(line.fed, &token.fed_state));
  return keep(line.row, &token.row_state);
}

bool Recording::IsWhole(const Answer& answer,
                        const RecordedToken& token) const {
  switch (options_.needs) {
    case StateNeeds::kNone:
      return true;
    case StateNeeds::kFed:
      return !token.fed_state.empty();
    case StateNeeds::kRowAndTarget:
      // The first token is drafted before the target has shown a state.
      return !token.row_state.empty() &&
             (token.line.position == 0 ||
              answer.target_states.contains(token.line.position - 1));
  }
  return false;
}

int Recording::RecordedOf(const Answer& answer) const {
  return static_cast<int>(std::count_if(
      answer.recorded.begin(), answer.recorded.lower_bound(answer.wanted),
      [&](const auto& entry) { return IsWhole(answer, entry.second); }));
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
      if (position < answer.wanted && IsWhole(answer, token)) {
        tokens.push_back(&token);
      }
    }
  }
  return tokens;
}

std::vector<DraftedStep> Recording::StepsOf(absl::Span<const int> prompts,
                                            int max_steps) const {
  std::vector<DraftedStep> steps;
  for (const int prompt : prompts) {
    const Answer& answer = answers_[static_cast<size_t>(prompt)];
    for (const RecordedToken* token : TokensOf({prompt})) {
      for (int step = 0; step < max_steps; ++step) {
        const int before = token->line.position - step - 1;
        const auto state = answer.target_states.find(before);
        if (state == answer.target_states.end()) break;
        steps.push_back({token, state->second, step});
        // With one step more, the token before is drafted, too.
        const auto drafted = answer.recorded.find(before);
        if (drafted == answer.recorded.end() || !drafted->second.accepted) {
          break;
        }
      }
    }
  }
  return steps;
}

}  // namespace nacre::tools
