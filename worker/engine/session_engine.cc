#include "worker/engine/session_engine.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/engine/session_log.h"
#include "worker/engine/token_ids.h"

namespace nacre::worker {

SessionEngine::SessionEngine(Parts parts)
    : Engine(std::move(parts.now_ns)),
      spin_ns_(parts.spin_ns),
      soundness_(parts.canary_model),
      deliver_(std::move(parts.deliver)) {}

absl::StatusOr<StepOutcome> SessionEngine::RunOnce() {
  TakeCommands();
  BeforePlan();
  // Before the events: who has heard of a session finds it in the stats.
  Publish();
  SendEvents();
  const int64_t start_ns = now_ns_();
  batch_rows_ = 0;
  StepOutcome outcome;
  const WorkerState state = Plan(start_ns, &outcome);
  outcome.stepped = batch_rows_ > 0;
  monitor_.Enter(state, start_ns);
  if (!outcome.stepped) {
    Publish();
    SendEvents();
    return outcome;
  }
  Deliver(Delivery::kElsewhere);
  in_forward_ = true;
  const absl::StatusOr<bool> ran = Forward();
  in_forward_ = false;
  const bool abandoned = ran.ok() && !*ran;
  ++(abandoned ? abandoned_steps_ : steps_);
  if (ran.ok()) {
    Finish(start_ns, abandoned);
  } else {
    FailStep(ran.status());
  }
  RemoveClosed();
  absl::Status device = ran.status();
  if (device.ok() && !abandoned) device = soundness_.Judge();
  Publish();
  SendEvents();
  if (!device.ok()) return device;
  return outcome;
}

absl::Status SessionEngine::CheckOpen(
    SessionKey key, const absl::Status& refusal, int prompt_length,
    absl::Span<const int32_t> token_ids) const {
  NACRE_RETURN_IF_ERROR(refusal);
  if (by_key_.contains(key)) {
    return absl::AlreadyExistsError(
        absl::StrCat("session ", key.second, " is already open"));
  }
  const int64_t num_ids = static_cast<int64_t>(token_ids.size());
  if (prompt_length < 1 || prompt_length > num_ids) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt_length ", prompt_length, " is outside 1 to ",
                     num_ids, ", the number of token_ids"));
  }
  return CheckTokenIds("token_ids", token_ids, model_info().vocab_size);
}

void SessionEngine::Add(std::unique_ptr<EngineSession> session,
                        size_t num_tokens) {
  const int num_cached = session->sequence->length();
  prefix_queries_ += num_tokens;
  prefix_hits_ += static_cast<uint64_t>(num_cached);
  LogSessionOpened(session->request_id, session->id, num_tokens, num_cached);
  EventsOf(session->stream)
      .opened.push_back(
          {session->id, num_cached, std::move(session->opening_note)});
  by_key_[{session->stream, session->id}] = session.get();
  sessions_.push_back(std::move(session));
}

void SessionEngine::Reap(StreamId stream, const std::vector<uint64_t>& kept) {
  ++kept_lists_;
  const absl::flat_hash_set<uint64_t> kept_ids(kept.begin(), kept.end());
  for (const auto& session : sessions_) {
    if (session->stream != stream || session->closing ||
        kept_ids.contains(session->id)) {
      continue;
    }
    ++reaped_sessions_;
    LogSession("session reaped", session->request_id, session->id);
    EventsOf(stream).closed.push_back(session->id);
    Close(*session);
  }
}

void SessionEngine::CloseAsTold(EngineSession& session) {
  LogSession("session closed", session.request_id, session.id);
  EventsOf(session.stream).closed.push_back(session.id);
  Close(session);
}

void SessionEngine::EndStream(StreamId stream) {
  for (const auto& session : sessions_) {
    if (session->stream != stream || session->closing) continue;
    LogSession("session closed", session->request_id, session->id);
    Close(*session);
  }
}

void SessionEngine::Fail(EngineSession& session, absl::Status status) {
  LogSession("session failed", session.request_id, session.id, status.code());
  EventsOf(session.stream)
      .failures.push_back(
          {session.id, std::move(status), session.failure_epoch});
  Close(session);
}

void SessionEngine::Close(EngineSession& session) {
  // A session whose step is running is not touched before it ends.
  session.closing = true;
  closing_ = true;
  by_key_.erase({session.stream, session.id});
  OnClosing(session);
}

void SessionEngine::RemoveClosed() {
  if (!std::exchange(closing_, false)) return;
  sessions_.erase(
      std::remove_if(sessions_.begin(), sessions_.end(),
                     [](const std::unique_ptr<EngineSession>& session) {
                       return session->closing;
                     }),
      sessions_.end());
}

void SessionEngine::TakeOver(EngineSession& session,
                             absl::Span<const int32_t> settled) {
  const int taken = session.sequence->TakeOver(settled);
  if (taken == 0) return;
  prefix_hits_ += static_cast<uint64_t>(taken);
  EventsOf(session.stream).cached.push_back({session.id, taken});
}

void SessionEngine::TruncateKv(EngineSession& session, int length) {
  const int dropped = session.sequence->length() - length;
  if (dropped <= 0) return;
  session.sequence->Truncate(length);
  rollback_tokens_ += static_cast<uint64_t>(dropped);
  wire::Span span;
  span.kind = wire::Span::Kind::kRollback;
  span.start_ns = now_ns_();
  span.rows = dropped;
  span.length = length;
  AddSpan(session, span);
}

void SessionEngine::NoteWait(EngineSession& session, wire::Span::Kind kind,
                             int64_t now_ns) {
  if (session.wait.has_value()) {
    if (session.wait->kind == kind) return;
    EndWait(session, now_ns);
  }
  session.wait = EngineSession::Wait{kind, now_ns};
}

void SessionEngine::EndWait(EngineSession& session, int64_t now_ns) {
  if (!session.wait.has_value()) return;
  wire::Span span;
  span.kind = session.wait->kind;
  span.start_ns = session.wait->since_ns;
  span.duration_ns = now_ns - session.wait->since_ns;
  span.length = session.num_tokens();
  AddSpan(session, span);
  session.wait.reset();
}

void SessionEngine::AddSpan(const EngineSession& session, wire::Span span) {
  if (session.closing) return;
  span.session_id = session.id;
  EventsOf(session.stream).spans.push_back(span);
}

void SessionEngine::Publish() {
  EngineStats stats;
  stats.steps = steps_;
  stats.abandoned_steps = abandoned_steps_;
  const model::QueuedSteps queued = queued_steps();
  stats.queued_steps_used = queued.used;
  stats.queued_steps_dropped = queued.dropped;
  stats.sessions = static_cast<int>(sessions_.size());
  stats.kv_free_tokens = kv_free_tokens();
  stats.rejected_messages = rejected_messages_;
  stats.rollback_tokens = rollback_tokens_;
  stats.reaped_sessions = reaped_sessions_;
  stats.kept_lists = kept_lists_;
  stats.prefix_queries = prefix_queries_;
  stats.prefix_hits = prefix_hits_;
  stats.suffix_proposed = suffix_proposed_;
  stats.suffix_accepted = suffix_accepted_;
  soundness_.FillStats(&stats);
  monitor_.Publish(stats);
}

}  // namespace nacre::worker
