#include "speculation/draft_session.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace nacre::speculation {

DraftSession::DraftSession(Options options, std::vector<int32_t> committed)
    : options_(std::move(options)),
      tokens_(std::move(committed)),
      committed_length_(length()),
      kept_length_(length()) {
  NACRE_CHECK(!tokens_.empty(), "a draft session needs a token to start from");
}

DraftSession::CommitOutcome DraftSession::OnCommit(const Commit& commit) {
  const int count = static_cast<int>(commit.token_ids.size());
  if (commit.first_position < 0 || commit.first_position > committed_length_) {
    return CommitOutcome::kMalformed;
  }
  const int new_length = commit.first_position + count;
  if (new_length <= committed_length_) return CommitOutcome::kRepeated;

  policy_stop_ = false;
  bool mismatch = false;
  kept_length_ = length();
  last_commit_ = CommitReport();
  for (int position = committed_length_; position < new_length; ++position) {
    const int32_t token_id = commit.token_ids[position - commit.first_position];
    if (position < length() && tokens_[position] == token_id) {
      ++last_commit_.accepted;
      continue;
    }
    if (position < length()) {
      tokens_.resize(position);
      kept_length_ = position;
      mismatch = true;
    }
    tokens_.push_back(token_id);
  }
  last_commit_.rejected = mismatch;
  last_commit_.overtaken = !mismatch && new_length > kept_length_;
  if (mismatch || last_commit_.overtaken) discarded_ = false;
  committed_length_ = new_length;
  after_mismatch_ = mismatch;
  // The target forgets every stop mark at a mismatch.
  if (mismatch) announced_ = StopMark::kNone;
  return mismatch ? CommitOutcome::kMismatch : CommitOutcome::kMatched;
}

bool DraftSession::WantsStepAfterNext(bool policy_stop) const {
  const int next = length() + 1;
  return WantsStep() && next < options_.max_length &&
         next - committed_length_ < Lead() && !WaitsBehind(policy_stop);
}

bool DraftSession::WaitsBehind(bool policy_stop) const {
  return policy_stop && options_.plan.waits_at_stop;
}

int DraftSession::Lead() const {
  return std::min(kMaxLead, after_mismatch_ ? options_.plan.lead_after_mismatch
                                            : options_.plan.lead_in_flow);
}

StopMark DraftSession::Blocked() const {
  if (length() >= options_.max_length) return StopMark::kEnd;
  const int ahead = length() - committed_length_;
  if (options_.verification == Verification::kExact && ahead > 0 &&
      std::find(options_.end_ids.begin(), options_.end_ids.end(),
                tokens_.back()) != options_.end_ids.end()) {
    return StopMark::kEnd;
  }
  if (policy_stop_ || discarded_) return StopMark::kPolicy;
  return ahead >= Lead() ? StopMark::kLead : StopMark::kNone;
}

Tail DraftSession::MakeTail(int first_position) const {
  Tail tail;
  tail.epoch = options_.epoch;
  tail.base_length = committed_length_;
  tail.first_position = first_position;
  tail.stop = Blocked();
  return tail;
}

Tail DraftSession::OnDrafted(int32_t token_id, bool policy_stop) {
  tokens_.push_back(token_id);
  policy_stop_ = WaitsBehind(policy_stop);
  Tail tail = MakeTail(length() - 1);
  tail.token_ids.push_back(token_id);
  announced_ = tail.stop;
  announced_base_ = committed_length_;
  if (policy_stop && tail.stop == StopMark::kNone) tail.stop = StopMark::kChunk;
  return tail;
}

absl::optional<Tail> DraftSession::TakeStopNotice() {
  const StopMark blocked = Blocked();
  if (blocked == StopMark::kNone) return absl::nullopt;
  // An end or a rest that still holds needs no second notice; a lead that a
  // commit did not free does, because the target forgets it when it steps.
  const bool holds = blocked == StopMark::kEnd || options_.plan.rests();
  if (announced_ == blocked &&
      (holds || announced_base_ == committed_length_)) {
    return absl::nullopt;
  }
  announced_ = blocked;
  announced_base_ = committed_length_;
  return MakeTail(length());
}

}  // namespace nacre::speculation
