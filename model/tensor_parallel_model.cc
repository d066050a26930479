#include "model/tensor_parallel_model.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/cpu_quota.h"
#include "common/status_macros.h"
#include "kernels/device_collectives.h"
#include "kernels/nccl_collective.h"
#include "kernels/node_collective.h"
#include "kernels/shared_memory_collective.h"
#include "kernels/staged_collective.h"
#include "kernels/weight_type.h"
#include "model/load_model.h"
#include "model/model_backend.h"
#include "model/tensor_shard.h"

namespace nacre::model {
namespace {

// The same sequence on every rank. Each does the same at the same length: their
// blocks are the same, too.
class RankedSequence : public Sequence {
 public:
  RankedSequence(const TensorParallelModel* model,
                 std::vector<std::unique_ptr<Sequence>> ranks)
      : model_(model), ranks_(std::move(ranks)) {}

  const TensorParallelModel* model() const { return model_; }
  Sequence* rank(size_t rank) const { return ranks_[rank].get(); }

  int length() const override { return ranks_.front()->length(); }
  void Truncate(int length) override {
    for (const auto& rank : ranks_) rank->Truncate(length);
  }
  int num_slots() const override { return ranks_.front()->num_slots(); }
  absl::Status KeepPath(int length, absl::Span<const int32_t> slots) override {
    absl::Status status = ranks_.front()->KeepPath(length, slots);
    for (size_t i = 1; i < ranks_.size(); ++i) {
      NACRE_CHECK(ranks_[i]->KeepPath(length, slots) == status,
                  "ranks keep different paths");
    }
    return status;
  }
  void Share(absl::Span<const int32_t> token_ids) override {
    for (const auto& rank : ranks_) rank->Share(token_ids);
  }
  TakenOver TakeOver(absl::Span<const int32_t> token_ids,
                     int most_blocks) override {
    const TakenOver taken = ranks_.front()->TakeOver(token_ids, most_blocks);
    for (size_t i = 1; i < ranks_.size(); ++i) {
      NACRE_CHECK(ranks_[i]->TakeOver(token_ids, most_blocks) == taken,
                  "ranks take over different prefixes");
    }
    return taken;
  }

 private:
  const TensorParallelModel* const model_;
  const std::vector<std::unique_ptr<Sequence>> ranks_;
};

const RankedSequence* AsRanked(const Sequence* sequence) {
  return static_cast<const RankedSequence*>(sequence);
}

// Those of this node's ranks, which are all without a link.
std::vector<std::unique_ptr<kernels::Collective>> MakeCollectives(
    int ranks, kernels::NodeLink* link) {
  return link == nullptr
             ? kernels::MakeSharedMemoryCollectives(ranks)
             : kernels::MakeNodeCollectives(ranks / link->nodes(), link);
}

// Each rank's share of the cores.
absl::StatusOr<std::vector<std::vector<int>>> DealCores(
    const std::vector<int>& cpus, int ranks) {
  const size_t count = static_cast<size_t>(ranks);
  if (cpus.size() % count != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tensor-parallel ", ranks, ": --cpus has ", cpus.size(),
                     cpus.size() == 1 ? " core" : " cores", ", which ", ranks,
                     " ranks do not share evenly"));
  }
  const auto each = static_cast<std::ptrdiff_t>(cpus.size() / count);
  std::vector<std::vector<int>> dealt;
  for (std::ptrdiff_t rank = 0; rank < ranks; ++rank) {
    dealt.emplace_back(cpus.begin() + rank * each,
                       cpus.begin() + (rank + 1) * each);
  }
  return dealt;
}

absl::Status CheckLoad(const ModelConfig& config, const Checkpoint& checkpoint,
                       const kernels::BackendOptions& backend, int ranks) {
  if (checkpoint.quantization().has_value()) {
    return absl::UnimplementedError(
        absl::StrCat("--tensor-parallel ", ranks,
                     ": this checkpoint's weights are quantized, and are not "
                     "split; those of floats are, also with --weights int8 or "
                     "int4"));
  }
  NACRE_ASSIGN_OR_RETURN(const kernels::WeightType weights,
                         kernels::ParseWeightType(backend.weights));
  return CheckSplit(config, weights, ranks);
}

// Of each rank of "cuda".
absl::StatusOr<std::vector<int>> DealDevices(
    const kernels::BackendOptions& backend, int ranks, bool shares_memory) {
  std::vector<int> devices = backend.devices;
  if (devices.size() <= 1) {
    devices.clear();
    // One after the last that an int can name exists as little as that one.
    constexpr int kLast = std::numeric_limits<int>::max();
    for (int rank = 0; rank < ranks; ++rank) {
      devices.push_back(std::min(backend.device, kLast - ranks) + rank);
    }
  }
  if (static_cast<int>(devices.size()) != ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tensor-parallel ", ranks, ": --device lists ",
                     devices.size(), " devices, one for each rank is needed"));
  }
  std::set<int> seen;
  for (const int device : devices) {
    if (seen.insert(device).second || shares_memory) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--tensor-parallel ", ranks, ": --device lists ", device,
                     " twice: ranks that share a device need --max-memory"));
  }
  return devices;
}

// Sums of unlike devices have other bits than their numerics_id says.
absl::Status CheckAlike(
    absl::Span<const std::unique_ptr<kernels::Backend>> ranks) {
  for (const auto& rank : ranks) {
    if (rank->numerics_id() == ranks.front()->numerics_id()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--tensor-parallel: devices of ranks differ: ",
                     ranks.front()->description(), " computes as ",
                     ranks.front()->numerics_id(), ", ", rank->description(),
                     " as ", rank->numerics_id()));
  }
  return absl::OkStatus();
}

// Bytes beside what models have: sums and inputs of shards, and outputs of the
// head, of a rank.
int64_t ScratchOfRank(const ModelConfig& config, int ranks, int step_rows) {
  const int64_t values = int64_t{kernels::kInputShards} * config.hidden_size +
                         config.q_size() + config.intermediate_size +
                         config.vocab_size / ranks;
  return step_rows * values * static_cast<int64_t>(sizeof(float));
}

// Bytes of the parts of all ranks, where they meet by NCCL, of a rank.
int64_t PartsOfRanks(const ModelConfig& config, int ranks, int step_rows) {
  return std::min(int64_t{kernels::NcclCollective::kMostScratch},
                  static_cast<int64_t>(sizeof(float)) * ranks * step_rows *
                      config.hidden_size);
}

// Of this node's ranks together, `first` being the first of them.
absl::Status AdmitRanks(const ModelConfig& config, const Checkpoint& checkpoint,
                        const kernels::RankBackend& first, int ranks_of_node,
                        const ModelOptions& options) {
  if (!options.admit || first.location() != kernels::Location::kHost) {
    return absl::OkStatus();
  }
  const int ranks = first.ranks();
  const int nodes = ranks / ranks_of_node;
  MemoryNeeds needs =
      MemoryNeeds::Of(checkpoint, config, first, kernels::kInputShards);
  needs.weights /= nodes;
  needs.num_factors /= nodes;
  needs.may_be_saved /= nodes;
  if (first.rank() > 0) needs.tables = 0;
  needs.kv_cache = options.kv_cache_bytes / nodes;
  needs.prefix_store = StoredInMemory(options.prefix_store) / nodes;
  needs.scratch =
      ranks_of_node *
      (ScratchBytes(ConfigOfRank(config, ranks), options.step_rows) +
       ScratchOfRank(config, ranks, options.step_rows));
  return options.admit(needs);
}

// The least `value` of all ranks, on each.
absl::StatusOr<int64_t> LeastOfRanks(kernels::Collective* collective,
                                     int64_t value) {
  // Values go as they are: no sum is made of these.
  constexpr int kFloats = sizeof(int64_t) / sizeof(float);
  float own[kFloats];
  float all[kernels::kMostRanks * kFloats];
  std::memcpy(own, &value, sizeof(value));
  NACRE_RETURN_IF_ERROR(collective->Gather(own, 1, kFloats, all));
  if (collective->rank() == 0) {
    for (int rank = 0; rank < collective->ranks(); ++rank) {
      int64_t other = 0;
      std::memcpy(&other, all + std::ptrdiff_t{kFloats} * rank, sizeof(other));
      value = std::min(value, other);
    }
    std::memcpy(own, &value, sizeof(value));
  }
  NACRE_RETURN_IF_ERROR(collective->Broadcast(own, kFloats));
  std::memcpy(&value, own, sizeof(value));
  return value;
}

// One rank's part of what all have.
ModelOptions OptionsOfRank(const ModelConfig& config, int ranks,
                           const ModelOptions& options) {
  ModelOptions own = options;
  own.kv_cache_bytes /= ranks;
  if (own.prefix_store.bytes > 0) {
    own.prefix_store.bytes =
        std::max<int64_t>(1, own.prefix_store.bytes / ranks);
  }
  if (own.kv_budget.has_value()) {
    // 0 is no limit.
    if (own.kv_budget->most > 0) {
      own.kv_budget->most = std::max<int64_t>(1, own.kv_budget->most / ranks);
    }
    own.kv_budget->of_ranks =
        ScratchOfRank(config, ranks, own.kv_budget->step_rows);
  }
  own.admit = nullptr;
  return own;
}

// What does not change a rank's state, and comes to all alike.
bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorParallelModel>> TensorParallelModel::Load(
    const std::string& dir, const kernels::BackendOptions& asked, int ranks,
    const ModelOptions& options, kernels::NodeLink* link) {
  if (!IsRankCount(ranks)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--tensor-parallel is ", ranks, ", expected 1, 2, 4 or 8"));
  }
  NACRE_ASSIGN_OR_RETURN(const ModelConfig config, ReadConfig(dir));
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                         Checkpoint::Open(dir));
  kernels::BackendOptions backend = WithAutoChosen(*checkpoint, config, asked);
  NACRE_RETURN_IF_ERROR(CheckLoad(config, *checkpoint, backend, ranks));
  const int of_node = link == nullptr ? ranks : ranks / link->nodes();
  const bool on_devices = backend.kind == "cuda";
  // Threads that feed devices are not pinned: they also read the weights, on
  // all cores.
  if (on_devices) backend.cpus.clear();
  NACRE_ASSIGN_OR_RETURN(const auto cores, DealCores(backend.cpus, of_node));
  std::vector<int> first_cores;
  first_cores.reserve(cores.size());
  for (const auto& own : cores) {
    first_cores.push_back(own.empty() ? kAnyCpu : own.front());
  }
  std::unique_ptr<TensorParallelModel> model(
      new TensorParallelModel(std::move(first_cores)));
  model->collectives_ = MakeCollectives(ranks, link);
  if (on_devices) {
    NACRE_ASSIGN_OR_RETURN(
        backend.devices,
        DealDevices(backend, of_node,
                    backend.max_memory_bytes > 0 || !options.kv_budget));
  }
  NACRE_RETURN_IF_ERROR(model->CreateBackends(backend, cores, link));
  NACRE_RETURN_IF_ERROR(AdmitRanks(
      config, *checkpoint, *model->backends_.front(), of_node, options));
  NACRE_RETURN_IF_ERROR(model->LoadRanks(dir, config, options));
  model->info_ = model->models_.front()->info();
  absl::StrAppend(&model->info_.description, ", on ", ranks,
                  ranks == 1 ? " rank" : " ranks");
  if (link != nullptr) {
    absl::StrAppend(&model->info_.description, " of ", link->nodes(), " nodes");
  }
  return model;
}

absl::Status TensorParallelModel::CreateBackends(
    const kernels::BackendOptions& backend,
    const std::vector<std::vector<int>>& cores, kernels::NodeLink* link) {
  const bool on_devices = backend.kind == "cuda";
  const int ranks = collectives_.front()->ranks();
  // Says what is wrong with all of them together.
  if (!on_devices) {
    NACRE_RETURN_IF_ERROR(kernels::CreateBackend(backend).status());
  }
  std::vector<std::unique_ptr<kernels::Backend>> inner;
  for (size_t rank = 0; rank < cores.size(); ++rank) {
    kernels::BackendOptions own = backend;
    own.cpus = cores[rank];
    // Of all ranks together; 0 is no limit.
    if (own.max_memory_bytes > 0) {
      own.max_memory_bytes = std::max<int64_t>(1, own.max_memory_bytes / ranks);
    }
    own.devices.clear();
    if (on_devices) own.device = backend.devices[rank];
    auto created = kernels::CreateBackend(own);
    if (!created.ok()) {
      return absl::Status(created.status().code(),
                          absl::StrCat("--tensor-parallel ", ranks, ": ",
                                       created.status().message()));
    }
    inner.push_back(*std::move(created));
  }
  NACRE_RETURN_IF_ERROR(CheckAlike(inner));
  kernels::DeviceCollectives meet;
  meet.of_ranks.resize(inner.size());
  if (on_devices) {
    NACRE_ASSIGN_OR_RETURN(
        meet, kernels::MakeDeviceCollectives(backend, collectives_, inner,
                                             {.link = link}));
    by_nccl_ = meet.by_nccl;
    why_host_ = meet.why_host;
  }
  for (size_t rank = 0; rank < cores.size(); ++rank) {
    backends_.push_back(std::make_unique<kernels::RankBackend>(
        std::move(inner[rank]), collectives_[rank].get(),
        std::move(meet.of_ranks[rank])));
  }
  return absl::OkStatus();
}

absl::Status TensorParallelModel::LoadRanks(const std::string& dir,
                                            const ModelConfig& config,
                                            const ModelOptions& options) {
  const size_t count = collectives_.size();
  models_.resize(count);
  batches_.resize(count);
  statuses_.resize(count);
  return OnEveryRank([&](size_t rank) {
    ModelOptions own =
        OptionsOfRank(config, collectives_[rank]->ranks(), options);
    if (rank > 0) own.progress = nullptr;
    if (own.kv_budget.has_value() && by_nccl_) {
      own.kv_budget->of_ranks += PartsOfRanks(
          config, collectives_[rank]->ranks(), own.kv_budget->step_rows);
    }
    absl::Status status = LoadRank(dir, rank, own);
    // Whatever it is: others may wait for this rank.
    if (!status.ok()) {
      backends_[rank]->Abort(
          kernels::FailureOfRank(collectives_[rank]->rank(), status));
    }
    return status;
  });
}

absl::Status TensorParallelModel::LoadRank(const std::string& dir, size_t rank,
                                           const ModelOptions& options) {
  TensorShard shard;
  shard.backend = backends_[rank].get();
  shard.is_first_of_node = rank == 0;
  shard.least_of_ranks = [&](int64_t value) {
    return LeastOfRanks(collectives_[rank].get(), value);
  };
  ModelOptions own = options;
  own.shard = &shard;
  NACRE_ASSIGN_OR_RETURN(models_[rank], LoadModel(dir, shard.backend, own));
  return absl::OkStatus();
}

absl::Status TensorParallelModel::OnEveryRank(
    const std::function<absl::Status(size_t rank)>& task) {
  threads_.Run([&](int thread) {
    const size_t rank = static_cast<size_t>(thread);
    // The host's threads are bound already. Memory of another rank may have
    // been freed on this thread, which makes that one's device current.
    if (backends_[rank]->location() == kernels::Location::kDevice) {
      backends_[rank]->BindComputeThread();
    }
    absl::Status& status = statuses_[rank];
    status = task(rank);
    if (!status.ok() && !IsRefusal(status)) {
      // What has ended all is not this rank's failure.
      if (status != collectives_[rank]->Outcome()) {
        status = kernels::FailureOfRank(collectives_[rank]->rank(), status);
      }
      backends_[rank]->Abort(status);
    }
  });
  for (const absl::Status& status : statuses_) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Sequence>> TensorParallelModel::NewTreeSequence(
    int max_length, int num_slots, absl::Span<const int32_t> token_ids) {
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (const auto& model : models_) {
    auto sequence = model->NewTreeSequence(max_length, num_slots, token_ids);
    if (!sequence.ok()) {
      NACRE_CHECK(sequences.empty(), "ranks have different room");
      return sequence.status();
    }
    sequences.push_back(*std::move(sequence));
    NACRE_CHECK(sequences.back()->length() == sequences.front()->length(),
                "ranks share different prefixes");
  }
  return std::make_unique<RankedSequence>(this, std::move(sequences));
}

int TensorParallelModel::blocks_brought_at_once() const {
  const int of_a_rank = models_.front()->blocks_brought_at_once();
  if (of_a_rank == 0) return 0;
  return std::max(1, of_a_rank / static_cast<int>(models_.size()));
}

absl::StatusOr<absl::Span<const float>> TensorParallelModel::Forward(
    absl::Span<const SequenceRows> batch) {
  NACRE_RETURN_IF_ERROR(failure_);
  lengths_.clear();
  for (const SequenceRows& rows : batch) {
    lengths_.push_back(rows.sequence->length());
  }
  for (size_t rank = 0; rank < batches_.size(); ++rank) {
    batches_[rank].assign(batch.begin(), batch.end());
    for (SequenceRows& rows : batches_[rank]) {
      const RankedSequence* const sequence = AsRanked(rows.sequence);
      NACRE_CHECK(sequence != nullptr && sequence->model() == this,
                  "the sequence is not of this model");
      rows.sequence = sequence->rank(rank);
      rows.next_draw.reset();
      // Rank 0 has the logits.
      if (rank > 0) rows.draws = {};
    }
  }
  absl::Span<const float> logits;
  const absl::Status status = OnEveryRank([&](size_t rank) -> absl::Status {
    NACRE_ASSIGN_OR_RETURN(const absl::Span<const float> own,
                           models_[rank]->Forward(batches_[rank]));
    if (rank == 0) logits = own;
    return absl::OkStatus();
  });
  if (status.ok()) return logits;
  if (IsRefusal(status)) return status;
  failure_ = status;
  // A rank may have been through before another one failed.
  for (size_t i = 0; i < batch.size(); ++i) {
    batch[i].sequence->Truncate(lengths_[i]);
  }
  return status;
}

std::string TensorParallelModel::backend_description() const {
  std::string description =
      absl::StrJoin(backends_, "; ", [](std::string* out, const auto& backend) {
        absl::StrAppend(out, backend->description());
      });
  if (!why_host_.empty()) {
    absl::StrAppend(&description, "; not by NCCL: ", why_host_);
  }
  return description;
}

}  // namespace nacre::model
