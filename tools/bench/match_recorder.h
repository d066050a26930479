// Which draft tokens matched, position by position of one answer, out of the
// spans of traced requests for it. The spans of one request leave positions
// open; those of several, with other windows, fill them. Pure; no threads.

#ifndef TOOLS_BENCH_MATCH_RECORDER_H_
#define TOOLS_BENCH_MATCH_RECORDER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/inference.pb.h"
#include "simulation/match_source.h"

namespace nacre::tools {

class MatchRecorder {
 public:
  // Of an answer of `num_tokens` to a prompt of `prompt_tokens`.
  MatchRecorder(int prompt_tokens, int num_tokens)
      : prompt_tokens_(prompt_tokens), matches_(num_tokens) {}

  // The lanes of a request for the same answer, perhaps a longer one. A step
  // decides the positions of its matching rows and that of its first mismatch:
  // there the draft's token followed what is committed. What it did not
  // compare, and draft tokens after a mismatch, say nothing. DATA_LOSS: an
  // earlier request had the other verdict; the draft does not always say the
  // same.
  absl::Status Add(
      const google::protobuf::RepeatedPtrField<v1::TraceLane>& lanes);

  // The first token without a verdict, from 0; unset: all have one.
  std::optional<int> first_open() const;
  int num_open() const;
  // Up to there.
  simulation::MatchTrace matches() const;

 private:
  absl::Status Decide(int position, bool match);

  const int prompt_tokens_;
  std::vector<std::optional<bool>> matches_;  // [num_tokens]
};

}  // namespace nacre::tools

#endif  // TOOLS_BENCH_MATCH_RECORDER_H_
