// Which draft tokens matched, and which rank the target's had among the draft's
// candidates. Position by position of one answer, out of the spans of traced
// requests for it. The spans of one request leave positions open; those of
// several, with other windows, fill them. Pure; no threads.

#ifndef TOOLS_BENCH_MATCH_RECORDER_H_
#define TOOLS_BENCH_MATCH_RECORDER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/inference.pb.h"
#include "simulation/match_source.h"

namespace nacre::tools {

class MatchRecorder {
 public:
  // Of these tokens of an answer to a prompt of `prompt_tokens`.
  MatchRecorder(int prompt_tokens, std::vector<uint32_t> token_ids)
      : prompt_tokens_(prompt_tokens),
        token_ids_(std::move(token_ids)),
        guesses_(token_ids_.size()) {}

  // The lanes of a request for the same answer, perhaps a longer one. A step
  // decides the positions of its matching rows and that of its first mismatch:
  // there the draft's token followed what is committed. What it did not
  // compare, and draft tokens after a mismatch, say nothing. Candidates are
  // those that the draft last showed for the position: what is decided is never
  // drafted again. Without any, a mismatch counts as of no rank. DATA_LOSS: an
  // earlier request had another verdict, as the draft does not always say the
  // same. Or the candidates of a match do not begin with it.
  absl::Status Add(
      const google::protobuf::RepeatedPtrField<v1::TraceLane>& lanes);

  // The first token without a verdict, from 0; unset: all have one.
  std::optional<int> first_open() const;
  int num_open() const;
  // Up to there.
  simulation::MatchTrace matches() const;

 private:
  using Candidates = google::protobuf::RepeatedPtrField<v1::Candidate>;
  // By position of the answer: what the drafts showed last.
  using Shown = std::map<int64_t, const Candidates*>;

  Shown ShownBy(
      const google::protobuf::RepeatedPtrField<v1::TraceLane>& lanes) const;
  absl::Status Decide(int64_t position, bool match, const Shown& shown);
  absl::StatusOr<simulation::Guess> GuessOf(int64_t position, bool match,
                                            const Shown& shown) const;

  const int prompt_tokens_;
  const std::vector<uint32_t> token_ids_;
  std::vector<std::optional<simulation::Guess>> guesses_;  // of token_ids_
};

}  // namespace nacre::tools

#endif  // TOOLS_BENCH_MATCH_RECORDER_H_
