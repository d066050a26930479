// What a worker said of itself when it attached, and what it did since. Plain
// values: the wire's types stop at registry_service and grpc_worker_client.

#ifndef COORDINATOR_WORKER_INFO_H_
#define COORDINATOR_WORKER_INFO_H_

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/token_logprobs.h"
#include "speculation/pipeline.h"

namespace nacre::coordinator {

enum class WorkerRole { kDraft, kTarget };

// What a worker says of its times and rows counts as this at most.
inline constexpr int64_t kMaxDurationNs = 3'600'000'000'000;
inline constexpr int kMaxRows = 1 << 20;

// The sum of two that are not negative, or the largest number: a worker may
// speak of any number of hours.
inline int64_t AddCapped(int64_t a, int64_t b) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return a > kMost - b ? kMost : a + b;
}

struct WorkerInfo {
  WorkerRole role = WorkerRole::kTarget;
  std::string address;      // host:port that we dial
  std::string incarnation;  // new at each start of the process
  std::string fingerprint;
  std::string numerics_id;
  std::string model_name;
  int model_vocab_size = 0;
  int tokenizer_vocab_size = 0;
  int context_length = 0;
  std::vector<int32_t> eos_token_ids;
  int64_t kv_capacity_tokens = 0;                      // 0: not told
  std::vector<std::pair<int, int64_t>> step_times_ns;  // (rows, duration)
  // Of a draft: length policies that it has a calibration for, each with the
  // fingerprint of the target that it was made with.
  std::vector<std::pair<std::string, std::string>> policy_files = {};
  bool abandons_steps = false;  // a draft, when a verdict makes one pointless
};

// One stretch of a worker's time spent on a session (proto/types.proto, Span).
struct SpanRecord {
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
  int rows = 0;
  int batch_rows = 0;
  int matched = 0;
  int accepted = 0;
  int length = 0;
  int batch_sessions = 0;
  int64_t bytes = 0;
  bool abandoned = false;
};

// One message of a worker, as values.
struct WorkerEvents {
  struct SessionVerdict {
    uint64_t session_id;
    speculation::Verdict verdict;
    std::vector<TokenLogprobs> logprobs = {};  // of its tokens, if asked for
  };
  std::vector<SessionVerdict> verdicts;
  std::vector<std::pair<uint64_t, speculation::Tail>> tails;
  struct Failure {
    uint64_t session_id;
    int code;  // google.rpc.Code
    std::string message;
    uint32_t epoch = 0;  // of a draft's session; 0: not said
  };
  std::vector<Failure> failures;
  std::vector<uint64_t> closed;  // sessions whose KV is free
  // Sessions that were opened, with how many of their tokens were cached.
  std::vector<std::pair<uint64_t, int>> opened;
  // Sessions of which more tokens have turned out to be cached, and how many.
  std::vector<std::pair<uint64_t, int>> cached;
  std::vector<SpanRecord> spans;
  // Of a draft: sessions whose length policy has to go without something, and
  // what.
  std::vector<std::pair<uint64_t, std::string>> policy_notes;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_WORKER_INFO_H_
