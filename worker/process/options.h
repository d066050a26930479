// The command line of both workers.

#ifndef WORKER_PROCESS_OPTIONS_H_
#define WORKER_PROCESS_OPTIONS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/flag_set.h"
#include "common/logging.h"
#include "common/rpc/security.h"
#include "common/step_times.h"
#include "kernels/backend_factory.h"
#include "speculation/tree_spec.h"
#include "worker/engine/step_budget.h"

namespace nacre::worker {

// How a worker paces itself.
struct PaceOptions {
  absl::Duration hang_timeout = absl::Seconds(8);
  int prefill_chunk = StepBudget().prefill_chunk;
  absl::Duration spin = absl::Milliseconds(5);

  // --hang-timeout, --prefill-chunk, --spin; they check their values.
  void Register(FlagSet* flags);
};

// Of a draft whose vocabulary is not its target's.
struct VocabularyOptions {
  std::string target_tokenizer;  // folder or GGUF file; empty: it is the same
  double least_share = 0.5;      // VocabularyMap::share

  // --target-tokenizer, --least-vocabulary-share; checks its value.
  void Register(FlagSet* flags);
};

// What a target drafts from beside suffixes: one of these at most; empty: none.
struct AheadOptions {
  std::string medusa;                 // file or folder of heads
  speculation::TreeSpec medusa_tree;  // best, or a static list
  std::string eagle;                  // folder of an EAGLE draft
  std::string glide;                  // folder of a GliDe draft

  // --medusa, --medusa-tree, --eagle, --glide.
  void Register(FlagSet* flags);
  // INVALID_ARGUMENT: more than one, or a tree of nothing.
  absl::Status Check() const;
};

struct WorkerOptions {
  std::string model_dir;    // a Hugging Face folder
  std::string coordinator;  // coordinator_list.h: their ports for workers
  std::string listen = "127.0.0.1:0";
  std::string
      advertise;  // what the coordinator dials; empty: the bound address
  kernels::BackendOptions backend;
  // Of a host: bytes of the KV pool; absent: what 32 full contexts need, at
  // most 1 GiB. Of a device: bytes of weights, KV pool and scratch together;
  // absent: what load.h says.
  absl::optional<int64_t> max_memory_bytes;
  std::string address_file;
  std::string metrics_listen;  // host:port of /metrics; empty: not served
  std::string metrics_address_file;
  LogFlags log;
  absl::Duration drain_timeout = absl::Seconds(30);
  PaceOptions pace;
  // Each forward takes at least this long, by waiting. Absent: as long as it
  // takes.
  absl::optional<StepTimes> step_time;
  bool prefix_cache = true;
  // Of a target worker: TargetEngine::Options.
  bool gate_timeouts = true;
  bool suffix_drafter = true;
  int64_t suffix_cache_bytes = int64_t{16} << 20;
  AheadOptions ahead;            // likewise
  VocabularyOptions vocabulary;  // of a draft worker
  // Likewise: (name of a length policy, its calibration's folder).
  std::vector<std::pair<std::string, std::string>> policy_files;
  std::string record_features;  // of a draft worker: file; empty: none
  std::string record_hidden;    // likewise; only with record_features
  rpc::PeerTlsFlags tls;        // checked where they are loaded

  // All of them. Values are checked as they are read.
  void Register(FlagSet* flags);
};

// What is left to check: required flags, addresses. INVALID_ARGUMENT names the
// flag and its value.
absl::Status Validate(const WorkerOptions& options);

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_OPTIONS_H_
