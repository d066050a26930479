#include "speculation/draft_session.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace nacre::speculation {

DraftSession::DraftSession(Options options, std::vector<int32_t> committed)
    : options_(std::move(options)),
      tokens_(std::move(committed)),
      chain_(std::max(1, length())),
      committed_length_(length()),
      kept_length_(length()) {
  NACRE_CHECK(!tokens_.empty(), "a draft session needs a token to start from");
  if (options_.num_slots > 0) {
    NACRE_CHECK(options_.verification == Verification::kExact,
                "the ratio test verifies chains");
    tree_.emplace(length(), options_.num_slots);
  }
  OnPlan(DraftPlan(options_.plan));
}

void DraftSession::OnPlan(const DraftPlan& plan) {
  options_.plan = plan;
  // So that steps allocate nothing: room for the leads of the plan.
  const int lead =
      std::max(options_.plan.lead_after_mismatch, options_.plan.lead_in_flow);
  const int most = std::clamp(lead, 0, kMaxLead);
  if (tree_.has_value()) return;
  chain_.Reserve(most);
  candidates_.reserve(most);
}

DraftSession::CommitOutcome DraftSession::OnCommit(const Commit& commit) {
  const int count = static_cast<int>(commit.token_ids.size());
  if (commit.first_position < 0 || commit.first_position > committed_length_) {
    return CommitOutcome::kMalformed;
  }
  const int new_length = commit.first_position + count;
  if (new_length <= committed_length_) return CommitOutcome::kRepeated;

  policy_stop_ = false;
  const absl::Span<const int32_t> added =
      absl::MakeConstSpan(commit.token_ids)
          .subspan(committed_length_ - commit.first_position);
  if (tree_.has_value()) {
    FollowTree(added);
  } else {
    Follow(added, chain_.Reroot(added));
  }
  const bool mismatch = last_commit_.rejected;
  if (mismatch || last_commit_.overtaken) discarded_ = false;
  after_mismatch_ = mismatch;
  // The target forgets every stop mark at a mismatch. And where the text has
  // gone beyond an end that it can pass (SetHorizon), the nodes that told of
  // that end may have come too late to be heard.
  const bool passed = last_commit_.overtaken && last_commit_.accepted > 0;
  if (mismatch || passed) announced_ = StopMark::kNone;
  return mismatch ? CommitOutcome::kMismatch : CommitOutcome::kMatched;
}

void DraftSession::Follow(absl::Span<const int32_t> token_ids, int walked) {
  const int count = static_cast<int>(token_ids.size());
  const int position = committed_length_ + walked;  // known up to there
  last_commit_ = CommitReport();
  last_commit_.accepted = walked;
  last_commit_.rejected = walked < count && position < length();
  last_commit_.overtaken = walked < count && position == length();
  kept_length_ = last_commit_.rejected ? position : length();
  ReportRanks(token_ids);
  if (walked < count) {
    tokens_.resize(position);
    tokens_.insert(tokens_.end(), token_ids.begin() + walked, token_ids.end());
  }
  committed_length_ += count;
  // No number of what was drafted earlier is used any more.
  chain_.Forget(committed_length_);
}

void DraftSession::FollowTree(absl::Span<const int32_t> token_ids) {
  const int count = static_cast<int>(token_ids.size());
  const DraftTree::Walk walk = tree_->Follow(token_ids);
  last_commit_ = CommitReport();
  last_commit_.accepted = walk.matched;
  last_commit_.rejected = walk.rejected;
  last_commit_.overtaken = walk.matched < count && !walk.rejected;
  last_commit_.of_branches = walk.matched - walk.on_main;
  for (const DraftTree::Judged& judged : tree_->judged()) {
    last_commit_.ranks.push_back(judged.rank);
    last_commit_.prepared += judged.rank > 1 && judged.prepared ? 1 : 0;
  }
  const bool leaves_main = walk.on_main < walk.matched || walk.rejected;
  kept_length_ = leaves_main ? committed_length_ + walk.on_main : length();
  // The target judges the stop mark of another path, as a policy does.
  if (leaves_main) {
    announced_ = StopMark::kNone;
    discarded_ = false;
  }
  const int known_length = committed_length_ + walk.on_main;
  tokens_.resize(static_cast<size_t>(known_length));
  tokens_.insert(tokens_.end(), token_ids.begin() + walk.on_main,
                 token_ids.end());
  committed_length_ += count;
  tokens_.insert(tokens_.end(), tree_->main_tokens().begin(),
                 tree_->main_tokens().end());
}

void DraftSession::ReportRanks(absl::Span<const int32_t> token_ids) {
  const int compared = last_commit_.accepted + (last_commit_.rejected ? 1 : 0);
  for (int i = 0; i < compared; ++i) {
    const Candidates& candidates = candidates_[i];
    if (candidates.count == 0) continue;
    const auto begin = candidates.token_ids.begin();
    const auto end = begin + candidates.count;
    const auto it = std::find(begin, end, token_ids[i]);
    last_commit_.ranks.push_back(it == end ? kBeyond
                                           : static_cast<int>(it - begin) + 1);
  }
  candidates_.erase(candidates_.begin(),
                    last_commit_.rejected
                        ? candidates_.end()
                        : candidates_.begin() + last_commit_.accepted);
}

bool DraftSession::WantsStep() const {
  if (tree_.has_value()) return tree_->WantsStep(TreeLimits());
  return Blocked() == StopMark::kNone;
}

bool DraftSession::HasNothingToDo() const {
  if (options_.plan.rests()) return true;
  return tree_.has_value() && Blocked() == StopMark::kEnd && !WantsStep();
}

bool DraftSession::WantsStepAfterNext(bool policy_stop) const {
  const int next = length() + 1;
  return WantsStep() && next < std::min(options_.max_length, horizon_) &&
         next - committed_length_ < Lead() &&
         (!policy_stop || !options_.plan.waits_at_stop);
}

int DraftSession::Lead() const {
  return std::min(kMaxLead, after_mismatch_ ? options_.plan.lead_after_mismatch
                                            : options_.plan.lead_in_flow);
}

StopMark DraftSession::Blocked() const {
  if (length() >= options_.max_length) return StopMark::kEnd;
  if (horizon_is_end_ && horizon_ <= length()) return StopMark::kEnd;
  const int ahead = length() - committed_length_;
  if (options_.verification == Verification::kExact && ahead > 0 &&
      std::find(options_.end_ids.begin(), options_.end_ids.end(),
                tokens_.back()) != options_.end_ids.end()) {
    return StopMark::kEnd;
  }
  if (policy_stop_ || discarded_) return StopMark::kPolicy;
  // A shape may be complete before that.
  const bool is_complete = tree_.has_value() &&
                           options_.plan.tree.ranks_by_q() &&
                           !tree_->WantsStep(TreeLimits());
  return ahead >= Lead() || length() >= horizon_ || is_complete
             ? StopMark::kLead
             : StopMark::kNone;
}

Tail DraftSession::MakeTail(int first_position) const {
  Tail tail;
  tail.epoch = options_.epoch;
  tail.base_length = committed_length_;
  tail.first_position = first_position;
  tail.stop = Blocked();
  return tail;
}

DraftTree::Limits DraftSession::TreeLimits() const {
  const int depth_end =
      policy_stop_ || discarded_ ? length() : std::numeric_limits<int>::max();
  return {
      .lead = Lead(),
      .max_length = std::min({options_.max_length, horizon_, depth_end}),
      .least_score = options_.plan.least_score,
      .end_ids = options_.end_ids,
      .shape = options_.plan.tree.ranks_by_q() ? &options_.plan.tree : nullptr};
}

void DraftSession::BeginStep(int most, std::vector<DraftTree::Row>* rows) {
  tree_->BeginStep(TreeLimits(), std::min(most, options_.plan.rows), rows);
}

bool DraftSession::KeepsStep(const Commit& commit) const {
  // What is out of order is not applied, or only with what comes before it.
  if (commit.first_position < 0 || commit.first_position > committed_length_) {
    return true;
  }
  const int known = committed_length_ - commit.first_position;
  if (known >= static_cast<int>(commit.token_ids.size())) return true;
  return tree_->KeepsStep(absl::MakeConstSpan(commit.token_ids).subspan(known));
}

void DraftSession::OnExpanded(int number, const DraftTree::Children& children,
                              Tail* tail, bool policy_stop) {
  if (policy_stop) policy_stop_ = true;
  if (children.token_ids.empty() && tree_->IsTipOfStep(number)) {
    discarded_ = true;
  }
  tree_->OnExpanded(number, children, TreeLimits(),
                    absl::MakeConstSpan(tokens_).subspan(
                        0, static_cast<size_t>(committed_length_)),
                    tail);
}

void DraftSession::FinishStep(Tail* tail) {
  tokens_.resize(static_cast<size_t>(committed_length_));
  tokens_.insert(tokens_.end(), tree_->main_tokens().begin(),
                 tree_->main_tokens().end());
  tail->epoch = options_.epoch;
  tail->base_length = tail->first_position = committed_length_;
  tail->stop = Blocked();
  if (tail->token_ids.empty()) return;
  announced_ = tail->stop;
  announced_base_ = committed_length_;
}

Tail DraftSession::OnDrafted(int32_t token_id, bool policy_stop,
                             absl::Span<const int32_t> candidates) {
  TokenTree::Proposal node;
  node.number = newest_number_ + 1;
  node.parent = length() == committed_length_ ? 0 : newest_number_;
  node.base_length = committed_length_;
  node.token_id = token_id;
  const TokenTree::Outcome outcome =
      chain_.Add(node, absl::MakeConstSpan(tokens_).subspan(
                           0, static_cast<size_t>(committed_length_)));
  NACRE_CHECK(outcome == TokenTree::Outcome::kAdded,
              "a drafted token is a new node below the last one");
  newest_number_ = node.number;
  Candidates& kept = candidates_.emplace_back();
  kept.count = std::min(kRanks, static_cast<int>(candidates.size()));
  std::copy_n(candidates.begin(), kept.count, kept.token_ids.begin());
  tokens_.push_back(token_id);
  policy_stop_ = policy_stop && options_.plan.waits_at_stop;
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
  // An end or a rest that still holds needs no second notice. A lead that a
  // commit did not free does, because the target forgets it when it steps.
  const bool holds = blocked == StopMark::kEnd || options_.plan.rests();
  if (announced_ == blocked &&
      (holds || announced_base_ == committed_length_)) {
    return absl::nullopt;
  }
  announced_ = blocked;
  announced_base_ = committed_length_;
  return MakeTail(tree_.has_value() ? committed_length_ : length());
}

}  // namespace nacre::speculation
