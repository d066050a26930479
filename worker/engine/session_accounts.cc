#include "worker/engine/session_accounts.h"

#include <utility>

namespace nacre::worker {

void SessionAccounts::TakeOver(EngineSession& session,
                               absl::Span<const int32_t> settled) {
  const model::TakenOver taken =
      session.sequence->TakeOver(settled, blocks_left_);
  blocks_left_ -= taken.blocks;
  session.takes_over = taken.more;
  if (taken.positions == 0) return;
  counts_.prefix_hits += static_cast<uint64_t>(taken.positions);
  counts_.prefix_brought += static_cast<uint64_t>(taken.brought);
  outbox_->Common(session.stream)
      .cached.push_back({session.id, taken.positions});
}

void SessionAccounts::TruncateKv(EngineSession& session, int length) {
  const int dropped = session.sequence->length() - length;
  if (dropped <= 0) return;
  session.sequence->Truncate(length);
  counts_.rollback_tokens += static_cast<uint64_t>(dropped);
  wire::Span span;
  span.kind = wire::Span::Kind::kRollback;
  span.start_ns = now_ns_();
  span.rows = dropped;
  span.length = length;
  AddSpan(session, span);
}

void SessionAccounts::NoteWait(EngineSession& session, wire::Span wait,
                               int64_t now_ns) {
  if (session.wait.has_value()) {
    wait.start_ns = session.wait->start_ns;
    if (wait == *session.wait) return;
    EndWait(session, now_ns);
  }
  wait.start_ns = now_ns;
  session.wait = std::move(wait);
}

void SessionAccounts::EndWait(EngineSession& session, int64_t now_ns) {
  if (!session.wait.has_value()) return;
  wire::Span span = *std::move(session.wait);
  session.wait.reset();
  span.duration_ns = now_ns - span.start_ns;
  span.length = session.num_tokens();
  AddSpan(session, std::move(span));
}

void SessionAccounts::AddSpan(const EngineSession& session, wire::Span span) {
  if (session.closing) return;
  span.session_id = session.id;
  outbox_->Common(session.stream).spans.push_back(std::move(span));
}

}  // namespace nacre::worker
