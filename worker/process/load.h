// Loads what a worker serves: backend, model, tokenizer.

#ifndef WORKER_PROCESS_LOAD_H_
#define WORKER_PROCESS_LOAD_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/memory_limit.h"
#include "kernels/backend.h"
#include "kernels/node_link.h"
#include "model/language_model.h"
#include "model/paced_model.h"
#include "model/tensor_parallel_model.h"
#include "tokenizer/tokenizer.h"
#include "wire/hello.h"
#include "worker/engine/warm_up.h"
#include "worker/process/options.h"

namespace nacre::worker {

class NodeLeader;  // worker/process/nodes.h

struct LoadedModel {
  // Outlives the model; null: the model is split and has its own.
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<model::LanguageModel> model;
  model::PacedModel* paced = nullptr;  // the model, if it is one
  // The target's where the model's ids are mapped to it.
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  double vocabulary_share = 1;  // VocabularyMap::share, with a target's
};

// What is wrong with flags and the model's config, before anything is loaded:
// what nodes of a model need not wait for each other to find. Errors: of
// LoadForWorker.
absl::Status CheckBeforeLoad(const WorkerOptions& options,
                             wire::WorkerRole role);

// Shows progress on a terminal, logs elsewhere. The KV cache of a host has the
// size that ComputeFlags::max_memory_bytes says. That of a device has what the
// flag leaves beside weights and scratch. Without the flag it has a share of
// what is free, which depends on `role`.
//
// Errors: of CreateBackendFor, LoadTokenizer, LoadModel and
// TensorParallelModel::Load.
// - INVALID_ARGUMENT: the tokenizer has ids that the model lacks, or a target
//   is told of another's tokenizer.
// - FAILED_PRECONDITION: the target's tokenizer shares too few pieces.
// - As of ScratchMemory::Check, before the rest: the folder of prefix_store.
// - RESOURCE_EXHAUSTED: the host's memory, of which `memory` tells, has no room
//   for the weights (memory_check.h).
// `leader`, of a model on several nodes, outlives the model; null: there is one
// node.
absl::StatusOr<LoadedModel> LoadForWorker(const WorkerOptions& options,
                                          wire::WorkerRole role,
                                          const MemoryFiles& memory = {},
                                          NodeLeader* leader = nullptr);

// The ranks of this node alone, of a model that is split: what LoadForWorker
// begins with. `link`, which outlives them, is null of one node.
absl::StatusOr<std::unique_ptr<model::TensorParallelModel>> LoadRanks(
    const WorkerOptions& options, wire::WorkerRole role,
    const MemoryFiles& memory, kernels::NodeLink* link);

// What the coordinator is told at registration; incarnation is drawn at random.
wire::Hello MakeHello(const WorkerOptions& options, const LoadedModel& loaded,
                      wire::WorkerRole role, const std::string& bound_address,
                      const std::vector<StepTime>& step_times);

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_LOAD_H_
