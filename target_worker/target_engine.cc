#include "target_worker/target_engine.h"

#include <algorithm>
#include <utility>

#include "common/status_macros.h"
#include "target_worker/engine_session.h"
#include "worker/engine/common_prefix.h"

namespace nacre::target_worker {

using speculation::TargetSession;
using wire::Span;
using worker::WorkerState;

namespace {

// Shorter answers are not worth a place.
constexpr int kLeastRemembered = 16;

std::unique_ptr<speculation::SuffixIndex> MakeRemembered(int64_t bytes) {
  using speculation::SuffixIndex;
  if (bytes < TargetEngine::kLeastSuffixBytes) return nullptr;
  constexpr int64_t kBytes = SuffixIndex::kBytesPerToken +
                             SuffixIndex::kBytesPerText / kLeastRemembered;
  return std::make_unique<SuffixIndex>(
      std::min(bytes / kBytes, SuffixIndex::kMaxTokens));
}

}  // namespace

TargetEngine::TargetEngine(Options options)
    : TypedSessionEngine({.canary_model = options.model,
                          .deliver = options.deliver,
                          .spin_ns = options.spin_ns,
                          .now_ns = options.now_ns},
                         options.send),
      options_(std::move(options)),
      taps_(TapsOf(options_)),
      remembered_(options_.suffixes
                      ? MakeRemembered(options_.suffix_cache_bytes)
                      : nullptr) {
  Publish();
}

TargetEngine::~TargetEngine() = default;

void TargetEngine::LearnStepTimes(absl::Span<const worker::StepTime> times) {
  for (const worker::StepTime& time : times) {
    step_times_.Add(time.rows, time.duration_ns);
  }
}

WorkerState TargetEngine::Plan(int64_t now_ns, worker::StepOutcome* idle) {
  stepping_.clear();
  batch_.clear();
  prefilling_.clear();
  verify_rows_ = logit_rows_ = 0;
  hidden_ = {};
  for (Session& session : sessions()) {
    if (session.schedule.finished() || session.unfed_rows() <= 0) continue;
    TakeOver(session, session.schedule.committed());
    if (session.unfed_rows() > 0) prefilling_.push_back(&session);
  }
  const WorkerState wait = PlanVerifies(now_ns, idle);
  // One that waits for draft tokens will want its next step soon.
  PlanPrefills(!batch_.empty() || wait == WorkerState::kWaitDraftTokens,
               now_ns);
  if (batch_.empty()) {
    idle->waits_for_peer = wait == WorkerState::kWaitDraftTokens;
    return wait;
  }
  return verify_rows_ * 2 >= batch_rows_ ? WorkerState::kVerify
                                         : WorkerState::kPrefill;
}

absl::StatusOr<bool> TargetEngine::Forward() {
  NACRE_ASSIGN_OR_RETURN(logits_, options_.model->Forward(batch_));
  return true;
}

void TargetEngine::Finish(int64_t start_ns, bool) {
  SampleAll(logits_);
  soundness_.EndStep();
  const int64_t end_ns = now_ns_();
  // A chunk of a prompt makes a step another one.
  if (verify_rows_ == batch_rows_) {
    step_times_.Add(batch_rows_, end_ns - start_ns);
  }
  // Tails that arrived meanwhile may hold the token behind the last row.
  TakeCommandsInStep();
  for (Session* session : stepping_) FinishStep(*session, start_ns, end_ns);
}

void TargetEngine::OnClosing(worker::EngineSession& closing) {
  const Session& session = static_cast<Session&>(closing);
  if (session.suffixes == nullptr || remembered_ == nullptr ||
      session.suffixes->owner() == speculation::TextOwner() ||
      session.schedule.text().generated() < kLeastRemembered) {
    return;
  }
  // Only what this service has said itself.
  remembered_->Add(
      session.suffixes->owner(),
      absl::MakeConstSpan(session.schedule.committed())
          .last(static_cast<size_t>(session.schedule.text().generated())));
}

void TargetEngine::ProposeSuffixes(Session& session) {
  TargetSession& schedule = session.schedule;
  if (session.suffixes == nullptr || !schedule.WantsSuffixes()) return;
  const bool remembers = session.suffixes->owner() != speculation::TextOwner();
  schedule.ProposeSuffixes(session.suffixes->Propose(
      schedule.committed(), remembers ? remembered_.get() : nullptr,
      schedule.suffix_limits()));
}

WorkerState TargetEngine::PlanVerifies(int64_t now_ns,
                                       worker::StepOutcome* outcome) {
  const int max_rows = options_.budget.DecodeRows(!prefilling_.empty());
  WorkerState idle = WorkerState::kNoWork;
  ready_.clear();
  int least_rows = 0;  // of those that are ready, with chains but no trees
  VisitInTurn([&](size_t index) {
    Session& session = this->session(index);
    if (session.schedule.finished() || session.unfed_rows() > 0) return true;
    if (session.hold.has_value()) {
      NoteDraftWait(session, session.schedule.wait().last_row_deadline_ns(),
                    now_ns, outcome);
      idle = WorkerState::kWaitDraftTokens;
      return true;
    }
    ProposeSuffixes(session);
    switch (session.schedule.CheckReady(now_ns)) {
      case TargetSession::Readiness::kReady: {
        if (least_rows >= max_rows) return false;
        ready_.push_back(&session);
        const TargetSession& schedule = session.schedule;
        least_rows +=
            1 + (!step_times_.empty() && schedule.NextTree().has_value()
                     ? 0
                     : schedule.NextChain());
        break;
      }
      case TargetSession::Readiness::kWaitDraft:
        NoteDraftWait(session, session.schedule.wait().gate_deadline_ns(),
                      now_ns, outcome);
        idle = WorkerState::kWaitDraftTokens;
        break;
      case TargetSession::Readiness::kWaitAcknowledge:
        NoteWait(session, Span::Kind::kWaitAcknowledge, now_ns);
        if (idle == WorkerState::kNoWork) idle = WorkerState::kWaitAcknowledge;
        break;
      case TargetSession::Readiness::kFinished:
        break;
    }
    return true;
  });
  AddReady(ready_, least_rows, max_rows, now_ns);
  return idle;
}

void TargetEngine::AddReady(absl::Span<Session* const> ready, int least_rows,
                            int max_rows, int64_t now_ns) {
  std::vector<speculation::StepTree> trees;
  for (const Session* session : ready) {
    if (step_times_.empty()) break;  // no node is known to pay: chains
    const auto tree = session->schedule.NextTree();
    if (tree.has_value()) trees.push_back(*tree);
  }
  const std::vector<int> counts = speculation::ChooseStepRows(
      trees, {static_cast<int>(ready.size()), least_rows, max_rows},
      step_times_);
  auto count = counts.begin();
  for (Session* session : ready) {
    absl::optional<int> num_nodes;
    if (!counts.empty() && session->schedule.NextTree().has_value()) {
      num_nodes = *count++;
    }
    AddRows(*session, max_rows, now_ns, num_nodes);
  }
}

void TargetEngine::PlanPrefills(bool decoding, int64_t now_ns) {
  std::vector<worker::Prefill> prompts;
  for (const Session* session : prefilling_) {
    // One more row: the first step may share the forward.
    prompts.push_back({session->schedule.committed(),
                       session->sequence->length(), session->unfed_rows() + 1});
  }
  int left = options_.budget.PrefillRows(decoding, batch_rows_);
  const std::vector<int> shares = worker::SharePrefillOfCommonPrefixes(
      prompts, options_.model->shared_block_size(), left);
  for (size_t i = 0; i < prefilling_.size(); ++i) {
    // What an earlier one's tail took beyond its share is missing now.
    const int share = std::min(shares[i], left);
    if (share <= 0) continue;
    const int before = batch_rows_;
    AddRows(*prefilling_[i], share, now_ns);
    left -= batch_rows_ - before;
  }
}

int TargetEngine::BeginVerify(Session& session, int64_t now_ns,
                              absl::optional<int> num_nodes) {
  EndWait(session, now_ns);
  TargetSession& schedule = session.schedule;
  const absl::Span<const int32_t> tail =
      num_nodes.has_value() ? schedule.BeginTreeStep(*num_nodes)
                            : schedule.BeginStep();
  session.fed.push_back(schedule.committed().back());
  session.fed.insert(session.fed.end(), tail.begin(), tail.end());
  session.verifies = true;
  // Its path stands at positions, what is beside it in slots.
  const int path = schedule.step().path_length();
  const absl::Span<const int> parents = schedule.step().parents();
  session.row_depths.assign(1, 0);
  for (int row = 1; row <= static_cast<int>(tail.size()); ++row) {
    const int parent = parents[row - 1];
    const int depth = session.row_depths[parent] + 1;
    session.row_depths.push_back(depth);
    if (row <= path) continue;
    model::TreeNode node;
    node.slot = row - path - 1;
    node.parent = parent <= path ? model::kNoSlot : parent - path - 1;
    node.position = schedule.committed_length() - 1 + depth;
    session.nodes.push_back(node);
  }
  return static_cast<int>(tail.size()) + 1;
}

void TargetEngine::AddRows(Session& session, int max_rows, int64_t now_ns,
                           absl::optional<int> num_nodes) {
  const int unfed = session.unfed_rows();
  session.prefill_rows = std::min(unfed, max_rows);
  const auto begin =
      session.schedule.committed().begin() + session.sequence->length();
  session.fed.assign(begin, begin + session.prefill_rows);
  session.nodes.clear();
  int verify_rows = 0;
  session.first_logits = logit_rows_;
  // A gate that no tail can open needs no wait: the last prompt rows and the
  // first step share the forward.
  if (unfed == 0 || (unfed < max_rows && session.StepsWithoutTail() &&
                     session.schedule.CheckReady(now_ns) ==
                         TargetSession::Readiness::kReady)) {
    verify_rows = BeginVerify(session, now_ns, num_nodes);
  }
  PlanDraws(session, verify_rows);
  stepping_.push_back(&session);
  const int num_logits = std::max(verify_rows, 1);
  model::SequenceRows rows;
  rows.sequence = session.sequence.get();
  rows.token_ids = session.fed;
  rows.num_logits = num_logits;
  rows.draws = session.draws;
  rows.nodes = session.nodes;
  batch_.push_back(rows);
  batch_rows_ += session.prefill_rows + verify_rows;
  verify_rows_ += verify_rows;
  logit_rows_ += num_logits;
}

void TargetEngine::NoteDraftWait(Session& session,
                                 absl::optional<int64_t> deadline_ns,
                                 int64_t now_ns, worker::StepOutcome* outcome) {
  NoteWait(session, Span::Kind::kWaitDraftTokens, now_ns);
  if (deadline_ns.has_value() && (!outcome->deadline_ns.has_value() ||
                                  *deadline_ns < *outcome->deadline_ns)) {
    outcome->deadline_ns = deadline_ns;
  }
}

}  // namespace nacre::target_worker
