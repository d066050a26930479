// What workers tell of their sessions: the part that both kinds have.
//
// Plain values, without protobuf. Times: nanoseconds of the worker's monotonic
// clock. START HERE in wire/, then target_messages.h, draft_messages.h and
// session_codec.h.

#ifndef WIRE_SESSION_EVENTS_H_
#define WIRE_SESSION_EVENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"

namespace nacre::wire {

// What a worker says of its times and rows counts as this at most.
inline constexpr int64_t kMaxDurationNs = 3'600'000'000'000;
inline constexpr int kMaxRows = 1 << 20;

// A token that a draft considered, and its perturbed score.
struct Candidate {
  int32_t token_id = 0;
  float score = 0;

  bool operator==(const Candidate&) const = default;
};

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
  int batch_sessions = 0;                  // in the step, this one included
  int64_t bytes = 0;                       // kHidden
  bool abandoned = false;                  // kDraft, kPrefill: cut short
  bool after_miss = false;                 // kWaitDraftTokens
  std::vector<Candidate> candidates = {};  // kDraft, if asked for: of its token

  bool operator==(const Span&) const = default;
};

// The session has failed and is closed.
struct SessionFailure {
  uint64_t session_id = 0;
  absl::Status status;
  uint32_t epoch = 0;  // of a draft's session: the one it was opened with

  bool operator==(const SessionFailure&) const = default;
};

struct SessionOpening {
  uint64_t session_id = 0;
  int cached_tokens = 0;  // of its tokens, found in the prefix cache
  // Of a draft: what its length policy has to go without; empty: nothing.
  std::string policy_note = {};

  bool operator==(const SessionOpening&) const = default;
};

// More cached tokens of an open session: another one has computed them since.
struct SessionCached {
  uint64_t session_id = 0;
  int tokens = 0;

  bool operator==(const SessionCached&) const = default;
};

// What an open session of a draft has to go without from now on.
struct PolicyNote {
  uint64_t session_id = 0;
  std::string note;

  bool operator==(const PolicyNote&) const = default;
};

// What a draft's open session learnt of a commit: ranks of the target's tokens
// among its candidates, 1 to speculation::kBeyond.
struct SessionRanks {
  uint64_t session_id = 0;
  uint32_t epoch = 0;
  std::vector<int> ranks;
  int prepared = 0;  // of those above 1: a branch went on after the token

  bool operator==(const SessionRanks&) const = default;
};

// The answer to a ping.
struct Pong {
  uint64_t coordinator_ns = 0;  // the ping's
  int64_t worker_ns = 0;
  uint64_t attachment = 0;  // of the pinging coordinator's; 0: none yet

  bool operator==(const Pong&) const = default;
};

// What Decode left out of a message: it changes nothing and is counted.
struct Malformed {
  uint64_t session_id = 0;
  absl::Status status;  // INVALID_ARGUMENT: the field, its value and the limit

  bool operator==(const Malformed&) const = default;
};

// The part of its events that both workers have.
struct SessionEvents {
  std::vector<SessionOpening> opened;
  std::vector<SessionCached> cached;
  std::vector<SessionFailure> failures;
  std::vector<uint64_t> closed;
  std::vector<Span> spans;
  absl::optional<Pong> pong = {};
  std::vector<Malformed> malformed = {};  // of Decode only

  // Whether nothing is said of any session.
  bool empty() const {
    return opened.empty() && cached.empty() && failures.empty() &&
           closed.empty() && spans.empty() && malformed.empty();
  }
  bool operator==(const SessionEvents&) const = default;
};

}  // namespace nacre::wire

#endif  // WIRE_SESSION_EVENTS_H_
