// What a worker says of itself when it attaches, as plain values.

#ifndef WIRE_HELLO_H_
#define WIRE_HELLO_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace nacre::wire {

// Version of the protocol between coordinator and workers that this code
// speaks. 2: tails and verdicts may be of trees. 3: targets tell
// log-probabilities of prompts.
inline constexpr uint32_t kProtocolVersion = 3;

enum class WorkerRole { kDraft, kTarget };

struct Hello {
  WorkerRole role = WorkerRole::kTarget;
  std::string address;      // host:port that the coordinator dials
  std::string incarnation;  // new at each start of the process
  std::string fingerprint;
  std::string numerics_id;
  std::string model_name;
  int model_vocab_size = 0;
  int tokenizer_vocab_size = 0;
  // Of a draft whose own vocabulary is another one than that which it proves:
  // how many of the pieces it has, 0 to 1. Else 1.
  double vocabulary_share = 1;
  int context_length = 0;
  std::vector<int32_t> eos_token_ids;
  int64_t kv_capacity_tokens = 0;                      // 0: not told
  std::vector<std::pair<int, int64_t>> step_times_ns;  // (rows, duration)
  // Of a draft: length policies that it has a calibration for, each with the
  // fingerprint of the target that it was made with.
  std::vector<std::pair<std::string, std::string>> policy_files = {};
  bool abandons_steps = false;  // a draft, when a verdict makes one pointless
  bool drafts_chains = false;   // a draft that grows no trees
  // Coordinators may promise KV only as its heartbeats grant it.
  bool grants_kv = false;

  bool operator==(const Hello&) const = default;
};

}  // namespace nacre::wire

#endif  // WIRE_HELLO_H_
