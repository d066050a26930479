// How the draft engine applies what its streams tell it.

#include <algorithm>
#include <memory>
#include <utility>

#include "draft_worker/draft_engine.h"
#include "draft_worker/engine_session.h"
#include "draft_worker/open_session.h"
#include "worker/engine/token_ids.h"

namespace nacre::draft_worker {

using speculation::DraftSession;

void DraftEngine::ApplyToSessions(DraftCommands& commands) {
  const worker::StreamId stream = commands.stream;
  for (const auto& [id, plan] : commands.plans) {
    if (Session* session = Find(stream, id)) {
      session->schedule.OnPlan(plan);
      session->touched = true;
    }
  }
  for (const auto& [id, commit] : commands.commits) {
    if (Session* session = Find(stream, id)) ApplyCommit(*session, commit);
  }
  for (worker::ReceivedTensor& received : commands.tensors) {
    if (!rows_.OnArrived(received)) hidden_.OnArrived(std::move(received));
  }
  for (const LostChannel& lost : commands.tensors_lost) {
    if (!rows_.OnLost(lost)) hidden_.OnLost(lost);
  }
}

absl::StatusOr<std::unique_ptr<EngineSession>> DraftEngine::NewSession(
    OpenDraft& open) {
  SessionParts parts;
  parts.drafter = drafter_.get();
  parts.policies =
      options_.policies != nullptr ? options_.policies : &no_files_;
  parts.scratch = &scratch_;
  parts.is_recorded = tap_ != nullptr;
  parts.can_read_hidden = hidden_.CanRead(open);
  return OpenSession(open, parts);
}

void DraftEngine::OnOpened(Session& session, OpenDraft& open) {
  rows_.Subscribe(session, open);
  hidden_.Subscribe(session, open);
}

void DraftEngine::OnClosing(worker::EngineSession& closing) {
  auto& session = static_cast<Session&>(closing);
  if (tap_ != nullptr) tap_->OnClosed(session.tapped());
  rows_.Unsubscribe(session);
  hidden_.Unsubscribe(session);
}

void DraftEngine::ApplyCommit(Session& session,
                              const speculation::Commit& commit) {
  const int vocab_size = drafter_->info().vocab_size;
  if (absl::Status status =
          worker::CheckTokenIds("commit", commit.token_ids, vocab_size);
      !status.ok()) {
    // The target's vocabulary has ids that this model cannot be fed.
    table_.Fail(session, std::move(status));
    return;
  }
  const int num_ids = static_cast<int>(commit.token_ids.size());
  const DraftSession& schedule = session.schedule;
  // The first position where the commit and the draft differ; KV after it is
  // of other tokens.
  int kept = schedule.length();
  if (commit.first_position >= 0) {
    for (int i =
             std::max(0, schedule.committed_length() - commit.first_position);
         i < num_ids && commit.first_position + i < kept; ++i) {
      const int position = commit.first_position + i;
      if (schedule.tokens()[position] != commit.token_ids[i]) kept = position;
    }
  }
  const int length_before = schedule.length();
  switch (session.schedule.OnCommit(commit)) {
    case DraftSession::CommitOutcome::kRepeated:
    case DraftSession::CommitOutcome::kMalformed:
      ++accounts_.counts().rejected_messages;
      return;
    case DraftSession::CommitOutcome::kMatched:
    case DraftSession::CommitOutcome::kMismatch:
      break;
  }
  session.touched = true;
  if (session.length.has_value()) session.length->OnCommit(session.schedule);
  if (session.hidden.has_value()) hidden_.Renew(session);
  if (session.seen.has_value()) rows_.OnCommit(session);
  const DraftSession::CommitReport& report = schedule.last_commit();
  session.untold_ranks.insert(session.untold_ranks.end(), report.ranks.begin(),
                              report.ranks.end());
  session.untold_prepared += report.prepared;
  if (tap_ != nullptr) {
    tap_->OnVerdict(session.tapped(), report.accepted, report.rejected);
  }
  if (session.schedule.tree() != nullptr) {
    KeepTree(session);
    return;
  }
  if (kept < length_before || schedule.length() != length_before) {
    session.cut = true;
  }
  session.history.Truncate(std::min(kept, session.history.length()));
  // The running step may have fed the last token already; it stays for the
  // token that is about to be drawn after it.
  accounts_.TruncateKv(session, kept);
}

void DraftEngine::KeepTree(Session& session) {
  const speculation::DraftTree& tree = *session.schedule.tree();
  speculation::ScoreCalibration& calibration =
      calibrations_.At(session.temperature);
  for (const speculation::DraftTree::Judged& judged : tree.judged()) {
    if (session.ranks_by_q) break;  // their scores are probabilities
    calibration.Add({judged.scores.data(), static_cast<size_t>(judged.count)},
                    judged.rank);
  }
  const int length = session.schedule.kept_length();
  accounts_.TruncateKv(session, length);
  if (tree.kept_slots().empty()) return;
  absl::Status status = session.sequence->KeepPath(length, tree.kept_slots());
  if (!status.ok()) table_.Fail(session, std::move(status));
}

void DraftEngine::SendStopNotices() {
  for (Session& session : sessions_) {
    if (!std::exchange(session.touched, false) || session.closing) continue;
    absl::optional<speculation::Tail> notice =
        session.schedule.TakeStopNotice();
    if (notice.has_value()) {
      events_.For(session.stream)
          .tails.push_back({session.id, *std::move(notice)});
    }
  }
}

}  // namespace nacre::draft_worker
