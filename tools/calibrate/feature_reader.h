// Reads what a draft worker has recorded with --record-features
// (docs/policies.md, "Recording").
//
// Pure.

#ifndef TOOLS_CALIBRATE_FEATURE_READER_H_
#define TOOLS_CALIBRATE_FEATURE_READER_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "speculation/policies/length_policy.h"

namespace nacre::tools {

// One drafted token that was verified.
struct FeatureLine {
  std::string request;
  uint64_t session = 0;
  int position = 0;  // tokens of the answer before it
  std::array<float, speculation::kTopProbabilities> top = {};  // descending
  float entropy = 0.0f;                                        // nats
  float probability = 0.0f;                                    // of the token
  bool accepted = false;
};

// `name` stands for the source in errors. Empty lines are skipped, unknown keys
// left alone. INVALID_ARGUMENT, with the line: not a JSON object, a key that is
// missing or of the wrong type, a number that is not finite or outside its
// range, probabilities that do not descend; and a text without any line.
absl::StatusOr<std::vector<FeatureLine>> ParseFeatures(
    absl::string_view name, absl::string_view content);

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_FEATURE_READER_H_
