// Short ways to make sessions and messages in tests.

#ifndef TESTS_SPECULATION_SESSION_BUILDERS_H_
#define TESTS_SPECULATION_SESSION_BUILDERS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "speculation/pipeline.h"
#include "speculation/target_session.h"

namespace nacre::speculation {

// A target session with the prompt {10, 11, 12} and a draft of epoch 1; token 7
// is the end of sequence, 6 a stop id.
inline TargetSession OpenTarget(const TargetPlan& plan, int max_tokens = 100,
                                int max_unacknowledged = 64) {
  TargetSession::Options options;
  options.text.prompt_length = 3;
  options.text.max_tokens = max_tokens;
  options.max_unacknowledged = max_unacknowledged;
  options.text.eos_ids = {7};
  options.text.stop_ids = {6};
  options.plan = plan;
  options.epoch = 1;
  options.has_draft = true;
  return TargetSession(options, {10, 11, 12});
}

inline Tail MakeTail(int base_length, int first_position,
                     std::vector<int32_t> token_ids,
                     StopMark stop = StopMark::kNone, uint32_t epoch = 1) {
  Tail tail;
  tail.epoch = epoch;
  tail.base_length = base_length;
  tail.first_position = first_position;
  tail.token_ids = std::move(token_ids);
  tail.stop = stop;
  return tail;
}

inline std::vector<int32_t> Rows(absl::Span<const int32_t> rows) {
  return {rows.begin(), rows.end()};
}

// What a target draws that agrees with all rows, and `last` after them.
inline std::vector<int32_t> Drawn(absl::Span<const int32_t> rows,
                                  int32_t last) {
  std::vector<int32_t> drawn = Rows(rows);
  drawn.push_back(last);
  return drawn;
}

inline Verdict Step(TargetSession& session,
                    const std::vector<int32_t>& target_token_ids) {
  session.BeginStep();
  return session.FinishStep(target_token_ids);
}

}  // namespace nacre::speculation

#endif  // TESTS_SPECULATION_SESSION_BUILDERS_H_
