// Reads what workers have recorded with --record-features
// (docs/policies.md, "Recording").
//
// Pure.

#ifndef TOOLS_CALIBRATE_FEATURE_READER_H_
#define TOOLS_CALIBRATE_FEATURE_READER_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "speculation/policies/length_policy.h"

namespace nacre::tools {

// Of a draft worker: one drafted token.
struct FeatureLine {
  std::string request;
  uint64_t session = 0;
  int position = 0;  // tokens of the answer before it
  int32_t token = 0;
  int unverified = 0;  // drafted tokens before it, when it was drawn
  std::array<float, speculation::kTopProbabilities> top = {};  // descending
  float entropy = 0.0f;                                        // nats
  float probability = 0.0f;                                    // of the token
  std::optional<bool> accepted;  // absent: its verdict did not come
  // Of the states in the hidden file: that of the row it was drawn from, and of
  // the row that was fed it.
  std::optional<uint64_t> row;
  std::optional<uint64_t> fed;
};

// Of a target worker: one token that it has committed.
struct StateLine {
  std::string request;
  int position = 0;  // tokens of the answer before it
  // Of the states in the hidden file: that of the row it was drawn from.
  // Absent: it could not be written.
  std::optional<uint64_t> state;
};

// `name` stands for the source in errors. Empty lines are skipped, unknown keys
// left alone. INVALID_ARGUMENT, with the line:
// - not a JSON object, a key that is missing or of the wrong type;
// - a number that is not finite or outside its range;
// - probabilities that do not descend.
// Likewise a text without any line.
absl::StatusOr<std::vector<FeatureLine>> ParseFeatures(
    absl::string_view name, absl::string_view content);
// Likewise.
absl::StatusOr<std::vector<StateLine>> ParseStateLines(
    absl::string_view name, absl::string_view content);

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_FEATURE_READER_H_
