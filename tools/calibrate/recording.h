// What was recorded of the target's answers, one example a position.
//
// A run leaves positions out: those whose token the target added itself, behind
// a chunk that was right or where it did not wait for a late draft. Which they
// are depends on time. What a row says of its position does not, so runs with
// other chunks fill the gaps, and a recording that is whole is the same
// whenever it is made.
//
// Pure.

#ifndef TOOLS_CALIBRATE_RECORDING_H_
#define TOOLS_CALIBRATE_RECORDING_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

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
  // Of the row that was fed it; empty where it was not.
  std::vector<float> fed_state;
};

class Recording {
 public:
  struct Options {
    // Of each prompt's answer. Its last token is the target's own.
    std::vector<int> max_tokens;
    bool needs_states = false;
  };

  explicit Recording(Options options);

  // Of one run: `answers` has an answer for each prompt that was asked, `lines`
  // are of requests RecordingId(prompt), `states` what they refer to (null:
  // not recorded). INVALID_ARGUMENT: a line of another request or behind the
  // states; DATA_LOSS: an answer that differs from an earlier run's, a recorded
  // outcome that is not the answer's.
  absl::Status Add(absl::Span<const FeatureLine> lines,
                   const HiddenStates* states,
                   const std::map<int, std::vector<int32_t>>& answers);

  // Prompts that were not asked or have gaps, ascending.
  std::vector<int> Incomplete() const;
  // Positions that are there, and that are there once there is no gap.
  size_t recorded() const;
  size_t wanted() const;

  // Of the prompts, in their order, by position. Those without a state are left
  // out where states are needed.
  std::vector<const RecordedToken*> TokensOf(
      absl::Span<const int> prompts) const;

 private:
  struct Answer {
    bool known = false;
    std::vector<int32_t> tokens;
    int wanted = 0;  // positions 0 and on
    std::map<int, RecordedToken> recorded;
  };

  absl::Status AddLine(const FeatureLine& line, bool accepted,
                       const HiddenStates* states, Answer* answer) const;
  int WantedOf(size_t prompt, size_t length) const;
  bool IsWhole(const RecordedToken& token) const {
    return !options_.needs_states || !token.fed_state.empty();
  }
  int RecordedOf(const Answer& answer) const;

  const Options options_;
  std::vector<Answer> answers_;
};

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_RECORDING_H_
