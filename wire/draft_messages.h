// What a draft is told and what it tells, as plain values.
//
// The fields are those of DraftControl and DraftEvent (proto/worker.proto).

#ifndef WIRE_DRAFT_MESSAGES_H_
#define WIRE_DRAFT_MESSAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "common/sampling_params.h"
#include "speculation/pipeline.h"
#include "wire/kv_report.h"
#include "wire/session_events.h"
#include "wire/target_messages.h"

namespace nacre::wire {

struct OpenDraft {
  // Of Decode, not OK: the message says what cannot be; the session is refused.
  absl::Status refusal;
  uint64_t session_id = 0;
  std::string request_id = {};  // for the log
  uint32_t epoch = 0;
  std::vector<int32_t> token_ids;  // prompt and what was emitted
  int prompt_length = 0;
  int max_length = 0;  // the sequence never grows beyond
  SamplingParams sampling;
  std::vector<int32_t> end_token_ids;
  int min_tokens = 0;   // no end_token_ids among the first
  int vocab_limit = 0;  // only ids below are drawn; 0: the whole vocabulary
  speculation::DraftPlan plan;
  int num_slots = 0;        // for branches; 0: a chain
  std::string policy = {};  // NAME[:key=value,...]; empty: the plan's
  std::vector<int32_t> oracle_token_ids = {};
  std::string target_fingerprint = {};  // empty: not known
  speculation::Verification verification = speculation::Verification::kExact;
  // Where the target's tensors are read; as what its hidden states, and as what
  // its keys and values; 0: not.
  std::string hidden_address = {};
  uint64_t hidden_channel = 0;
  uint64_t kv_channel = 0;
  bool tells_candidates = false;  // in its spans

  bool operator==(const OpenDraft&) const = default;
};

struct DraftCommands {
  struct SessionCommit {
    uint64_t session_id = 0;
    speculation::Commit commit;
    bool operator==(const SessionCommit&) const = default;
  };
  struct UpdatePlan {
    uint64_t session_id = 0;
    speculation::DraftPlan plan;
    bool operator==(const UpdatePlan&) const = default;
  };

  // Applied in this order.
  absl::optional<std::vector<uint64_t>> kept;  // sessions: no other remains
  std::vector<OpenDraft> open;
  std::vector<UpdatePlan> plans;
  std::vector<SessionCommit> commits;
  std::vector<uint64_t> close;
  absl::optional<uint64_t> ping_ns;  // the coordinator's time
  uint64_t coordinator = 0;          // which one pings
  absl::optional<KvReport> kv_report = {};
  std::vector<Malformed> malformed;  // of Decode only

  bool operator==(const DraftCommands&) const = default;
};

struct DraftEvents {
  SessionEvents common;
  std::vector<SessionTail> tails;
  std::vector<PolicyNote> policy_notes;
  std::vector<SessionRanks> ranks = {};

  bool empty() const {
    return common.empty() && tails.empty() && policy_notes.empty() &&
           ranks.empty();
  }
  bool operator==(const DraftEvents&) const = default;
};

}  // namespace nacre::wire

#endif  // WIRE_DRAFT_MESSAGES_H_
