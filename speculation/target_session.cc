#include "speculation/target_session.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace nacre::speculation {

TargetSession::TargetSession(Options options, std::vector<int32_t> committed)
    : options_(std::move(options)),
      committed_(std::move(committed)),
      buffer_(options_.verification, committed_length()),
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
  const DraftBuffer::Outcome outcome = buffer_.Add(tail, committed_);
  // Where the draft speaks, only it is listened to.
  if (buffer_.tree().has_local() && buffer_.has_draft_tail()) {
    buffer_.DropLocal();
  }
  switch (outcome) {
    case DraftBuffer::Outcome::kApplied:
      break;
    case DraftBuffer::Outcome::kRepeated:
      return TailOutcome::kApplied;
    case DraftBuffer::Outcome::kMismatch:
      draft_silent_ = false;
      OnMismatch();
      return TailOutcome::kMismatch;
    case DraftBuffer::Outcome::kStale:
      return TailOutcome::kStale;
    case DraftBuffer::Outcome::kMalformed:
      return TailOutcome::kMalformed;
  }
  draft_silent_ = false;
  // A chunk that is complete opens the gate until it has been verified, however
  // far the draft goes on behind it.
  if (tail.stop == StopMark::kChunk) chunk_end_ = buffer_.end_length();
  // A draft that has not seen the latest commit goes on once it has.
  if (tail.stop == StopMark::kEnd || tail.base_length == committed_length()) {
    stop_ = tail.stop == StopMark::kChunk ? StopMark::kNone : tail.stop;
  }
  return TailOutcome::kApplied;
}

void TargetSession::OnMismatch() {
  stop_ = StopMark::kNone;
  chunk_end_ = 0;
}

void TargetSession::OnDraftAttached(uint32_t epoch, int opened_length) {
  if (epoch <= options_.epoch) return;
  options_.epoch = epoch;
  has_draft_ = true;
  draft_silent_ = false;
  OnMismatch();
  buffer_.Attach(opened_length);
  step_numbers_.clear();  // of a step that runs: they say nothing to this draft
}

void TargetSession::OnDraftLost() { has_draft_ = false; }

void TargetSession::OnAcknowledged(int committed_length) {
  acknowledged_ = std::min(std::max(acknowledged_, committed_length),
                           this->committed_length());
}

int TargetSession::RowLimit() const {
  const int ahead = committed_length() - acknowledged_;
  return std::max(0, std::min({kMaxWindow, remaining() - 1,
                               options_.max_unacknowledged - ahead - 1}));
}

int TargetSession::StepLimit() const {
  return std::max(0, std::min(options_.plan.window, RowLimit()));
}

bool TargetSession::WantsSuffixes() const {
  return !stepping_ && !finished() &&
         options_.verification == Verification::kExact &&
         proposed_length_ != committed_length() && RowLimit() > 0 &&
         !buffer_.has_draft_tail();
}

SuffixLimits TargetSession::suffix_limits() const {
  // What is less likely pays on no device.
  constexpr double kLeastProbability = 1.0 / 64;
  // A tree may need a slot for each node, a chain needs none.
  return {TokenTree::kMaxLocal, RowLimit(), kLeastProbability,
          options_.num_slots < TokenTree::kMaxLocal};
}

void TargetSession::ProposeSuffixes(absl::Span<const SuffixNode> nodes) {
  NACRE_CHECK(WantsSuffixes(), "nodes that were not asked for");
  proposed_length_ = committed_length();
  buffer_.SetLocal(nodes);
}

int TargetSession::Gate() const {
  const int gate = buffer_.standing() == DraftBuffer::Standing::kMismatch
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
      chunk_end_ > committed_length() || buffer_.worth() >= Gate()) {
    waiting_since_ns_.reset();
    return Readiness::kReady;
  }
  if (!waiting_since_ns_.has_value()) waiting_since_ns_ = now_ns;
  if (now_ns >= *waiting_since_ns_ + options_.plan.gate_timeout_ns) {
    // A hung draft must not cost one timeout per step.
    draft_silent_ = !buffer_.has_draft_tail();
    waiting_since_ns_.reset();
    return Readiness::kReady;
  }
  return Readiness::kWaitDraft;
}

absl::optional<int64_t> TargetSession::gate_deadline_ns() const {
  if (!waiting_since_ns_.has_value()) return absl::nullopt;
  return *waiting_since_ns_ + options_.plan.gate_timeout_ns;
}

void TargetSession::StartStep() {
  NACRE_CHECK(!stepping_ && !finished(), "BeginStep twice or after the end");
  stepping_ = true;
  step_degraded_ = !has_draft_ || draft_silent_;
  waiting_since_ns_.reset();
  holding_since_ns_.reset();
  step_rows_.clear();
  step_parents_.clear();
  step_path_length_ = 0;
  step_is_own_.clear();
  step_numbers_.clear();
  step_distributions_.clear();
}

void TargetSession::AddStepRow(int node, int parent_row) {
  step_rows_.push_back(buffer_.tree().nodes()[node].token_id);
  step_parents_.push_back(parent_row);
  step_is_own_.push_back(buffer_.tree().nodes()[node].is_local);
  if (buffer_.speaks_tree()) {
    step_numbers_.push_back(buffer_.tree().NumberOf(node));
  }
  if (options_.verification == Verification::kRatio) {
    step_distributions_.push_back(buffer_.distribution(node));
  }
}

absl::optional<StepTree> TargetSession::NextTree() const {
  if (buffer_.tree().has_local()) {
    const SuffixLimits limits = suffix_limits();
    return StepTree{&buffer_.tree(), limits.max_depth, limits.max_nodes};
  }
  // A chain says nothing of how likely its tokens are.
  if (options_.num_slots == 0 || options_.plan.tree_rows == 0 ||
      !buffer_.speaks_tree()) {
    return absl::nullopt;
  }
  return StepTree{
      &buffer_.tree(), StepLimit(),
      std::min({options_.plan.tree_rows, options_.num_slots, kMaxWindow})};
}

absl::Span<const int32_t> TargetSession::BeginStep() {
  StartStep();
  step_path_length_ = NextChain();
  for (int row = 0; row < step_path_length_; ++row) {
    AddStepRow(buffer_.best_path()[row], row);
  }
  return step_rows_;
}

absl::Span<const int32_t> TargetSession::BeginTreeStep(int num_nodes) {
  const absl::optional<StepTree> tree = NextTree();
  NACRE_CHECK(tree.has_value(), "BeginTreeStep of a chain");
  StartStep();
  const TokenTree& nodes = *tree->tree;
  nodes.Best(std::min(num_nodes, tree->most), tree->max_depth, &step_nodes_);
  rows_of_.assign(nodes.nodes().size(), 0);
  // Where some of a node's children are rows, the best of them is one. So the
  // best path of the rows is where the tree's begins.
  for (const int node : buffer_.best_path()) {
    if (!std::binary_search(step_nodes_.begin(), step_nodes_.end(), node)) {
      break;
    }
    AddStepRow(node, step_path_length_);
    rows_of_[node] = ++step_path_length_;
  }
  // A parent comes before its children.
  for (const int node : step_nodes_) {
    if (rows_of_[node] != 0) continue;
    const int parent = nodes.nodes()[node].parent;
    AddStepRow(node, parent == TokenTree::kRoot ? 0 : rows_of_[parent]);
    rows_of_[node] = static_cast<int>(step_rows_.size());
  }
  return step_rows_;
}

absl::optional<int> TargetSession::RowBehind(int row, int32_t token_id) const {
  for (int i = row; i < static_cast<int>(step_rows_.size()); ++i) {
    if (step_parents_[i] == row && step_rows_[i] == token_id) return i + 1;
  }
  return absl::nullopt;
}

bool TargetSession::HasDraftRow(int row) const {
  for (size_t i = 0; i < step_parents_.size(); ++i) {
    if (step_parents_[i] == row && !step_is_own_[i]) return true;
  }
  return false;
}

int TargetSession::SharedWithStep() const {
  int shared = 0;
  while (shared < buffer_.depth() &&
         shared < static_cast<int>(step_rows_.size()) &&
         buffer_.tree().nodes()[buffer_.best_path()[shared]].token_id ==
             step_rows_[shared]) {
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
  if (buffer_.depth() <= window || SharedWithStep() < window) {
    return absl::nullopt;
  }
  const int node = buffer_.best_path()[window];
  return Drafted{buffer_.tree().nodes()[node].token_id,
                 &buffer_.distribution(node)};
}

bool TargetSession::HoldsLastRow(int64_t now_ns) {
  const int window = static_cast<int>(step_rows_.size());
  // It comes to nothing where a draft has gone, is silent or has stopped, holds
  // other tokens, or has already sent e1.
  const bool may_come = options_.plan.holds_last_row && has_draft_ &&
                        !draft_silent_ && stop_ == StopMark::kNone &&
                        buffer_.depth() <= window &&
                        SharedWithStep() == buffer_.depth();
  if (!may_come) {
    holding_since_ns_.reset();
    return false;
  }
  if (!holding_since_ns_.has_value()) holding_since_ns_ = now_ns;
  if (now_ns < *holding_since_ns_ + options_.plan.gate_timeout_ns) return true;
  draft_silent_ = buffer_.depth() <= window;
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
  step_parents_.clear();
  step_distributions_.clear();
  committed_.insert(committed_.end(), verdict.token_ids.begin(),
                    verdict.token_ids.end());
  CompareCommitted(verdict.base_length, verdict.matched);
  TakeAccount(&verdict);
  return verdict;
}

Verdict TargetSession::BeginVerdict() const {
  Verdict verdict;
  verdict.base_length = committed_length();
  verdict.window = static_cast<int>(step_rows_.size());
  verdict.suffix_proposed = static_cast<int>(
      std::count(step_is_own_.begin(), step_is_own_.end(), true));
  verdict.degraded = step_degraded_;
  return verdict;
}

Verdict TargetSession::FinishStep(absl::Span<const int32_t> target_token_ids) {
  NACRE_CHECK(stepping_, "FinishStep without BeginStep");
  stepping_ = false;
  Verdict verdict = BeginVerdict();

  // The walk; what follows an end token is cut before it is counted.
  int& matched = verdict.matched;
  int row = 0;
  bool has_row = false;  // whether rows stand behind the last one walked
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
    has_row = HasDraftRow(row);
    const absl::optional<int> next = RowBehind(row, token_id);
    if (!next.has_value()) break;
    row = *next;
    ++matched;
    if (step_is_own_[row - 1]) {
      ++verdict.suffix_accepted;
    } else if (row > step_path_length_) {
      ++verdict.branch_accepted;
    }
    if (!step_numbers_.empty()) {
      verdict.path.push_back(step_numbers_[row - 1]);
    }
    if (finished()) break;
  }
  // A node that has no number says nothing to the draft.
  if (std::count(verdict.path.begin(), verdict.path.end(), 0) > 0) {
    verdict.path.clear();
  }
  verdict.finish = finish_;
  const int count = static_cast<int>(verdict.token_ids.size());
  CompareCommitted(verdict.base_length,
                   finished() && !has_row ? count - 1 : count);
  TakeAccount(&verdict);
  return verdict;
}

void TargetSession::TakeAccount(Verdict* verdict) {
  const DraftBuffer::Account account = buffer_.TakeAccount();
  verdict->verified = account.verified;
  verdict->accepted = account.accepted;
}

void TargetSession::CompareCommitted(int base_length, int count) {
  if (stop_ != StopMark::kEnd) stop_ = StopMark::kNone;
  if (buffer_.OnCommitted(base_length, count, committed_)) OnMismatch();
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
