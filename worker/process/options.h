// The command line of both workers, as groups of flags: `nacre up` registers
// the same groups and hands on what was given.

#ifndef WORKER_PROCESS_OPTIONS_H_
#define WORKER_PROCESS_OPTIONS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/flag_set.h"
#include "common/logging.h"
#include "common/rpc/security.h"
#include "common/step_times.h"
#include "kernels/backend_factory.h"
#include "model/kv_store.h"
#include "speculation/tree_spec.h"
#include "worker/engine/step_budget.h"
#include "worker/process/own_draft_kinds.h"
#include "worker/tensors/transports.h"

namespace nacre::worker {

// --backend, --weights, --kv-type and --device; it checks the number.
void RegisterBackend(kernels::BackendOptions* backend, FlagSet* flags);

// What computes, and with how much memory.
struct ComputeFlags {
  kernels::BackendOptions backend;  // but for its cores, which are dealt out
  // Of a host: bytes of the KV pool; absent: what 32 full contexts need, at
  // most 1 GiB. Of a device: bytes of weights, KV pool and scratch together;
  // absent: what load.h says.
  absl::optional<int64_t> max_memory_bytes;
  bool prefix_cache = true;
  model::KvStoreOptions prefix_store;  // only with prefix_cache
  // Ranks that the model is split among (model/tensor_parallel_model.h); 0: it
  // is not split.
  int tensor_parallel = 0;

  // --backend to --warpgroup-attention; they check their values.
  void Register(FlagSet* flags);
  // INVALID_ARGUMENT: flags that need each other.
  absl::Status Validate() const;
};

// Of a worker whose ranks are on several nodes, each a process of its own.
struct NodeFlags {
  int nodes = 1;               // equal shares of --tensor-parallel's ranks
  absl::optional<int> rank;    // which of them this is; 0: the leader
  std::string leader_address;  // where it serves the others
  absl::Duration join_timeout = absl::Minutes(10);

  bool follows() const { return rank.value_or(0) > 0; }

  // --nodes to --join-timeout; they check their values.
  void Register(FlagSet* flags);
  // INVALID_ARGUMENT: flags that need each other.
  absl::Status Validate(const ComputeFlags& compute) const;
};

// Each forward takes at least this long, by waiting.
struct PaceOfSteps {
  std::string text;  // as given; empty: as long as it takes
  absl::optional<StepTimes> times;

  // --step-time; checks its value.
  void Register(FlagSet* flags);
  // Under another name, for what `help` says.
  void RegisterAs(absl::string_view name, absl::string_view help,
                  FlagSet* flags);
};

// What a target drafts of its own: as of TargetEngine::Options.
struct OwnDraftFlags {
  bool suffix_drafter = true;
  int64_t suffix_cache_bytes = int64_t{16} << 20;
  // The file or folder of each of OwnDraftKinds(); empty: none.
  std::vector<std::string> paths;
  speculation::TreeSpec medusa_tree;  // best, or a static list
  PaceOfSteps step_time;              // of one of paths

  OwnDraftFlags() : paths(OwnDraftKinds().size()) {}
  // The one that was given; null: none.
  const OwnDraftKind* kind() const;
  // Its path. Requires: there is one.
  const std::string& path() const;

  // --suffix-drafter to --own-draft-step-time; they check their values.
  void Register(FlagSet* flags);
  // INVALID_ARGUMENT: flags that need or exclude each other.
  absl::Status Validate() const;
};

// Calibrations of length policies; of a draft worker.
struct PolicyFlags {
  std::vector<std::pair<std::string, std::string>> files;  // (name, folder)

  // --policy-file; checks the name.
  void Register(FlagSet* flags);
};

// Which way drafts get hidden states, keys, values and features of targets.
struct TensorFlags {
  const TensorTransport* transport = &TensorTransports().front();

  // --tensor-transport; checks its value.
  void Register(FlagSet* flags);
};

// Of a target: what it computes for EAGLE drafts on workers of their own.
struct FeatureFlags {
  std::string draft;  // their folder; empty: nothing
  int64_t cache_bytes = int64_t{64} << 20;
  std::string cache_text;  // as it was given; empty: it was not

  // --publish-features and --feature-cache; they check their values.
  void Register(FlagSet* flags);
  // INVALID_ARGUMENT: memory for features of no draft.
  absl::Status Validate() const;
};

// Of a target: what multiplies rows of prompts.
struct PrefillFlags {
  std::string by = kernels::kOwnPrefill;  // BackendOptions::prefill

  // --prefill; checks its value.
  void Register(FlagSet* flags);
  // INVALID_ARGUMENT: a backend, weights or ranks that it does not go with.
  absl::Status Validate(const ComputeFlags& compute) const;
};

// How a worker paces itself.
struct PaceOptions {
  absl::Duration hang_timeout = absl::Seconds(8);
  int prefill_chunk = StepBudget().prefill_chunk;
  absl::Duration spin = absl::Milliseconds(5);

  // --hang-timeout, --prefill-chunk, --spin; they check their values.
  void Register(FlagSet* flags);
};

// Of a draft whose vocabulary is not its target's, or which has parts of it.
struct VocabularyOptions {
  // Folder or GGUF file; empty: it is the same. Of an EAGLE draft the target's
  // model.
  std::string target_tokenizer;
  double least_share = 0.5;  // VocabularyMap::share

  // --target-tokenizer, and the other one.
  void Register(FlagSet* flags);
  // --least-vocabulary-share; checks its value.
  void RegisterShare(FlagSet* flags);
};

struct WorkerOptions {
  std::string model_dir;    // a Hugging Face folder
  std::string coordinator;  // coordinator_list.h: their ports for workers
  std::string listen = "127.0.0.1:0";
  std::string
      advertise;         // what the coordinator dials; empty: the bound address
  ComputeFlags compute;  // --cpus sets its cores
  NodeFlags nodes;
  std::string address_file;
  std::string metrics_listen;  // host:port of /metrics; empty: not served
  std::string metrics_address_file;
  LogFlags log;
  absl::Duration drain_timeout = absl::Seconds(30);
  PaceOptions pace;
  PaceOfSteps step_time;
  bool gate_timeouts = true;     // of a target worker: TargetEngine::Options
  PrefillFlags prefill;          // likewise
  OwnDraftFlags own_drafts;      // likewise
  VocabularyOptions vocabulary;  // of a draft worker
  PolicyFlags policies;          // likewise
  TensorFlags tensors;
  FeatureFlags features;        // of a target worker
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
