// What was recorded of the target's answers, one example a position.
//
// A run leaves positions out: those whose token the target added itself, after
// a chunk that was right. Which they are depends on the chunks, and not on
// time: the target waits for its draft however long. What a row says of its
// position depends on neither. So runs with other chunks fill the gaps, and a
// whole recording is the same however it is made.
//
// Pure.

#ifndef TOOLS_CALIBRATE_RECORDING_H_
#define TOOLS_CALIBRATE_RECORDING_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tools/calibrate/feature_reader.h"
#include "tools/calibrate/hidden_reader.h"

namespace nacre::tools {

// The id that the recording request for a prompt has.
std::string RecordingId(int prompt);

struct RecordedToken {
  FeatureLine line;
  bool accepted = false;  // it is the answer's
  // Of the row that was fed it and of the row that it was drawn from; empty
  // where there is none.
  std::vector<float> fed_state;
  std::vector<float> row_state;
};

// What an example must have besides its row's numbers.
enum class StateNeeds {
  kNone,
  kFed,  // of the draft's row that was fed the token
  // Of the draft's row that drew the token, and of the target's rows before.
  kRowAndTarget,
};

// What a target has recorded: lines, and the states that they refer to.
struct TargetStates {
  absl::Span<const StateLine> lines;
  const HiddenStates* states = nullptr;
};

// A token as it may be drafted: the `step`th (from 0) after what is committed,
// after right ones. What it refers to is the recording's.
struct DraftedStep {
  const RecordedToken* token = nullptr;
  // That gave the last committed token.
  absl::Span<const float> target_state;
  int step = 0;
};

class Recording {
 public:
  struct Options {
    // Of each prompt's answer. Its last token is the target's own.
    std::vector<int> max_tokens;
    StateNeeds needs = StateNeeds::kNone;
  };

  explicit Recording(Options options);

  // Of one run. `answers` has an answer for each prompt that was asked, `lines`
  // are of requests RecordingId(prompt). `states` are what the lines refer to
  // (null: not recorded), `target` what the target has recorded of them.
  // INVALID_ARGUMENT: a line of another request or after the states; DATA_LOSS:
  // an answer that differs from an earlier run's, a recorded outcome that is
  // not the answer's.
  absl::Status Add(absl::Span<const FeatureLine> lines,
                   const HiddenStates* states,
                   const std::map<int, std::vector<int32_t>>& answers,
                   const TargetStates& target = {});

  // Prompts that were not asked or have gaps, ascending.
  std::vector<int> Incomplete() const;
  // Positions that are there, and that are there once there is no gap.
  size_t recorded() const;
  size_t wanted() const;

  // Of the prompts, in their order, by position. Those without a state are left
  // out where states are needed.
  std::vector<const RecordedToken*> TokensOf(
      absl::Span<const int> prompts) const;

  // All ways in which those tokens may be drafted, up to `max_steps` after what
  // is committed. The same token comes once for each step that right ones
  // before it allow. Needs kRowAndTarget.
  std::vector<DraftedStep> StepsOf(absl::Span<const int> prompts,
                                   int max_steps) const;

 private:
  struct Answer {
    bool known = false;
    std::vector<int32_t> tokens;
    int wanted = 0;  // positions 0 and on
    std::map<int, RecordedToken> recorded;
    // That the answer's token at a position was drawn from.
    std::map<int, std::vector<float>> target_states;
  };
  // Those that were asked, by the id of their request.
  using Prompts = absl::flat_hash_map<std::string, int>;

  absl::Status AddLine(const FeatureLine& line, bool accepted,
                       const HiddenStates* states, Answer* answer) const;
  absl::Status AddTarget(const TargetStates& target, const Prompts& prompts);
  int WantedOf(size_t prompt, size_t length) const;
  bool IsWhole(const Answer& answer, const RecordedToken& token) const;
  int RecordedOf(const Answer& answer) const;

  const Options options_;
  std::vector<Answer> answers_;
};

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_RECORDING_H_
