// What a network is trained on and judged by: recorded tokens, split by
// request, so that no answer is on two sides.
//
// Pure; the same seed splits alike on every machine.

#ifndef TOOLS_CALIBRATE_DATASET_H_
#define TOOLS_CALIBRATE_DATASET_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "speculation/policies/cali_ts.h"
#include "speculation/policies/disco.h"
#include "tools/calibrate/recording.h"

namespace nacre::tools {

// A row as `disco` reads it, and what became of its token.
struct Example {
  std::array<float, speculation::kDiscoInputs> inputs = {};
  bool accepted = false;
};

// Indices of prompts, ascending.
struct PromptSplit {
  std::vector<int> training;
  std::vector<int> validation;  // ends the training and tunes the parameters
  std::vector<int> test;        // touched by nothing: what is reported
};

inline constexpr int kMinPrompts = 3;

// 70 %, 15 % and 15 %, each at least one. INVALID_ARGUMENT: fewer than
// kMinPrompts.
absl::StatusOr<PromptSplit> SplitPrompts(int num_prompts, uint64_t seed);

// As `disco` reads them.
std::vector<Example> ExamplesOf(absl::Span<const RecordedToken* const> tokens);

// As the head of `specdec++` reads them: the state of the row that was fed a
// token, and what became of that token. The state must be there. The examples
// refer to the tokens, which outlive them.
struct StateExample {
  absl::Span<const float> state;
  // Its probability of being accepted, in [0, 1]; recordings have 0 or 1.
  double accepted = 0.0;
};
std::vector<StateExample> StateExamplesOf(
    absl::Span<const RecordedToken* const> tokens);

// As the model of `cali-ts` reads them: a drafted token, the `step`th (from 0)
// after the last position that the target has processed.
struct CaliTsExample {
  absl::Span<const float> target_state;  // of that position
  absl::Span<const float> draft_state;   // that the token was drawn from
  int step = 0;
  bool accepted = false;
};
std::vector<CaliTsExample> CaliTsExamplesOf(
    absl::Span<const DraftedStep> steps);

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_DATASET_H_
