#include "target_worker/target_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "target_worker/engine_session.h"
#include "worker/common_prefix.h"
#include "worker/session_log.h"

namespace nacre::target_worker {

using speculation::TargetSession;
using wire::Span;
using worker::WorkerState;

TargetEngine::TargetEngine(Options options)
    : Engine(options.now_ns),
      options_(std::move(options)),
      outbox_(options_.send),
      soundness_(options_.model) {
  Publish();
}

TargetEngine::~TargetEngine() = default;

absl::StatusOr<worker::StepOutcome> TargetEngine::RunOnce() {
  TakeCommands();
  EndHolds(now_ns_());
  // Before the events: who has heard of a session finds it in the stats.
  Publish();
  outbox_.Flush();
  const int64_t start_ns = now_ns_();
  const worker::StepOutcome outcome = PlanStep(start_ns);
  if (!outcome.stepped) {
    Publish();
    outbox_.Flush();
    return outcome;
  }
  monitor_.Enter(verify_rows_ * 2 >= batch_rows_ ? WorkerState::kVerify
                                                 : WorkerState::kPrefill,
                 start_ns);
  Deliver(worker::Delivery::kElsewhere);
  const absl::StatusOr<absl::Span<const float>> logits =
      options_.model->Forward(batch_);
  ++steps_;
  if (!logits.ok()) {
    FailStep(logits.status());
    return logits.status();
  }
  SampleAll(*logits);
  soundness_.EndStep();
  const int64_t end_ns = now_ns_();
  // Tails that arrived meanwhile may hold the token behind the last row.
  in_step_ = true;
  TakeCommands();
  in_step_ = false;
  for (Session* session : stepping_) FinishStep(*session, start_ns, end_ns);
  RemoveClosed();
  const absl::Status judged = soundness_.Judge();
  Publish();
  outbox_.Flush();
  if (!judged.ok()) return judged;
  return outcome;
}

worker::StepOutcome TargetEngine::PlanStep(int64_t now_ns) {
  stepping_.clear();
  batch_.clear();
  prefilling_.clear();
  batch_rows_ = verify_rows_ = logit_rows_ = 0;
  hidden_ = {};
  for (const auto& session : sessions_) {
    if (session->schedule.finished() || session->unfed_rows() <= 0) continue;
    TakeOver(*session);
    if (session->unfed_rows() > 0) prefilling_.push_back(session.get());
  }
  worker::StepOutcome outcome;
  const WorkerState idle = PlanVerifies(now_ns, &outcome);
  // One that waits for draft tokens will want its next step soon.
  PlanPrefills(!batch_.empty() || idle == WorkerState::kWaitDraftTokens,
               now_ns);
  outcome.stepped = !batch_.empty();
  if (!outcome.stepped) {
    outcome.waits_for_peer = idle == WorkerState::kWaitDraftTokens;
    monitor_.Enter(idle, now_ns);
  }
  return outcome;
}

WorkerState TargetEngine::PlanVerifies(int64_t now_ns,
                                       worker::StepOutcome* outcome) {
  const int max_rows = options_.budget.DecodeRows(!prefilling_.empty());
  WorkerState idle = WorkerState::kNoWork;
  bool full = false;
  const size_t count = sessions_.size();
  const size_t first = count == 0 ? 0 : first_ % count;
  for (size_t i = 0; i < count; ++i) {
    Session& session = *sessions_[(first + i) % count];
    if (session.schedule.finished() || session.unfed_rows() > 0) continue;
    if (session.hold.has_value()) {
      NoteDraftWait(session, session.schedule.hold_deadline_ns(), now_ns,
                    outcome);
      idle = WorkerState::kWaitDraftTokens;
      continue;
    }
    switch (session.schedule.CheckReady(now_ns)) {
      case TargetSession::Readiness::kReady:
        if (batch_rows_ >= max_rows) {
          // The next step begins where this one had no more room.
          if (!std::exchange(full, true)) first_ = (first + i) % count;
        } else {
          AddRows(session, max_rows, now_ns);
        }
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
  }
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

void TargetEngine::TakeOver(Session& session) {
  const int taken = session.sequence->TakeOver(session.schedule.committed());
  if (taken == 0) return;
  prefix_hits_ += static_cast<uint64_t>(taken);
  outbox_.For(session.stream).common.cached.push_back({session.id, taken});
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

void TargetEngine::FailStep(const absl::Status& status) {
  for (Session* session : stepping_) {
    Fail(*session, absl::InternalError(
                       absl::StrCat("the forward failed: ", status.message())));
  }
  RemoveClosed();
  Publish();
  outbox_.Flush();
}

void TargetEngine::Fail(Session& session, absl::Status status) {
  worker::LogSession("session failed", session.request_id, session.id,
                     status.code());
  outbox_.For(session.stream)
      .common.failures.push_back({session.id, std::move(status)});
  Close(session);
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

void TargetEngine::NoteWait(Session& session, Span::Kind kind, int64_t now_ns) {
  if (session.wait.has_value()) {
    if (session.wait->kind == kind) return;
    EndWait(session, now_ns);
  }
  session.wait = Session::Wait{kind, now_ns};
}

void TargetEngine::EndWait(Session& session, int64_t now_ns) {
  if (!session.wait.has_value()) return;
  Span span;
  span.kind = session.wait->kind;
  span.start_ns = session.wait->since_ns;
  span.duration_ns = now_ns - session.wait->since_ns;
  span.length = session.schedule.committed_length();
  AddSpan(session, span);
  session.wait.reset();
}

void TargetEngine::AddSpan(const Session& session, Span span) {
  if (session.closing) return;
  span.session_id = session.id;
  outbox_.For(session.stream).common.spans.push_back(span);
}

void TargetEngine::Publish() {
  worker::EngineStats stats;
  stats.steps = steps_;
  stats.sessions = static_cast<int>(sessions_.size());
  stats.kv_free_tokens = options_.model->kv_free_tokens();
  stats.rejected_messages = rejected_messages_;
  stats.rollback_tokens = rollback_tokens_;
  stats.reaped_sessions = reaped_sessions_;
  stats.kept_lists = kept_lists_;
  stats.prefix_queries = prefix_queries_;
  stats.prefix_hits = prefix_hits_;
  soundness_.FillStats(&stats);
  monitor_.Publish(stats);
}

}  // namespace nacre::target_worker
