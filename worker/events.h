// What both engines tell about their sessions, before it becomes protobuf.
//
// Plain values. Times: nanoseconds of this worker's monotonic clock.

#ifndef WORKER_EVENTS_H_
#define WORKER_EVENTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace nacre::worker {

// One coordinator's stream, numbered by the service.
using StreamId = uint64_t;
// Names a session on this worker: ids are unique on their stream only.
using SessionKey = std::pair<StreamId, uint64_t>;

// See Span in proto/types.proto. A first step that shares its forward with the
// last rows of the prompt has a kPrefill and a kVerify span over one interval.
struct Span {
  enum class Kind {
    kPrefill,
    kDraft,
    kVerify,
    kWaitDraftTokens,
    kWaitVerdict,
    kWaitAcknowledge,
    kRollback,
    kHidden,
  };
  uint64_t session_id = 0;
  Kind kind = Kind::kPrefill;
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  int rows = 0;        // of this session; kRollback: dropped
  int batch_rows = 0;  // of all sessions in the step
  int matched = 0;     // kVerify
  int accepted = 0;    // kVerify
  int length = 0;  // committed (kVerify), of the KV cache (kRollback), of the
                   // sequence with the token drawn (kDraft; 0: none was)
  int batch_sessions = 0;  // in the step, this one included
  int64_t bytes = 0;       // kHidden
  bool abandoned = false;  // kDraft, kPrefill: cut short
};

// The session has failed and is closed.
struct SessionFailure {
  uint64_t session_id = 0;
  absl::Status status;
  uint32_t epoch = 0;  // of a draft's session: the one it was opened with
};

struct SessionOpening {
  uint64_t session_id = 0;
  int cached_tokens = 0;  // of its tokens, found in the prefix cache
  // Of a draft: what its length policy has to go without; empty: nothing.
  std::string policy_note = {};
};

// Further ones of an open session, which another has computed meanwhile.
struct SessionCached {
  uint64_t session_id = 0;
  int tokens = 0;
};

// What an open session of a draft has to go without from now on.
struct PolicyNote {
  uint64_t session_id = 0;
  std::string note;
};

// The part of its events that both workers have.
struct SessionEvents {
  std::vector<SessionOpening> opened;
  std::vector<SessionCached> cached;
  std::vector<SessionFailure> failures;
  std::vector<uint64_t> closed;
  std::vector<Span> spans;

  bool empty() const {
    return opened.empty() && cached.empty() && failures.empty() &&
           closed.empty() && spans.empty();
  }
};

}  // namespace nacre::worker

#endif  // WORKER_EVENTS_H_
