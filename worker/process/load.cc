#include "worker/process/load.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/scratch_memory.h"
#include "common/status_macros.h"
#include "kernels/weight_type.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/draft_kind.h"
#include "model/eagle_folder.h"
#include "model/kv_budget.h"
#include "model/kv_pool.h"
#include "model/load_model.h"
#include "model/mapped_model.h"
#include "model/model_backend.h"
#include "model/paced_model.h"
#include "model/progress.h"
#include "model/remote_eagle.h"
#include "model/tensor_parallel_model.h"
#include "tokenizer/vocabulary_map.h"
#include "worker/engine/step_budget.h"
#include "worker/process/memory_check.h"
#include "worker/process/nodes.h"
#include "worker/process/own_draft_kinds.h"

namespace nacre::worker {
namespace {

constexpr int64_t kMaxDefaultKvBytes = int64_t{1} << 30;
constexpr int64_t kDefaultContexts = 32;
// On a device, which has memory for nothing else; a draft leaves room for a
// target that may come after it.
constexpr int64_t kDefaultDeviceContexts = 256;
constexpr double kTargetShare = 0.75;
constexpr double kDraftShare = 0.125;

// A draft of that kind has a folder of another kind.
bool IsEagle(const WorkerOptions& options) {
  return model::IsEagle(options.model_dir);
}

absl::StatusOr<int64_t> ContextBytes(const WorkerOptions& options,
                                     kernels::DType kv_type) {
  if (IsEagle(options)) {
    const std::string& target = options.vocabulary.target_tokenizer;
    NACRE_ASSIGN_OR_RETURN(
        const model::KvPool::Shape shape,
        model::RemoteEagle::ReadKvShape(options.model_dir, target, kv_type));
    NACRE_ASSIGN_OR_RETURN(const model::ModelConfig config,
                           model::ReadConfig(target));
    return model::KvPool::BytesPerToken(shape) * config.max_position_embeddings;
  }
  NACRE_ASSIGN_OR_RETURN(const model::ModelConfig config,
                         model::ReadConfig(options.model_dir));
  return model::KvPool::BytesPerToken({config.num_hidden_layers,
                                       config.num_key_value_heads,
                                       config.head_dim, kv_type}) *
         config.max_position_embeddings;
}

absl::StatusOr<int64_t> KvCacheBytes(const WorkerOptions& options,
                                     kernels::DType kv_type) {
  if (options.compute.max_memory_bytes.has_value())
    return *options.compute.max_memory_bytes;
  NACRE_ASSIGN_OR_RETURN(const int64_t context_bytes,
                         ContextBytes(options, kv_type));
  if (context_bytes >= kMaxDefaultKvBytes) return kMaxDefaultKvBytes;
  return std::min(kMaxDefaultKvBytes, kDefaultContexts * context_bytes);
}

// Of what is loaded beside a target.
model::DraftNeeds NeedsOfDraft(const WorkerOptions& options,
                               kernels::DType kv_type, int step_rows) {
  const OwnDraftKind* const own = options.own_drafts.kind();
  if (own != nullptr) {
    return own->needs(options.own_drafts.path(), options.model_dir, kv_type,
                      step_rows);
  }
  if (options.features.draft.empty()) return {};
  model::DraftNeeds needs =
      model::RemoteEagle::ReadNeeds(options.features.draft, options.model_dir,
                                    kv_type, step_rows)
          .value_or(model::DraftNeeds());
  needs.per_token = 0;  // its rows are elsewhere
  return needs;
}

absl::StatusOr<model::KvBudget> DeviceKvBudget(const WorkerOptions& options,
                                               wire::WorkerRole role,
                                               kernels::DType kv_type) {
  model::KvBudget budget;
  budget.step_rows = StepBudget().max_rows;
  if (role == wire::WorkerRole::kTarget) {
    budget.draft = NeedsOfDraft(options, kv_type, budget.step_rows);
  }
  // A limit is there to be used.
  if (options.compute.max_memory_bytes.has_value()) return budget;
  NACRE_ASSIGN_OR_RETURN(const int64_t context_bytes,
                         ContextBytes(options, kv_type));
  budget.share = role == wire::WorkerRole::kDraft ? kDraftShare : kTargetShare;
  if (context_bytes <
      std::numeric_limits<int64_t>::max() / kDefaultDeviceContexts) {
    budget.most = kDefaultDeviceContexts * context_bytes;
  }
  return budget;
}

// One line that redraws itself; where stderr is a file, one in five seconds.
model::ProgressCallback ShowProgress() {
  if (isatty(STDERR_FILENO) == 0) {
    return [last = absl::Now()](absl::string_view stage,
                                double fraction) mutable {
      if (absl::Now() - last < absl::Seconds(5)) return;
      last = absl::Now();
      spdlog::info("loading {} {:.0f} %", std::string(stage), fraction * 100);
    };
  }
  return [](absl::string_view stage, double fraction) {
    absl::FPrintF(stderr, "\rloading %s %3.0f %%%s", stage, fraction * 100,
                  fraction >= 1.0 ? "\n" : "");
    std::fflush(stderr);
  };
}

// Before the weights are loaded.
absl::Status Admit(const model::MemoryNeeds& needs,
                   const std::vector<MemoryLimit>& limits) {
  spdlog::info("memory: {}", needs.ToString());
  NACRE_RETURN_IF_ERROR(CheckMemory(needs, limits));
  const std::string warning = MemoryWarning(needs, limits);
  if (!warning.empty()) spdlog::warn("{}", warning);
  return absl::OkStatus();
}

// Before the weights are loaded: that takes minutes.
absl::Status CheckPrefixStore(const model::KvStoreOptions& store) {
  if (store.bytes == 0 || store.dir.empty()) return absl::OkStatus();
  const absl::Status status =
      ScratchMemory::Check(static_cast<size_t>(store.bytes), store.dir);
  return absl::Status(status.code(),
                      absl::StrCat("--prefix-cache-dir: ", status.message()));
}

// Of a draft whose vocabulary is not its target's.
struct TargetVocabulary {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null: no map is needed
  tokenizer::VocabularyMap map;                     // then unused
  double share = 1;                                 // VocabularyMap::share
};

// Whether a draft needs no map: its ids are the target's, and its model can be
// fed all that the target's tokenizer makes, those added for chats, say. The
// rows of a target's head besides (Qwen's) have no text: none is drawn.
bool CanBeFed(const WorkerOptions& options, const tokenizer::Tokenizer& own,
              const tokenizer::Tokenizer& target) {
  if (!tokenizer::HaveCommonIds(target, own)) return false;
  if (target.vocab_size() <= own.vocab_size()) return true;
  const auto config = model::ReadConfig(options.model_dir);
  return config.ok() && target.vocab_size() <= config->vocab_size;
}

// Before the weights are loaded: tokenizers alone say what both have.
absl::StatusOr<TargetVocabulary> ReadTargetVocabulary(
    const WorkerOptions& options, const tokenizer::Tokenizer& own) {
  TargetVocabulary vocabulary;
  NACRE_ASSIGN_OR_RETURN(
      std::unique_ptr<tokenizer::Tokenizer> target,
      tokenizer::LoadTokenizer(options.vocabulary.target_tokenizer));
  const bool can_be_fed = CanBeFed(options, own, *target);
  if (can_be_fed && target->vocab_size() <= own.vocab_size()) return vocabulary;
  // A folder of a tokenizer alone says nothing of the model's head.
  const auto config = model::ReadConfig(options.vocabulary.target_tokenizer);
  vocabulary.map = tokenizer::MapVocabulary(
      *target, own, config.ok() ? config->vocab_size : 0);
  const double share = vocabulary.share = vocabulary.map.share;
  const std::string shared =
      absl::StrFormat("%.1f %% of the pieces of %s are in %s", 100 * share,
                      options.vocabulary.target_tokenizer, options.model_dir);
  if (share < options.vocabulary.least_share) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s, --least-vocabulary-share asks for %.1f %%", shared,
                        100 * options.vocabulary.least_share));
  }
  if (can_be_fed) {
    spdlog::info("drafts in its own ids, which are the target's: {}", shared);
  } else {
    spdlog::info("drafts in the target's vocabulary: {}", shared);
    vocabulary.tokenizer = std::move(target);
  }
  return vocabulary;
}

// From here on all ids are the target's.
absl::Status MapToTarget(TargetVocabulary vocabulary, LoadedModel* loaded) {
  loaded->vocabulary_share = vocabulary.share;
  if (vocabulary.tokenizer == nullptr) return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(loaded->model, model::MappedModel::Create(
                                            std::move(loaded->model),
                                            std::move(vocabulary.map.fed),
                                            std::move(vocabulary.map.drawn)));
  loaded->tokenizer = std::move(vocabulary.tokenizer);
  return absl::OkStatus();
}

// Keys and values in `kv_type`; of a device with memory of its own,
// `is_device`.
absl::StatusOr<model::ModelOptions> MakeModelOptions(
    const WorkerOptions& options, wire::WorkerRole role, kernels::DType kv_type,
    bool is_device, const MemoryFiles& memory) {
  model::ModelOptions result;
  if (is_device) {
    NACRE_ASSIGN_OR_RETURN(result.kv_budget,
                           DeviceKvBudget(options, role, kv_type));
  } else {
    NACRE_ASSIGN_OR_RETURN(result.kv_cache_bytes,
                           KvCacheBytes(options, kv_type));
  }
  result.step_rows = StepBudget().max_rows;
  result.admit = [&memory](const model::MemoryNeeds& needs) {
    return Admit(needs, MemoryLimits(memory));
  };
  result.progress = ShowProgress();
  result.prefix_cache = options.compute.prefix_cache;
  result.prefix_store = options.compute.prefix_store;
  return result;
}

// Ranks have parts of what drafts read.
absl::Status CheckReadsWhole(const WorkerOptions& options) {
  const OwnDraftKind* const own = options.own_drafts.kind();
  if (options.compute.tensor_parallel == 0 ||
      (own == nullptr && options.features.draft.empty())) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(
      "--tensor-parallel ", options.compute.tensor_parallel, " and --",
      own != nullptr ? own->flag : "publish-features",
      " exclude each other: a model that is split shows no draft what it "
      "computes"));
}

absl::Status CheckIsSplit(const WorkerOptions& options) {
  NACRE_ASSIGN_OR_RETURN(const model::ModelConfig config,
                         model::ReadConfig(options.model_dir));
  if (!config.cross.has_value()) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("--tensor-parallel ", options.compute.tensor_parallel, ": ",
                   options.model_dir, " is a GliDe draft, which is not split"));
}

// Of a model that is split, as each rank's backend chooses it.
absl::StatusOr<kernels::DType> KvTypeOfRanks(const WorkerOptions& options) {
  const kernels::BackendOptions& backend = options.compute.backend;
  NACRE_ASSIGN_OR_RETURN(const absl::optional<kernels::DType> asked,
                         kernels::ParseKvType(backend.kv_type));
  if (asked.has_value()) return *asked;
  NACRE_ASSIGN_OR_RETURN(const kernels::WeightType weights,
                         kernels::ParseWeightType(backend.weights));
  NACRE_ASSIGN_OR_RETURN(const model::ModelConfig config,
                         model::ReadConfig(options.model_dir));
  NACRE_ASSIGN_OR_RETURN(const auto checkpoint,
                         model::Checkpoint::Open(options.model_dir));
  return kernels::AutoKvType(
      backend.kind, weights,
      model::WithAutoChosen(*checkpoint, config, backend).bf16_checkpoint);
}

absl::Status LoadSplit(const WorkerOptions& options, wire::WorkerRole role,
                       const MemoryFiles& memory, NodeLeader* leader,
                       LoadedModel* loaded) {
  NACRE_ASSIGN_OR_RETURN(
      loaded->model, LoadRanks(options, role, memory,
                               leader == nullptr ? nullptr : leader->link()));
  if (leader == nullptr) return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(loaded->model, leader->Lead(std::move(loaded->model)));
  return absl::OkStatus();
}

// What an EAGLE draft on a worker of its own needs besides its folder.
absl::Status CheckEagle(const WorkerOptions& options, wire::WorkerRole role) {
  if (role == wire::WorkerRole::kTarget) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.model_dir,
                     " is an EAGLE draft, no target: it would answer without "
                     "what it reads"));
  }
  if (options.vocabulary.target_tokenizer.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.model_dir,
        " is an EAGLE draft, which takes its target's embedding and head: "
        "--target-tokenizer DIR, the target's model, is required"));
  }
  if (options.compute.tensor_parallel > 0) {
    return absl::UnimplementedError(
        absl::StrCat("--tensor-parallel ", options.compute.tensor_parallel,
                     ": an EAGLE draft is not split"));
  }
  return absl::OkStatus();
}

absl::Status LoadWhole(const WorkerOptions& options, wire::WorkerRole role,
                       const MemoryFiles& memory, LoadedModel* loaded) {
  kernels::BackendOptions backend = options.compute.backend;
  backend.max_memory_bytes = options.compute.max_memory_bytes.value_or(0);
  // Tokens of a draft decide nothing: its prompts are computed as all else.
  if (role == wire::WorkerRole::kTarget) backend.prefill = options.prefill.by;
  const bool is_eagle = IsEagle(options);
  const std::string& target = options.vocabulary.target_tokenizer;
  NACRE_ASSIGN_OR_RETURN(
      loaded->backend,
      model::CreateBackendFor(is_eagle ? target : options.model_dir, backend));
  const kernels::DType kv_type = loaded->backend->kv_type();
  spdlog::info("backend: {}, keys and values in {}, numerics {}",
               loaded->backend->description(), kernels::KvTypeName(kv_type),
               loaded->backend->numerics_id());
  spdlog::info("loading {}", options.model_dir);
  NACRE_ASSIGN_OR_RETURN(
      const model::ModelOptions model_options,
      MakeModelOptions(options, role, kv_type,
                       loaded->backend->Memory().has_value(), memory));
  if (is_eagle) {
    NACRE_ASSIGN_OR_RETURN(
        loaded->model,
        model::RemoteEagle::Load(options.model_dir, target,
                                 loaded->backend.get(), model_options));
    return absl::OkStatus();
  }
  NACRE_ASSIGN_OR_RETURN(
      loaded->model, model::LoadModel(options.model_dir, loaded->backend.get(),
                                      model_options));
  return absl::OkStatus();
}

// Heads have no model of their own.
absl::Status ExplainHeads(const WorkerOptions& options,
                          const absl::Status& status) {
  if (status.ok() ||
      model::FindDraftKind(options.model_dir) != model::DraftKind::kMedusa) {
    return status;
  }
  return ExplainDraft(options.model_dir, model::DraftKind::kModel, "model",
                      status);
}

}  // namespace

absl::Status CheckBeforeLoad(const WorkerOptions& options,
                             wire::WorkerRole role) {
  if (role == wire::WorkerRole::kTarget &&
      !options.vocabulary.target_tokenizer.empty()) {
    return absl::InvalidArgumentError(
        "--target-tokenizer is for draft workers: a target's vocabulary is its "
        "own");
  }
  // Whose flags these are not, a draft worker says.
  if (role == wire::WorkerRole::kTarget) {
    NACRE_RETURN_IF_ERROR(CheckReadsWhole(options));
  }
  NACRE_RETURN_IF_ERROR(CheckPrefixStore(options.compute.prefix_store));
  if (IsEagle(options)) return CheckEagle(options, role);
  return options.nodes.nodes == 1
             ? absl::OkStatus()
             : ExplainHeads(options, CheckIsSplit(options));
}

// They have their backends themselves.
absl::StatusOr<std::unique_ptr<model::TensorParallelModel>> LoadRanks(
    const WorkerOptions& options, wire::WorkerRole role,
    const MemoryFiles& memory, kernels::NodeLink* link) {
  kernels::BackendOptions backend = options.compute.backend;
  const bool is_device = backend.kind == "cuda";
  if (is_device) {
    backend.max_memory_bytes = options.compute.max_memory_bytes.value_or(0);
  }
  NACRE_RETURN_IF_ERROR(CheckIsSplit(options));
  NACRE_ASSIGN_OR_RETURN(const kernels::DType kv_type, KvTypeOfRanks(options));
  spdlog::info("loading {}", options.model_dir);
  NACRE_ASSIGN_OR_RETURN(
      const model::ModelOptions model_options,
      MakeModelOptions(options, role, kv_type, is_device, memory));
  NACRE_ASSIGN_OR_RETURN(
      auto ranks, model::TensorParallelModel::Load(
                      options.model_dir, backend,
                      options.compute.tensor_parallel, model_options, link));
  spdlog::info("backends: {}", ranks->backend_description());
  return ranks;
}

absl::StatusOr<LoadedModel> LoadForWorker(const WorkerOptions& options,
                                          wire::WorkerRole role,
                                          const MemoryFiles& memory,
                                          NodeLeader* leader) {
  NACRE_RETURN_IF_ERROR(CheckBeforeLoad(options, role));
  const bool is_eagle = IsEagle(options);
  LoadedModel loaded;
  TargetVocabulary vocabulary;
  if (!options.vocabulary.target_tokenizer.empty() && !is_eagle) {
    auto own = tokenizer::LoadTokenizer(options.model_dir);
    // Else the model's folder is wrong, or lacks it: what follows says which.
    if (own.ok()) {
      NACRE_ASSIGN_OR_RETURN(vocabulary, ReadTargetVocabulary(options, **own));
      loaded.tokenizer = *std::move(own);
    }
  }
  NACRE_RETURN_IF_ERROR(ExplainHeads(
      options, options.compute.tensor_parallel > 0
                   ? LoadSplit(options, role, memory, leader, &loaded)
                   : LoadWhole(options, role, memory, &loaded)));
  if (loaded.backend != nullptr) {
    const std::string saved = SavedWeightsLine(loaded.backend->Saved());
    if (!saved.empty()) spdlog::info("{}", saved);
  }
  // An EAGLE draft speaks its target's tokens.
  if (loaded.tokenizer == nullptr) {
    NACRE_ASSIGN_OR_RETURN(
        loaded.tokenizer,
        tokenizer::LoadTokenizer(is_eagle ? options.vocabulary.target_tokenizer
                                          : options.model_dir));
  }
  const int vocab_size = loaded.model->info().vocab_size;
  if (loaded.tokenizer->vocab_size() > vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the tokenizer in ", options.model_dir, " has ",
        loaded.tokenizer->vocab_size(), " ids, the model only ", vocab_size));
  }
  NACRE_RETURN_IF_ERROR(MapToTarget(std::move(vocabulary), &loaded));
  if (options.step_time.times.has_value()) {
    auto paced = std::make_unique<model::PacedModel>(std::move(loaded.model),
                                                     *options.step_time.times);
    loaded.paced = paced.get();
    loaded.model = std::move(paced);
  }
  const model::ModelInfo& info = loaded.model->info();
  spdlog::info("model: {}", info.description);
  if (!info.unread.empty()) spdlog::warn("model: {}", info.unread);
  return loaded;
}

wire::Hello MakeHello(const WorkerOptions& options, const LoadedModel& loaded,
                      wire::WorkerRole role, const std::string& bound_address,
                      const std::vector<StepTime>& step_times) {
  const model::ModelInfo& info = loaded.model->info();
  wire::Hello hello;
  hello.role = role;
  hello.address = options.advertise.empty() ? bound_address : options.advertise;
  std::random_device random;
  hello.incarnation = absl::StrFormat("%08x%08x", random(), random());
  hello.fingerprint = info.fingerprint;
  hello.numerics_id = info.numerics_id;
  // "models/target/" is called "target".
  std::filesystem::path dir =
      std::filesystem::path(options.model_dir).lexically_normal();
  if (!dir.has_filename()) dir = dir.parent_path();
  hello.model_name = dir.filename().string();
  hello.model_vocab_size = info.vocab_size;
  hello.tokenizer_vocab_size = loaded.tokenizer->vocab_size();
  hello.vocabulary_share = loaded.vocabulary_share;
  hello.context_length = info.context_length;
  hello.eos_token_ids = info.eos_token_ids;
  hello.kv_capacity_tokens = info.kv_capacity_tokens;
  // A GPU has all of a forward queued when it is asked whether to go on; ranks
  // and EAGLE drafts, of one layer, are not asked.
  hello.abandons_steps = role == wire::WorkerRole::kDraft &&
                         options.compute.backend.kind != "cuda" &&
                         options.compute.tensor_parallel == 0 &&
                         !IsEagle(options);
  for (const StepTime& time : step_times) {
    hello.step_times_ns.emplace_back(time.rows, time.duration_ns);
  }
  return hello;
}

}  // namespace nacre::worker
