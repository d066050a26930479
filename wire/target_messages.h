// What a target is told and what it tells, as plain values.
//
// The fields are those of TargetControl and TargetEvent (proto/worker.proto).

#ifndef WIRE_TARGET_MESSAGES_H_
#define WIRE_TARGET_MESSAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "common/sampling_params.h"
#include "common/token_logprobs.h"
#include "speculation/pipeline.h"
#include "speculation/suffix_index.h"
#include "wire/kv_report.h"
#include "wire/session_events.h"

namespace nacre::wire {

// Most tokens of which one PromptLogprobs says something.
inline constexpr int kMaxPromptLogprobs = 64;

struct OpenTarget {
  // Of Decode, not OK: the message says what cannot be; the session is refused.
  absl::Status refusal;
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
  uint64_t kv_channel = 0;      // drafts may read its keys as this; 0: not
  int num_slots = 0;            // for rows of a tree; 0: chains
  // Whose texts the target itself drafts from; absent: it drafts nothing.
  absl::optional<speculation::TextOwner> suffixes;
  // Likeliest tokens to report beside each of the prompt from the position on;
  // absent: nothing is said of the prompt.
  absl::optional<int> prompt_logprobs = {};
  int first_prompt_logprob = 0;

  bool operator==(const OpenTarget&) const = default;
};

struct SessionTail {
  uint64_t session_id = 0;
  speculation::Tail tail;

  bool operator==(const SessionTail&) const = default;
};

struct SessionVerdict {
  uint64_t session_id = 0;
  speculation::Verdict verdict;
  std::vector<TokenLogprobs> logprobs = {};  // of its tokens, if asked for

  bool operator==(const SessionVerdict&) const = default;
};

struct PromptLogprobs {
  uint64_t session_id = 0;
  int first_position = 0;  // in the prompt, of the first of
  std::vector<TokenLogprobs> logprobs = {};

  bool operator==(const PromptLogprobs&) const = default;
};

struct TargetCommands {
  struct UpdatePlan {
    uint64_t session_id = 0;
    speculation::TargetPlan plan;
    bool operator==(const UpdatePlan&) const = default;
  };
  struct AttachDraft {
    uint64_t session_id = 0;
    uint32_t epoch = 0;
    int opened_length = 0;
    bool operator==(const AttachDraft&) const = default;
  };
  struct Acknowledge {
    uint64_t session_id = 0;
    int committed_length = 0;
    bool operator==(const Acknowledge&) const = default;
  };

  // Applied in this order.
  absl::optional<std::vector<uint64_t>> kept;  // sessions: no other remains
  std::vector<OpenTarget> open;
  std::vector<UpdatePlan> plans;
  std::vector<Acknowledge> acknowledged;
  std::vector<uint64_t> draft_lost;
  std::vector<AttachDraft> draft_attached;
  std::vector<SessionTail> tails;
  std::vector<uint64_t> close;
  absl::optional<uint64_t> ping_ns;  // the coordinator's time
  uint64_t coordinator = 0;          // which one pings
  absl::optional<KvReport> kv_report = {};
  std::vector<Malformed> malformed;  // of Decode only

  bool operator==(const TargetCommands&) const = default;
};

struct TargetEvents {
  SessionEvents common;
  std::vector<SessionVerdict> verdicts;
  std::vector<PromptLogprobs> prompt_logprobs = {};  // came before the verdicts

  bool empty() const {
    return common.empty() && prompt_logprobs.empty() && verdicts.empty();
  }
  bool operator==(const TargetEvents&) const = default;
};

}  // namespace nacre::wire

#endif  // WIRE_TARGET_MESSAGES_H_
