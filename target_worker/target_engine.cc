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

TargetEngine::TargetEngine(Options options)
    : TypedSessionEngine({.canary_model = options.model,
                          .deliver = options.deliver,
                          .spin_ns = options.spin_ns,
                          .now_ns = options.now_ns},
                         options.send),
      options_(std::move(options)),
      taps_(TapsOf(options_)) {
  Publish();
}

TargetEngine::~TargetEngine() = default;

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
  // Tails that arrived meanwhile may hold the token behind the last row.
  TakeCommandsInStep();
  for (Session* session : stepping_) FinishStep(*session, start_ns, end_ns);
}

WorkerState TargetEngine::PlanVerifies(int64_t now_ns,
                                       worker::StepOutcome* outcome) {
  const int max_rows = options_.budget.DecodeRows(!prefilling_.empty());
  WorkerState idle = WorkerState::kNoWork;
  VisitInTurn([&](size_t index) {
    Session& session = this->session(index);
    if (session.schedule.finished() || session.unfed_rows() > 0) return true;
    if (session.hold.has_value()) {
      NoteDraftWait(session, session.schedule.hold_deadline_ns(), now_ns,
                    outcome);
      idle = WorkerState::kWaitDraftTokens;
      return true;
    }
    switch (session.schedule.CheckReady(now_ns)) {
      case TargetSession::Readiness::kReady:
        if (batch_rows_ >= max_rows) return false;
        AddRows(session, max_rows, now_ns);
        break;
      case TargetSession::Readiness::kWaitDraft:
        NoteDraftWait(session, session.schedule.gate_deadline_ns(), now_ns,
                      outcome);
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
  return idle;
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

int TargetEngine::BeginVerify(Session& session, int64_t now_ns) {
  EndWait(session, now_ns);
  const absl::Span<const int32_t> tail = session.schedule.BeginStep();
  session.fed.push_back(session.schedule.committed().back());
  session.fed.insert(session.fed.end(), tail.begin(), tail.end());
  session.verifies = true;
  return static_cast<int>(tail.size()) + 1;
}

void TargetEngine::AddRows(Session& session, int max_rows, int64_t now_ns) {
  const int unfed = session.unfed_rows();
  session.prefill_rows = std::min(unfed, max_rows);
  const auto begin =
      session.schedule.committed().begin() + session.sequence->length();
  session.fed.assign(begin, begin + session.prefill_rows);
  int verify_rows = 0;
  session.first_logits = logit_rows_;
  // A gate that no tail can open needs no wait: the last prompt rows and the
  // first step share the forward.
  if (unfed == 0 || (unfed < max_rows && session.StepsWithoutTail() &&
                     session.schedule.CheckReady(now_ns) ==
                         TargetSession::Readiness::kReady)) {
    verify_rows = BeginVerify(session, now_ns);
  }
  PlanDraws(session, verify_rows);
  stepping_.push_back(&session);
  const int num_logits = std::max(verify_rows, 1);
  batch_.push_back(
      {session.sequence.get(), session.fed, num_logits, session.draws});
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
