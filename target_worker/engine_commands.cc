// How the target engine applies what its streams tell it.

#include <algorithm>
#include <memory>
#include <utility>

#include "target_worker/engine_session.h"
#include "target_worker/open_session.h"
#include "target_worker/target_engine.h"
#include "worker/engine/token_ids.h"

namespace nacre::target_worker {

using speculation::TargetSession;

namespace {

// A century: added to a time it does not overflow.
constexpr int64_t kNoTimeoutNs = int64_t{100} * 365 * 24 * 3600 * 1'000'000'000;

void CountFates(const speculation::DraftBuffer::Fates& fates,
                worker::EngineStats* stats) {
  stats->placed_nodes += static_cast<uint64_t>(fates.placed);
  stats->late_nodes +=
      static_cast<uint64_t>(fates.committed + fates.contradicted);
  stats->stale_nodes += static_cast<uint64_t>(fates.stale);
}

}  // namespace

speculation::TargetPlan TargetEngine::Followed(
    speculation::TargetPlan plan) const {
  if (!options_.gate_timeouts) plan.gate_timeout_ns = kNoTimeoutNs;
  return plan;
}

void TargetEngine::ApplyToSessions(TargetCommands& commands) {
  const worker::StreamId stream = commands.stream;
  for (const auto& [id, plan] : commands.plans) {
    if (Session* session = Find(stream, id)) {
      session->schedule.OnPlan(Followed(plan));
      session->gate_after_mismatch = plan.gate_after_mismatch;
    }
  }
  for (const auto& [id, committed_length] : commands.acknowledged) {
    if (Session* session = Find(stream, id)) {
      session->schedule.OnAcknowledged(committed_length);
    }
  }
  for (const uint64_t id : commands.draft_lost) {
    if (Session* session = Find(stream, id)) {
      session->schedule.OnDraftLost();
      session->has_draft = false;
    }
  }
  for (const auto& [id, epoch, opened_length] : commands.draft_attached) {
    Session* session = Find(stream, id);
    if (session == nullptr) continue;
    if (opened_length < 1) {
      ++accounts_.counts().rejected_messages;
      continue;
    }
    session->schedule.OnDraftAttached(epoch, opened_length);
    session->has_draft = true;
    session->hidden.epoch = std::max(session->hidden.epoch, epoch);
  }
  for (const auto& [id, tail] : commands.tails) {
    if (Session* session = Find(stream, id)) ApplyTail(*session, tail);
  }
}

absl::StatusOr<std::unique_ptr<EngineSession>> TargetEngine::NewSession(
    OpenTarget& open) {
  return OpenSession(open, Followed(open.plan),
                     {.model = options_.model,
                      .scratch = &scratch_,
                      .is_recorded = options_.features != nullptr});
}

void TargetEngine::OnOpened(Session& session, OpenTarget& open) {
  suffixes_.Open(session, open);
  heads_.Open(session, open);
  features_.Open(session, open);
  shelf_.Open(session, open);
}

void TargetEngine::OnClosing(worker::EngineSession& session) {
  Session& closing = static_cast<Session&>(session);
  suffixes_.Remember(closing);
  heads_.Close(closing);
  features_.Close(closing);
  shelf_.Close(closing);
}

void TargetEngine::ApplyTail(Session& session, const speculation::Tail& tail) {
  // What is verified is fed: an id outside the vocabulary must not get there.
  if (!worker::CheckTokenIds("tail", tail.token_ids,
                             options_.model->info().vocab_size)
           .ok()) {
    ++accounts_.counts().rejected_messages;
    return;
  }
  speculation::DraftBuffer::Fates fates;
  const TargetSession::TailOutcome outcome =
      session.schedule.OnTail(tail, &fates);
  CountFates(fates, &accounts_.counts());
  switch (outcome) {
    case TargetSession::TailOutcome::kApplied:
    case TargetSession::TailOutcome::kMismatch:
      return;
    case TargetSession::TailOutcome::kStale:
    case TargetSession::TailOutcome::kMalformed:
      ++accounts_.counts().rejected_messages;
      return;
  }
}

}  // namespace nacre::target_worker
