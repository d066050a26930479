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
  row.unverified = unverified_;
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

void DraftLength::OnCommit(const DraftSession::CommitReport& report) {
  settled_.clear();
  int left = report.accepted;
  NACRE_CHECK(left <= unverified_, "a verdict on tokens that were not drafted");
  unverified_ -= left;
  while (left > 0) {
    Chunk& chunk = chunks_.front();
    const int taken = std::min(left, chunk.drafted - chunk.accepted);
    chunk.accepted += taken;
    left -= taken;
    if (chunk.accepted < chunk.drafted || !chunk.ended) break;
    Settle(chunk);
    chunks_.pop_front();
  }
  if (report.rejected || report.overtaken) {
    // The rejected token's chunk; those after it are no trials. Or the one
    // that all were right of.
    if (!chunks_.empty() && chunks_.front().drafted > 0) {
      Settle(chunks_.front());
    }
    chunks_.clear();
    unverified_ = 0;
  }
  policy_->OnVerified(
      {report.accepted, report.rejected, report.overtaken, settled_});
}

}  // namespace nacre::speculation
