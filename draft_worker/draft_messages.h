// What the draft engine is told and what it tells, without gRPC or protobuf.
//
// Plain values.

#ifndef DRAFT_WORKER_DRAFT_MESSAGES_H_
#define DRAFT_WORKER_DRAFT_MESSAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "common/sampling_params.h"
#include "speculation/pipeline.h"
#include "worker/events.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::draft_worker {

struct OpenDraft {
  // Not OK: the message could not be expressed here; the session is refused.
  absl::Status conversion;
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
  std::string policy = {};  // NAME[:key=value,...]; empty: the plan's
  std::vector<int32_t> oracle_token_ids = {};
  std::string target_fingerprint = {};  // empty: not known
  speculation::Verification verification = speculation::Verification::kExact;
  // Where the target's hidden states are read, and as what; 0: nowhere.
  std::string hidden_address = {};
  uint64_t hidden_channel = 0;
};

// Values straight from a peer: the engine checks them.
struct DraftCommands {
  struct SessionCommit {
    uint64_t session_id = 0;
    speculation::Commit commit;
  };
  struct UpdatePlan {
    uint64_t session_id = 0;
    speculation::DraftPlan plan;
  };

  worker::StreamId stream = 0;
  bool stream_ended = false;  // closes all sessions of the stream
  // Applied in this order.
  absl::optional<std::vector<uint64_t>> kept;  // sessions: no other remains
  std::vector<OpenDraft> open;
  std::vector<UpdatePlan> plans;
  std::vector<SessionCommit> commits;
  std::vector<uint64_t> close;
  // Parts of the message that could not even be expressed here.
  int num_malformed = 0;
  // Of no stream: the targets' hidden states, and channels that bring no more.
  std::vector<worker::ReceivedTensor> hidden;
  std::vector<uint64_t> hidden_lost;
};

struct DraftEvents {
  struct SessionTail {
    uint64_t session_id = 0;
    speculation::Tail tail;
  };
  worker::SessionEvents common;
  std::vector<SessionTail> tails;
  std::vector<worker::PolicyNote> policy_notes;

  bool empty() const {
    return common.empty() && tails.empty() && policy_notes.empty();
  }
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_DRAFT_MESSAGES_H_
