// What the target engine is told and what it tells, without gRPC or protobuf.
//
// Plain values.

#ifndef TARGET_WORKER_TARGET_MESSAGES_H_
#define TARGET_WORKER_TARGET_MESSAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "common/sampling_params.h"
#include "common/token_logprobs.h"
#include "speculation/pipeline.h"
#include "worker/events.h"

namespace nacre::target_worker {

struct OpenTarget {
  // Not OK: the message could not be expressed here; the session is refused.
  absl::Status conversion;
  uint64_t session_id = 0;
  std::string request_id = {};     // for the log
  std::vector<int32_t> token_ids;  // prompt and what was emitted before
  int prompt_length = 0;
  int max_tokens = 0;  // counted from the prompt
  SamplingParams sampling;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  int min_tokens = 0;  // counted from the prompt
  // Likeliest tokens to report beside each drawn one; absent: no logprobs.
  absl::optional<int> logprobs;
  speculation::TargetPlan plan;
  uint32_t epoch = 0;
  bool has_draft = false;
  speculation::Verification verification = speculation::Verification::kExact;
  uint64_t hidden_channel = 0;  // hidden states are published as this; 0: not
};

// Values straight from a peer: the engine checks them.
struct TargetCommands {
  struct SessionTail {
    uint64_t session_id = 0;
    speculation::Tail tail;
  };
  struct UpdatePlan {
    uint64_t session_id = 0;
    speculation::TargetPlan plan;
  };
  struct AttachDraft {
    uint64_t session_id = 0;
    uint32_t epoch = 0;
    int opened_length = 0;
  };
  struct Acknowledge {
    uint64_t session_id = 0;
    int committed_length = 0;
  };

  worker::StreamId stream = 0;
  bool stream_ended = false;  // closes all sessions of the stream
  // Applied in this order.
  absl::optional<std::vector<uint64_t>> kept;  // sessions: no other remains
  std::vector<OpenTarget> open;
  std::vector<UpdatePlan> plans;
  std::vector<Acknowledge> acknowledged;
  std::vector<uint64_t> draft_lost;
  std::vector<AttachDraft> draft_attached;
  std::vector<SessionTail> tails;
  std::vector<uint64_t> close;
  // Parts of the message that could not even be expressed here.
  int num_malformed = 0;
};

struct TargetEvents {
  struct SessionVerdict {
    uint64_t session_id = 0;
    speculation::Verdict verdict;
    std::vector<TokenLogprobs> logprobs = {};  // of its tokens, if asked for
  };
  worker::SessionEvents common;
  std::vector<SessionVerdict> verdicts;

  bool empty() const { return common.empty() && verdicts.empty(); }
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_TARGET_MESSAGES_H_
