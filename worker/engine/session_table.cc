#include "worker/engine/session_table.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "worker/engine/session_log.h"

namespace nacre::worker {

absl::Status SessionTable::CheckNew(SessionKey key) const {
  if (!by_key_.contains(key)) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("session ", key.second, " is already open"));
}

void SessionTable::Add(std::unique_ptr<EngineSession> session,
                       size_t num_tokens) {
  const int num_cached = session->sequence->length();
  accounts_->counts().prefix_queries += num_tokens;
  accounts_->counts().prefix_hits += static_cast<uint64_t>(num_cached);
  LogSessionOpened(session->request_id, session->id, num_tokens, num_cached);
  outbox_->Common(session->stream)
      .opened.push_back(
          {session->id, num_cached, std::move(session->opening_note)});
  by_key_[{session->stream, session->id}] = session.get();
  sessions_.push_back(std::move(session));
}

void SessionTable::Reap(StreamId stream, const std::vector<uint64_t>& kept) {
  ++accounts_->counts().kept_lists;
  const absl::flat_hash_set<uint64_t> kept_ids(kept.begin(), kept.end());
  for (const auto& session : sessions_) {
    if (session->stream != stream || session->closing ||
        kept_ids.contains(session->id)) {
      continue;
    }
    ++accounts_->counts().reaped_sessions;
    LogSession("session reaped", session->request_id, session->id);
    outbox_->Common(stream).closed.push_back(session->id);
    Close(*session);
  }
}

void SessionTable::CloseAsTold(EngineSession& session) {
  LogSession("session closed", session.request_id, session.id);
  outbox_->Common(session.stream).closed.push_back(session.id);
  Close(session);
}

void SessionTable::EndStream(StreamId stream) {
  for (const auto& session : sessions_) {
    if (session->stream != stream || session->closing) continue;
    LogSession("session closed", session->request_id, session->id);
    Close(*session);
  }
}

void SessionTable::Fail(EngineSession& session, absl::Status status) {
  LogSession("session failed", session.request_id, session.id, status.code());
  outbox_->Common(session.stream)
      .failures.push_back(
          {session.id, std::move(status), session.failure_epoch});
  Close(session);
}

void SessionTable::Close(EngineSession& session) {
  // A session whose step is running is not touched before it ends.
  session.closing = true;
  closing_ = true;
  by_key_.erase({session.stream, session.id});
  on_closing_(session);
}

void SessionTable::RemoveClosed() {
  if (!std::exchange(closing_, false)) return;
  sessions_.erase(
      std::remove_if(sessions_.begin(), sessions_.end(),
                     [](const std::unique_ptr<EngineSession>& session) {
                       return session->closing;
                     }),
      sessions_.end());
}

}  // namespace nacre::worker
