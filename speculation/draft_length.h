// Runs a length policy for one session beside its DraftSession. It counts
// chunks and caps them. It turns what commits say of drafted tokens into
// feedback, in the order of the chunks, however late it comes.
//
// A chunk begins after a stop, a rejection, or tokens of the target's own. It
// ends with a stop or where the target's own tokens follow its last one.
//
// Pure: no I/O, no clock, no threads.

#ifndef SPECULATION_DRAFT_LENGTH_H_
#define SPECULATION_DRAFT_LENGTH_H_

#include <deque>
#include <memory>
#include <vector>

#include "speculation/draft_session.h"
#include "speculation/policies/length_policy.h"

namespace nacre::speculation {

class DraftLength {
 public:
  // No chunk is longer than `max_length` >= 1.
  DraftLength(std::unique_ptr<LengthPolicy> policy, int max_length);

  RowNeeds needs() const { return policy_->needs(); }
  bool looks_at_token() const { return policy_->looks_at_token(); }

  // Whether Decide will stop at the next row or before it, as far as that is
  // known before the row is.
  bool WillStop() const;

  // For the next row of the session, before its token is appended. Where
  // looks_at_token(), the token is drawn first and `row` must have it. Else the
  // call comes before the draw, and the policy does not see a token. Fills in
  // where the row stands in its chunk. kDiscard: the token is not appended.
  LengthDecision Decide(DraftRow row);

  // After DraftSession::OnCommit took one: its last_commit(), and how many
  // drafted tokens it holds beyond it. Of a tree the policy knows the main path
  // alone. A text that goes on along a branch has rejected that path, and what
  // stood below the branch was not decided on.
  void OnCommit(const DraftSession::CommitReport& report, int ahead = 0);

  int target_hidden_size() const { return policy_->target_hidden_size(); }
  void OnTargetHidden(absl::Span<const float> hidden) {
    policy_->OnTargetHidden(hidden);
  }

 private:
  struct Chunk {
    int drafted = 0;
    int accepted = 0;
    bool ended = false;
  };

  // Of the oldest ones that wait for a verdict.
  void Accept(int count);
  void Settle(const Chunk& chunk) {
    settled_.push_back({chunk.drafted, chunk.accepted});
  }

  std::unique_ptr<LengthPolicy> policy_;
  const int max_length_;
  // Those with unverified tokens, and the one under way.
  std::deque<Chunk> chunks_;
  int unverified_ = 0;
  int undecided_ = 0;                  // drafted before these, below a branch
  std::vector<ChunkOutcome> settled_;  // scratch of OnCommit
};

}  // namespace nacre::speculation

#endif  // SPECULATION_DRAFT_LENGTH_H_
