// A session's length policy in the draft engine: computes what the policy reads
// of a row, and nothing else.
//
// Owned by the session, used by the engine's thread.

#ifndef DRAFT_WORKER_LENGTH_CONTROL_H_
#define DRAFT_WORKER_LENGTH_CONTROL_H_

#include <cstdint>
#include <memory>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "speculation/draft_length.h"
#include "speculation/draft_session.h"

namespace nacre::draft_worker {

// Whether what a policy needs of a row comes from its logits.
inline bool NeedsLogits(const speculation::RowNeeds& needs) {
  return needs.entropy || needs.token_probability || needs.top_probabilities;
}

class LengthControl {
 public:
  // `vocab_limit`: only ids below are drawn.
  LengthControl(std::unique_ptr<speculation::DraftLength> length,
                int prompt_length, int vocab_limit);

  bool needs_hidden() const { return needs_.draft_hidden; }
  // Whether Decide reads the logits; else they may be empty.
  bool needs_logits() const { return NeedsLogits(needs_); }
  bool looks_at_token() const { return length_->looks_at_token(); }

  // See DraftLength.
  bool WillStop() const { return length_->WillStop(); }

  // On the row that the token for `position` is drawn from: before the draw,
  // without token_id, unless looks_at_token().
  //   logits [vocab_limit or more] if needs_logits()
  //   hidden [hidden_size] if needs_hidden()
  speculation::LengthDecision Decide(int position,
                                     absl::optional<int32_t> token_id,
                                     absl::Span<const float> logits,
                                     absl::Span<const float> hidden);

  // After the session has applied a commit.
  void OnCommit(const speculation::DraftSession& session) {
    length_->OnCommit(session.last_commit(),
                      session.length() - session.committed_length());
  }

  // See LengthPolicy.
  int target_hidden_size() const { return length_->target_hidden_size(); }
  void OnTargetHidden(absl::Span<const float> hidden) {
    length_->OnTargetHidden(hidden);
  }

 private:
  std::unique_ptr<speculation::DraftLength> length_;
  speculation::RowNeeds needs_;
  int prompt_length_;
  int vocab_limit_;
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_LENGTH_CONTROL_H_
