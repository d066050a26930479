#include "speculation/target_session.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace nacre::speculation {
namespace {

Verdict BeginVerdict(const TargetText& text, const TargetStep& step) {
  Verdict verdict;
  verdict.base_length = text.length();
  verdict.window = step.size();
  verdict.suffix_proposed = step.num_own();
  verdict.degraded = step.degraded();
  return verdict;
}

}  // namespace

TargetSession::TargetSession(Options options, std::vector<int32_t> committed)
    : options_(std::move(options)),
      text_(std::move(options_.text), std::move(committed)),
      buffer_(options_.verification, committed_length()),
      wait_(options_.has_draft, options_.plan.gate_timeout_ns),
      acknowledged_(committed_length()) {}

TargetSession::TailOutcome TargetSession::OnTail(const Tail& tail,
                                                 DraftBuffer::Fates* fates) {
  if (finished() || !wait_.has_draft() || tail.epoch < options_.epoch) {
    return TailOutcome::kStale;
  }
  if (tail.epoch > options_.epoch || tail.base_length < 0 ||
      tail.base_length > committed_length()) {
    return TailOutcome::kMalformed;
  }
  const DraftBuffer::Outcome outcome = buffer_.Add(tail, committed());
  const DraftBuffer::Fates of_nodes = buffer_.TakeFates();
  if (fates != nullptr) *fates = of_nodes;
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
      wait_.OnHeard(/*missed=*/true);
      wait_.OnMismatch();
      return TailOutcome::kMismatch;
    case DraftBuffer::Outcome::kStale:
      return TailOutcome::kStale;
    case DraftBuffer::Outcome::kMalformed:
      return TailOutcome::kMalformed;
  }
  wait_.OnHeard(buffer_.standing() == DraftBuffer::Standing::kMismatch);
  if (tail.stop == StopMark::kChunk) wait_.OnChunk(buffer_.end_length());
  // A draft that has not seen the latest commit goes on once it has, but for
  // the end of what the text still follows.
  if ((tail.stop == StopMark::kEnd &&
       tail.base_length >= buffer_.left_main_length()) ||
      tail.base_length == committed_length()) {
    wait_.OnStop(tail.stop);
  }
  return TailOutcome::kApplied;
}

void TargetSession::OnDraftAttached(uint32_t epoch, int opened_length) {
  if (epoch <= options_.epoch) return;
  options_.epoch = epoch;
  wait_.OnAttached();
  buffer_.Attach(opened_length);
  step_.ForgetNumbers();  // of a step that runs
}

void TargetSession::OnAcknowledged(int committed_length) {
  acknowledged_ = std::min(std::max(acknowledged_, committed_length),
                           this->committed_length());
}

int TargetSession::RowLimit() const {
  const int ahead = committed_length() - acknowledged_;
  return std::max(0, std::min({kMaxWindow, text_.remaining() - 1,
                               options_.max_unacknowledged - ahead - 1}));
}

int TargetSession::StepLimit() const {
  return std::max(0, std::min(options_.plan.window, RowLimit()));
}

bool TargetSession::WantsSuffixes() const {
  return !step_.running() && !finished() &&
         options_.verification == Verification::kExact &&
         proposed_length_ != committed_length() && RowLimit() > 0 &&
         !buffer_.has_draft_tail();
}

SuffixLimits TargetSession::suffix_limits() const {
  // What is less likely pays on no device.
  constexpr double kLeastProbability = 1.0 / 64;
  // A chain needs no slots.
  return {TokenTree::kMaxLocal, RowLimit(), kLeastProbability,
          options_.num_slots == 0};
}

void TargetSession::ProposeSuffixes(absl::Span<const SuffixNode> nodes) {
  NACRE_CHECK(WantsSuffixes(), "nodes that were not asked for");
  proposed_length_ = committed_length();
  buffer_.SetLocal(nodes);
}

TargetSession::Readiness TargetSession::CheckReady(int64_t now_ns) {
  NACRE_CHECK(!step_.running(), "CheckReady while a step runs");
  if (finished()) return Readiness::kFinished;
  if (committed_length() - acknowledged_ >= options_.max_unacknowledged) {
    wait_.EndGateWait();
    return Readiness::kWaitAcknowledge;
  }
  const bool begins_chunk =
      buffer_.standing() == DraftBuffer::Standing::kMismatch ||
      (options_.plan.ends_chunks && step_.size() > 0);
  const int gate = begins_chunk ? options_.plan.gate_after_mismatch
                                : options_.plan.gate_in_flow;
  if (!wait_.MayCome(committed_length()) ||
      buffer_.worth() >= std::min(gate, StepLimit())) {
    wait_.EndGateWait();
    return Readiness::kReady;
  }
  return wait_.WaitAtGate(now_ns) ? Readiness::kWaitDraft : Readiness::kReady;
}

void TargetSession::StartStep() {
  NACRE_CHECK(!step_.running() && !finished(),
              "BeginStep twice or after the end");
  wait_.EndGateWait();
  wait_.EndLastRowWait();
  // What a draft sent before it fell silent is still worth its rows.
  const bool drafted = wait_.has_draft() && buffer_.has_draft_tail();
  step_.Begin(/*degraded=*/wait_.is_without_draft() && !drafted);
}

absl::optional<StepTree> TargetSession::NextTree() const {
  // What is beside the path stands in slots, the path at positions.
  if (buffer_.tree().has_local()) {
    return StepTree{.tree = &buffer_.tree(),
                    .max_depth = RowLimit(),
                    .most = std::min(options_.num_slots, TokenTree::kMaxLocal),
                    .is_local = true,
                    .path_goes_on = options_.num_slots < TokenTree::kMaxLocal};
  }
  // A chain says nothing of how likely its tokens are.
  if (options_.num_slots == 0 || options_.plan.tree_rows == 0 ||
      !buffer_.speaks_tree()) {
    return absl::nullopt;
  }
  return StepTree{
      .tree = &buffer_.tree(),
      .max_depth = StepLimit(),
      .most =
          std::min({options_.plan.tree_rows, options_.num_slots, kMaxWindow}),
      .takes_all = options_.plan.takes_all,
      .path_goes_on = !options_.plan.takes_all &&
                      options_.plan.tree_rows < options_.plan.window};
}

absl::Span<const int32_t> TargetSession::BeginStep() {
  StartStep();
  step_.TakeChain(buffer_, NextChain());
  return step_.token_ids();
}

absl::Span<const int32_t> TargetSession::BeginTreeStep(int num_nodes) {
  const absl::optional<StepTree> tree = NextTree();
  NACRE_CHECK(tree.has_value(), "BeginTreeStep of a chain");
  StartStep();
  step_.TakeTree(buffer_, *tree, num_nodes);
  return step_.token_ids();
}

absl::optional<TargetSession::Drafted> TargetSession::DraftedAt(int row) const {
  NACRE_CHECK(step_.running() && options_.verification == Verification::kRatio,
              "DraftedAt is of a step under the ratio test");
  const int window = step_.size();
  if (row < window) {
    return Drafted{step_.token_ids()[static_cast<size_t>(row)],
                   &step_.distribution(row + 1)};
  }
  // The tail may be another draft's by now: its token was drawn after the rows
  // of the step only if it begins with them.
  if (buffer_.depth() <= window || step_.SharedWith(buffer_) < window) {
    return absl::nullopt;
  }
  const int node = buffer_.best_path()[window];
  return Drafted{buffer_.tree().nodes()[node].token_id,
                 &buffer_.distribution(node)};
}

bool TargetSession::HoldsLastRow(int64_t now_ns) {
  // It comes to nothing where a draft has gone, is silent or has stopped, holds
  // other tokens, or has already sent e1.
  const bool may_come = options_.plan.holds_last_row &&
                        !wait_.is_without_draft() && !wait_.has_stopped() &&
                        buffer_.depth() <= step_.size() &&
                        step_.SharedWith(buffer_) == buffer_.depth();
  if (!may_come) {
    wait_.EndLastRowWait();
    return false;
  }
  return wait_.WaitWithLastRow(now_ns);
}

absl::optional<Verdict> TargetSession::CommitAccepted() {
  NACRE_CHECK(step_.running() && wait_.waits_with_last_row(),
              "CommitAccepted is of a step that holds its last row");
  if (step_.size() == 0) return absl::nullopt;
  Verdict verdict = BeginVerdict(text_, step_);
  verdict.matched = verdict.window;
  verdict.token_ids = step_.TakeTokens();
  text_.CommitInside(verdict.token_ids);
  CompareCommitted(verdict.matched, &verdict);
  return verdict;
}

Verdict TargetSession::FinishStep(absl::Span<const int32_t> target_token_ids) {
  NACRE_CHECK(step_.running(), "FinishStep without BeginStep");
  step_.End();
  Verdict verdict = BeginVerdict(text_, step_);

  // The walk; what follows an end token is cut before it is counted.
  int& matched = verdict.matched;
  int row = 0;
  bool has_row = false;  // whether rows stand after the last one walked
  while (true) {
    NACRE_CHECK(matched < static_cast<int>(target_token_ids.size()),
                "a target token a row up to the first mismatch");
    const int32_t token_id = target_token_ids[matched];
    verdict.token_ids.push_back(token_id);
    text_.Commit(token_id);
    has_row = step_.HasDraftRow(row);
    const absl::optional<int> next = step_.RowBehind(row, token_id);
    if (!next.has_value()) break;
    row = *next;
    ++matched;
    if (step_.IsOwn(row)) {
      ++verdict.suffix_accepted;
    } else if (row > step_.path_length()) {
      ++verdict.branch_accepted;
    }
    if (!step_.numbers().empty()) {
      verdict.path.push_back(step_.numbers()[static_cast<size_t>(row - 1)]);
    }
    if (finished()) break;
  }
  // A node that has no number says nothing to the draft.
  if (std::count(verdict.path.begin(), verdict.path.end(), 0) > 0) {
    verdict.path.clear();
  }
  verdict.finish = text_.finish();
  const int count = static_cast<int>(verdict.token_ids.size());
  CompareCommitted(finished() && !has_row ? count - 1 : count, &verdict);
  return verdict;
}

void TargetSession::CompareCommitted(int count, Verdict* verdict) {
  wait_.OnCommitted();
  if (buffer_.OnCommitted(verdict->base_length, count, committed())) {
    wait_.OnMismatch();
  } else if (buffer_.left_main_length() > verdict->base_length) {
    wait_.OnBranch();
  }
  const DraftBuffer::Account account = buffer_.TakeAccount();
  verdict->verified = account.verified;
  verdict->accepted = account.accepted;
}

}  // namespace nacre::speculation
