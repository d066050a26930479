// The account that an engine keeps of its sessions. It notes how their KV grows
// by what others have computed and is cut again. It has the spans of their
// steps and waits, and all counts.
//
// Owned by an engine, used by its thread.

#ifndef WORKER_ENGINE_SESSION_ACCOUNTS_H_
#define WORKER_ENGINE_SESSION_ACCOUNTS_H_

#include <cstdint>
#include <utility>

#include "absl/types/span.h"
#include "wire/session_events.h"
#include "worker/engine/clock.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_session.h"
#include "worker/engine/event_outbox.h"

namespace nacre::worker {

class SessionAccounts {
 public:
  // `outbox` outlives it.
  SessionAccounts(SessionOutbox* outbox, Clock now_ns)
      : outbox_(outbox), now_ns_(std::move(now_ns)) {}

  // An engine plans: until the next plan sessions copy at most so many blocks
  // of what is kept beside the KV cache, all together.
  void BeginPlan(int most_blocks) { blocks_left_ = most_blocks; }
  // What of the session's settled tokens others have computed since its last
  // turn, or is kept beside the KV cache. Where the plan's blocks do not do for
  // that, session.takes_over, and this is to be called again. Called for the
  // session opened first, then the next: each has its turn when those before it
  // have all that they begin with.
  void TakeOver(EngineSession& session, absl::Span<const int32_t> settled);
  // To at most `length` positions.
  void TruncateKv(EngineSession& session, int length);

  // The session waits from now on, if it did not for this. `wait`: its kind,
  // and what else is known of it already.
  void NoteWait(EngineSession& session, wire::Span wait, int64_t now_ns);
  // Tells the span of its wait, if there was one.
  void EndWait(EngineSession& session, int64_t now_ns);
  // Of a session that is being closed nothing is told.
  void AddSpan(const EngineSession& session, wire::Span span);

  // Counts of all sessions; the parts of the engine raise them. What is true of
  // the moment only, and the times, are not kept here.
  EngineStats& counts() { return counts_; }

 private:
  SessionOutbox* const outbox_;
  const Clock now_ns_;
  EngineStats counts_;
  int blocks_left_ = 0;  // of the plan
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_SESSION_ACCOUNTS_H_
