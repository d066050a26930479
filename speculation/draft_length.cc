#include "speculation/draft_length.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace nacre::speculation {

DraftLength::DraftLength(std::unique_ptr<LengthPolicy> policy, int max_length)
    : policy_(std::move(policy)), max_length_(max_length) {
  NACRE_CHECK(max_length_ >= 1, "chunks of no token");
  NACRE_CHECK(looks_at_token() || !needs().token_probability,
              "a policy that reads the token without looking at it");
}

bool DraftLength::WillStop() const {
  const int chunk_length =
      chunks_.empty() || chunks_.back().ended ? 0 : chunks_.back().drafted;
  return chunk_length + 1 >= max_length_ || policy_->EndsAfter(chunk_length);
}

LengthDecision DraftLength::Decide(DraftRow row) {
  if (chunks_.empty() || chunks_.back().ended) chunks_.emplace_back();
  Chunk& chunk = chunks_.back();
  row.unverified = undecided_ + unverified_;
  row.chunk_length = chunk.drafted;
  if (looks_at_token()) {
    NACRE_CHECK(row.token.has_value(), "a policy looks at a token not drawn");
  } else {
    row.token.reset();
  }
  LengthDecision decision = policy_->Decide(row);
  if (decision == LengthDecision::kDiscard) {
    NACRE_CHECK(looks_at_token(), "a token thrown away unseen");
    return decision;
  }
  ++chunk.drafted;
  ++unverified_;
  if (chunk.drafted >= max_length_) decision = LengthDecision::kStop;
  chunk.ended = decision == LengthDecision::kStop;
  return decision;
}

void DraftLength::OnCommit(const DraftSession::CommitReport& report,
                           int ahead) {
  settled_.clear();
  const int on_path = report.accepted - report.of_branches;
  const int skipped = std::min(on_path, undecided_);
  const int accepted = on_path - skipped;
  undecided_ -= skipped;
  NACRE_CHECK(accepted <= unverified_,
              "a verdict on tokens that were not drafted");
  Accept(accepted);
  // A rejected token that was not decided on is no trial, nor are those that
  // were drafted after it.
  const bool ends = report.rejected || report.of_branches > 0;
  const bool rejected = ends && undecided_ == 0;
  if (ends || report.overtaken) {
    // The rejected token's chunk; those after it are no trials. Or the one
    // that all were right of.
    if (undecided_ == 0 && !chunks_.empty() && chunks_.front().drafted > 0) {
      Settle(chunks_.front());
    }
    chunks_.clear();
    unverified_ = 0;
    undecided_ = ahead;
  }
  policy_->OnVerified(
      {accepted, rejected, report.overtaken || (ends && !rejected), settled_});
}

void DraftLength::Accept(int count) {
  unverified_ -= count;
  while (count > 0) {
    Chunk& chunk = chunks_.front();
    const int taken = std::min(count, chunk.drafted - chunk.accepted);
    chunk.accepted += taken;
    count -= taken;
    if (chunk.accepted < chunk.drafted || !chunk.ended) break;
    Settle(chunk);
    chunks_.pop_front();
  }
}

}  // namespace nacre::speculation
