// A generation request after validation, and its answer: plain values between
// the public API (inference_service) and the sessions.

#ifndef COORDINATOR_DISPATCH_REQUEST_H_
#define COORDINATOR_DISPATCH_REQUEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "common/sampling_params.h"
#include "common/token_logprobs.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/fleet/prompt_prefixes.h"
#include "coordinator/fleet/worker_info.h"
#include "speculation/pipeline.h"
#include "speculation/policies/policy_spec.h"
#include "speculation/session_schedule.h"
#include "speculation/suffix_index.h"
#include "speculation/tree_shape.h"

namespace nacre::coordinator {

// What the choices of one call share. Under the dispatcher's lock.
struct CallPlacement {
  std::string numerics_id;  // of the first one's target, once it runs
  int num_started = 1;      // choices that came to run together
};

// What the client wants of the answer.
struct AnswerOptions {
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  int min_tokens = 0;  // at most the request's max_tokens
  bool include_stop_string = false;
  bool stream = false;
  bool omit_streamed = false;  // from the Complete; with stream only
  bool skip_special_tokens = true;
  bool trace = false;
  bool trace_chunks = false;  // with stream only
  // Likeliest tokens to report beside each generated one; absent: no logprobs.
  absl::optional<int> logprobs;
  absl::optional<int> prompt_logprobs;  // likewise of the prompt
  bool detailed_stats = false;
};

struct Completion;

// One choice of an answer that was cut off, as far as its client has it.
struct ResumedChoice {
  std::vector<int32_t> token_ids;
  bool done = false;  // its client has all of it: nothing is said of it
  // Where the tokens end it, which leaves nothing to compute; null: they do
  // not.
  std::shared_ptr<const Completion> ended = nullptr;
};

// How it is drafted.
struct DraftingOptions {
  speculation::Method method = speculation::Method::kAsync;
  absl::optional<int> window;
  speculation::Verification verification = speculation::Verification::kExact;
  speculation::Ablation ablation = speculation::Ablation::kNone;  // of pearl
  speculation::PolicySpec policy;
  // The owner of the texts whose suffixes its target also drafts from; all
  // zeros: this request's text only. Absent: it drafts from none.
  absl::optional<speculation::TextOwner> suffixes = {};
  std::vector<int32_t> oracle_ids = {};  // the recorded answer; oracle only
  speculation::TreeSpec tree = speculation::TreeShape::kChain;
  // As of DispatcherOptions, where `tree` has branches. Else 1.
  int draft_rows = 1;
  int tree_rows = 0;  // as of DispatcherOptions
  // Whether the service has had a draft. Where it never had, none is missing.
  bool expects_draft = true;

  // Whether a step without a draft is degraded.
  bool wants_draft() const {
    return method != speculation::Method::kAr && expects_draft;
  }
};

// As what drafts of a session may read its target's tensors: random, so that
// only those that are told can name them. 0: none are to be read.
struct TensorChannels {
  uint64_t hidden = 0;  // hidden states, for its length policy
  uint64_t kv = 0;      // keys and values, for drafts over those
};

struct RequestSpec : AnswerOptions, DraftingOptions {
  // Unique among running calls. A call for several choices is as many requests
  // of one id: first_choice comes first and must find it free.
  std::string request_id;
  int num_choices = 1;
  int choice = 0;                       // < num_choices
  int first_choice = 0;                 // the first that is to run
  std::shared_ptr<CallPlacement> call;  // null: it is the only choice
  std::vector<int32_t> prompt_ids;      // at least one
  std::vector<PromptPrefix> prefixes;   // of prompt_ids; empty: not looked at
  int max_tokens = 0;                   // >= 1, fits the context
  SamplingParams sampling;
  // Of the checkpoint that these ids and limits were checked against; empty:
  // any.
  std::string fingerprint;
  // Of the targets that may run it; empty: any. Once it runs, its target's.
  std::string numerics_id;
  // On the dispatcher's clock. An arrival of 0 is when the dispatcher gets it.
  int64_t arrival_ns = 0;
  int64_t deadline_ns = kNever;
  // The client's, unchecked (W3C Trace Context); empty: none.
  std::string traceparent;
  std::string tracestate;
  // Of each choice; null: a new answer.
  std::shared_ptr<const std::vector<ResumedChoice>> resume = nullptr;

  // What was generated of this choice before this request.
  absl::Span<const int32_t> resumed_ids() const {
    if (resume == nullptr) return {};
    return (*resume)[choice].token_ids;
  }
};

enum class Finish { kEos, kStop, kLength };

// One target step of a session.
struct Round {
  int drafted = 0;  // draft tokens verified
  int accepted = 0;
};

struct TraceLane {
  WorkerRole role = WorkerRole::kTarget;
  std::string address;
  int64_t clock_offset_ns = 0;
  std::vector<SpanRecord> spans;
};

// How a token came about: see proto/inference.proto.
enum class TokenOrigin { kTarget, kDraft, kBranch, kSuffix };

struct ChunkTrace {
  std::vector<TokenOrigin> origins;  // of the chunk's tokens
  std::vector<int> text_bytes;       // of its text, by token
  int window = 0;
  int verified = 0;
  int accepted = 0;
  bool degraded = false;
  std::vector<TraceLane> lanes;  // what was heard of since the chunk before
};

struct Chunk {
  int first_index = 0;
  std::vector<int32_t> token_ids;
  std::string text;
  std::vector<TokenLogprobs> logprobs = {};  // of token_ids, if asked for
  std::string numerics_id = {};              // of the first: its target's
  absl::optional<ChunkTrace> trace = {};     // if asked for
  // Of the prompt after its first token, in the first chunk, if asked for.
  std::vector<TokenLogprobs> prompt_logprobs = {};
};

// What the target said of the prompt after its first token, if asked for.
struct ScoredPrompt {
  std::vector<TokenLogprobs> prompt_logprobs;
};

// Where a request's time went (Timing in proto/inference.proto).
struct SpentTime {
  int64_t total_ns = 0;
  int64_t queue_ns = 0;  // from its arrival until it ran
  int64_t time_to_first_token_ns = 0;
  int64_t draft_busy_ns = 0;
  int64_t draft_wait_ns = 0;
  int64_t target_busy_ns = 0;
  int64_t target_wait_ns = 0;
  int64_t target_wait_after_miss_ns = 0;  // of target_wait_ns
};

struct Completion : ScoredPrompt, SpentTime {
  Finish finish = Finish::kLength;
  std::string stop_match;
  std::string text;
  std::vector<int32_t> token_ids;
  std::string numerics_id;   // of its targets
  int cached_tokens = 0;     // of the prompt
  int64_t hidden_bytes = 0;  // of hidden states that its drafts took
  int64_t hidden_ns = 0;     // for which they were missing there
  speculation::SpeculationStats stats;
  int window = 0;
  std::string policy;  // that ran, and what it went without; empty: ar
  double alpha = 0.0;
  double cost_ratio = 0.0;
  std::vector<int64_t> step_gaps_ns;
  std::vector<TraceLane> trace;
  std::vector<TokenLogprobs> logprobs;  // of those that are new, if asked for
  std::vector<int64_t> acceptance_histogram;  // [accepted]: rounds
  std::vector<Round> rounds;                  // with detailed_stats
};

// Where a session's output goes: the client's call. Called without the
// dispatcher's lock, by one thread at a time, in order; never blocks. Any
// thread calls pending_chunks and taken_chunks at any time, under that lock,
// too: they read a number.
class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  virtual void OnChunk(const Chunk& chunk) = 0;
  // Exactly one of the two, last.
  virtual void OnComplete(const RequestSpec& request,
                          const Completion& completion) = 0;
  virtual void OnError(const absl::Status& status) = 0;
  // Chunks not yet handed to the transport: back-pressure.
  virtual int pending_chunks() const = 0;
  // Chunks that the transport has ever taken, other choices' included: grows as
  // long as the client reads.
  virtual int64_t taken_chunks() const = 0;
  // What has not been taken will not be: OnError follows, and it does not wait
  // for the client.
  virtual void Abandon() {}
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_REQUEST_H_
