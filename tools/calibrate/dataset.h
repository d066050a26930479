// What a network is trained on and judged by: recorded tokens, split by
// request, so that no answer is on two sides.
//
// Pure; the same seed splits alike on every machine.

#ifndef TOOLS_CALIBRATE_DATASET_H_
#define TOOLS_CALIBRATE_DATASET_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "speculation/policies/disco.h"
#include "tools/calibrate/feature_reader.h"

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

// The id that the recording request for a prompt has.
std::string RecordingId(int prompt);

// Those of the lines whose request is one of `prompts`, in their order.
std::vector<Example> ExamplesOf(absl::Span<const FeatureLine> lines,
                                absl::Span<const int> prompts);

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_DATASET_H_
