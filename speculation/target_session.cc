#include "speculation/target_session.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "speculation/ratio_test.h"

namespace nacre::speculation {

TargetSession::TargetSession(Options options, std::vector<int32_t> committed)
    : options_(std::move(options)),
      committed_(std::move(committed)),
      draft_position_(committed_length()),
      mismatch_length_(committed_length()),
      acknowledged_(committed_length()),
      has_draft_(options_.has_draft) {
  NACRE_CHECK(options_.prompt_length >= 1 &&
                  committed_length() >= options_.prompt_length,
              "a session needs its whole prompt");
  // A re-open of a session that had already ended.
  if (generated() >= options_.max_tokens) {
    finish_ = FinishReason::kLength;
  } else if (generated() > 0) {
    finish_ = EndsWith(committed_.back());
  }
}

TargetSession::TailOutcome TargetSession::OnTail(const Tail& tail) {
  if (finished() || !has_draft_ || tail.epoch < options_.epoch) {
    return TailOutcome::kStale;
  }
  if (tail.epoch > options_.epoch || tail.base_length < 0 ||
      tail.base_length > committed_length()) {
    return TailOutcome::kMalformed;
  }
  if (tail.base_length < mismatch_length_) return TailOutcome::kStale;
  if (!TailIsWellFormed(tail)) return TailOutcome::kMalformed;
  // Tokens below its base came to the draft from us: nothing to compare there.
  const int next = std::max(draft_position_, tail.base_length);
  const int count = static_cast<int>(tail.token_ids.size());
  if (tail.first_position < 0 || tail.first_position > next ||
      tail.first_position + count > committed_length() + kMaxLead + 1) {
    return TailOutcome::kMalformed;
  }
  // The base of a draft's messages never falls, nor the end while the base
  // stays, nor the mark while both do: a message that is not beyond the newest
  // repeats an older one.
  const MessageOrder order = {tail.base_length, tail.first_position + count,
                              tail.stop};
  if (order <= newest_) return TailOutcome::kApplied;
  newest_ = order;
  draft_position_ = next;
  draft_silent_ = false;
  for (int i = std::max(0, draft_position_ - tail.first_position); i < count;
       ++i) {
    const int32_t token_id = tail.token_ids[i];
    if (draft_position_ >= committed_length()) {
      tail_.push_back({token_id});
      if (options_.verification == Verification::kRatio) {
        tail_.back().distribution = tail.distributions[i];
      }
      ++draft_position_;
      continue;
    }
    const bool equal = committed_[draft_position_] == token_id;
    CompareNext(equal);
    if (!equal) return TailOutcome::kMismatch;
  }
  if (state_ == State::kOpen && draft_position_ >= committed_length()) {
    state_ = State::kFlow;
  }
  // A chunk that is complete opens the gate until it has been verified, however
  // far the draft goes on behind it.
  if (tail.stop == StopMark::kChunk) chunk_end_ = draft_position_;
  // A draft that has not seen the latest commit goes on once it has.
  if (tail.stop == StopMark::kEnd || tail.base_length == committed_length()) {
    stop_ = tail.stop == StopMark::kChunk ? StopMark::kNone : tail.stop;
  }
  return TailOutcome::kApplied;
}

bool TargetSession::TailIsWellFormed(const Tail& tail) const {
  if (tail.is_tree()) return false;
  if (options_.verification == Verification::kExact) return true;
  if (tail.distributions.size() != tail.token_ids.size()) return false;
  for (size_t i = 0; i < tail.token_ids.size(); ++i) {
    if (!IsValid(tail.distributions[i], tail.token_ids[i])) return false;
  }
  return true;
}

void TargetSession::CompareNext(bool equal) {
  ++verified_;
  ++draft_position_;
  if (equal) {
    ++accepted_;
    return;
  }
  tail_.clear();
  stop_ = StopMark::kNone;
  state_ = State::kMismatch;
  mismatch_length_ = draft_position_;
  chunk_end_ = 0;
}

void TargetSession::OnDraftAttached(uint32_t epoch, int opened_length) {
  if (epoch <= options_.epoch) return;
  options_.epoch = epoch;
  has_draft_ = true;
  draft_silent_ = false;
  tail_.clear();
  stop_ = StopMark::kNone;
  state_ = State::kMismatch;
  newest_ = MessageOrder();
  chunk_end_ = 0;
  draft_position_ = std::min(opened_length, committed_length());
  mismatch_length_ = draft_position_;
}

void TargetSession::OnDraftLost() { has_draft_ = false; }

void TargetSession::OnAcknowledged(int committed_length) {
  acknowledged_ = std::min(std::max(acknowledged_, committed_length),
                           this->committed_length());
}

int TargetSession::StepLimit() const {
  const int ahead = committed_length() - acknowledged_;
  return std::max(0,
                  std::min({options_.plan.window, kMaxWindow, remaining() - 1,
                            options_.max_unacknowledged - ahead - 1}));
}

int TargetSession::Gate() const {
  const int gate = state_ == State::kMismatch
                       ? options_.plan.gate_after_mismatch
                       : options_.plan.gate_in_flow;
  return std::min(gate, StepLimit());
}

TargetSession::Readiness TargetSession::CheckReady(int64_t now_ns) {
  NACRE_CHECK(!stepping_, "CheckReady while a step runs");
  if (finished()) return Readiness::kFinished;
  if (committed_length() - acknowledged_ >= options_.max_unacknowledged) {
    waiting_since_ns_.reset();
    return Readiness::kWaitAcknowledge;
  }
  if (!has_draft_ || draft_silent_ || stop_ != StopMark::kNone ||
      chunk_end_ > committed_length() || tail_size() >= Gate()) {
    waiting_since_ns_.reset();
    return Readiness::kReady;
  }
  if (!waiting_since_ns_.has_value()) waiting_since_ns_ = now_ns;
  if (now_ns >= *waiting_since_ns_ + options_.plan.gate_timeout_ns) {
    // A hung draft must not cost one timeout per step.
    draft_silent_ = tail_.empty();
    waiting_since_ns_.reset();
    return Readiness::kReady;
  }
  return Readiness::kWaitDraft;
}

absl::optional<int64_t> TargetSession::gate_deadline_ns() const {
  if (!waiting_since_ns_.has_value()) return absl::nullopt;
  return *waiting_since_ns_ + options_.plan.gate_timeout_ns;
}

absl::Span<const int32_t> TargetSession::BeginStep() {
  NACRE_CHECK(!stepping_ && !finished(), "BeginStep twice or after the end");
  stepping_ = true;
  step_degraded_ = !has_draft_ || draft_silent_;
  waiting_since_ns_.reset();
  holding_since_ns_.reset();
  const int rows = std::min(tail_size(), StepLimit());
  step_rows_.clear();
  step_distributions_.clear();
  for (int i = 0; i < rows; ++i) {
    step_rows_.push_back(tail_[i].id);
    if (options_.verification == Verification::kRatio) {
      step_distributions_.push_back(tail_[i].distribution);
    }
  }
  return step_rows_;
}

int TargetSession::SharedWithStep() const {
  int shared = 0;
  while (shared < tail_size() && shared < static_cast<int>(step_rows_.size()) &&
         tail_[shared].id == step_rows_[shared]) {
    ++shared;
  }
  return shared;
}

absl::optional<TargetSession::Drafted> TargetSession::DraftedAt(int row) const {
  NACRE_CHECK(stepping_ && options_.verification == Verification::kRatio,
              "DraftedAt is of a step under the ratio test");
  const int window = static_cast<int>(step_rows_.size());
  if (row < window) return Drafted{step_rows_[row], &step_distributions_[row]};
  // The tail may be another draft's by now: its token was drawn behind the rows
  // of the step only if it begins with them.
  if (tail_size() <= window || SharedWithStep() < window) return absl::nullopt;
  return Drafted{tail_[window].id, &tail_[window].distribution};
}

bool TargetSession::HoldsLastRow(int64_t now_ns) {
  const int window = static_cast<int>(step_rows_.size());
  // It comes to nothing where a draft has gone, is silent or has stopped, holds
  // other tokens, or has already sent e1.
  const bool may_come = options_.plan.holds_last_row && has_draft_ &&
                        !draft_silent_ && stop_ == StopMark::kNone &&
                        tail_size() <= window &&
                        SharedWithStep() == tail_size();
  if (!may_come) {
    holding_since_ns_.reset();
    return false;
  }
  if (!holding_since_ns_.has_value()) holding_since_ns_ = now_ns;
  if (now_ns < *holding_since_ns_ + options_.plan.gate_timeout_ns) return true;
  draft_silent_ = tail_size() <= window;
  holding_since_ns_.reset();
  return false;
}

absl::optional<int64_t> TargetSession::hold_deadline_ns() const {
  if (!holding_since_ns_.has_value()) return absl::nullopt;
  return *holding_since_ns_ + options_.plan.gate_timeout_ns;
}

absl::optional<Verdict> TargetSession::CommitAccepted() {
  NACRE_CHECK(stepping_ && holding_since_ns_.has_value(),
              "CommitAccepted is of a step that holds its last row");
  if (step_rows_.empty()) return absl::nullopt;
  Verdict verdict = BeginVerdict();
  verdict.matched = verdict.window;
  verdict.token_ids = std::exchange(step_rows_, {});
  step_distributions_.clear();
  committed_.insert(committed_.end(), verdict.token_ids.begin(),
                    verdict.token_ids.end());
  CompareCommitted(verdict.base_length, verdict.matched);
  verdict.verified = std::exchange(verified_, 0);
  verdict.accepted = std::exchange(accepted_, 0);
  return verdict;
}

Verdict TargetSession::BeginVerdict() const {
  Verdict verdict;
  verdict.base_length = committed_length();
  verdict.window = static_cast<int>(step_rows_.size());
  verdict.degraded = step_degraded_;
  return verdict;
}

Verdict TargetSession::FinishStep(absl::Span<const int32_t> target_token_ids) {
  NACRE_CHECK(stepping_, "FinishStep without BeginStep");
  stepping_ = false;
  Verdict verdict = BeginVerdict();

  // The matching prefix; what follows an end token is cut before it is counted.
  int& matched = verdict.matched;
  bool has_row = false;  // whether the last committed token had a row's draft
  while (true) {
    NACRE_CHECK(matched < static_cast<int>(target_token_ids.size()),
                "a target token a row up to the first mismatch");
    const int32_t token_id = target_token_ids[matched];
    verdict.token_ids.push_back(token_id);
    committed_.push_back(token_id);
    finish_ = EndsWith(token_id);
    if (finish_ == FinishReason::kNone && remaining() <= 0) {
      finish_ = FinishReason::kLength;
    }
    has_row = matched < verdict.window;
    if (!has_row || step_rows_[matched] != token_id) break;
    ++matched;
    if (finished()) break;
  }
  verdict.finish = finish_;
  const int count = static_cast<int>(verdict.token_ids.size());
  CompareCommitted(verdict.base_length,
                   finished() && !has_row ? count - 1 : count);
  verdict.verified = std::exchange(verified_, 0);
  verdict.accepted = std::exchange(accepted_, 0);
  return verdict;
}

void TargetSession::CompareCommitted(int base_length, int count) {
  if (stop_ != StopMark::kEnd) stop_ = StopMark::kNone;
  const int known = std::min(count, tail_size());
  if (known > 0) draft_position_ = base_length;
  for (int i = 0; i < known; ++i) {
    const bool equal = tail_[i].id == committed_[base_length + i];
    CompareNext(equal);
    if (!equal) return;
  }
  tail_.erase(tail_.begin(), tail_.begin() + known);
  if (known < count) {  // e1 has not arrived
    state_ = State::kOpen;
    return;
  }
  state_ = State::kFlow;
  draft_position_ += tail_size();
}

FinishReason TargetSession::EndsWith(int32_t token_id) const {
  const auto contains = [token_id](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token_id) != ids.end();
  };
  if (contains(options_.eos_ids)) return FinishReason::kEos;
  if (contains(options_.stop_ids)) return FinishReason::kStop;
  return FinishReason::kNone;
}

}  // namespace nacre::speculation
