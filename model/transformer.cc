#include "model/transformer.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/json_fields.h"
#include "common/status_macros.h"
#include "kernels/prompt_products.h"
#include "model/config_fields.h"
#include "model/even_positions.h"
#include "model/prompt_weights.h"
#include "model/unread_tensors.h"

namespace nacre::model {
namespace {

// The order of this file's operations decides bits too: raise it with them. Its
// name is older than the other families: ids that stand in records stay.
constexpr char kModelVersion[] = "llama-v1";

KvSequence* AsKvSequence(const SequenceRows& rows) {
  return static_cast<KvSequence*>(rows.sequence);
}

// Rows that are fed at positions, before the nodes.
int NumPositions(const SequenceRows& rows) {
  return static_cast<int>(rows.token_ids.size()) -
         static_cast<int>(rows.nodes.size());
}

// Of a step that has failed.
void EmptySlots(absl::Span<const SequenceRows> batch) {
  for (const SequenceRows& rows : batch) {
    for (const TreeNode& node : rows.nodes) {
      AsKvSequence(rows)->EmptySlot(node.slot);
    }
  }
}

std::string Describe(const ModelConfig& config, const Weights& weights,
                     const KvPool& kv_pool) {
  return absl::StrFormat(
      "%s, %.1f M parameters in %d layers, %.1f MB, KV cache for %d tokens",
      config.architecture, weights.num_parameters * 1e-6,
      config.num_hidden_layers, weights.size_bytes * 1e-6,
      kv_pool.capacity_tokens());
}

KvPool::Shape KvShape(const ModelConfig& config,
                      const kernels::Backend& backend) {
  return {config.num_hidden_layers, config.num_key_value_heads, config.head_dim,
          backend.kv_type()};
}

absl::Status Admit(const ModelConfig& config, const Checkpoint& checkpoint,
                   kernels::Backend* backend, const ModelOptions& options) {
  if (!options.admit || backend->Memory().has_value()) return absl::OkStatus();
  MemoryNeeds needs = MemoryNeeds::Of(checkpoint, config, *backend);
  needs.kv_cache = options.kv_cache_bytes;
  if (config.cross.has_value()) {
    needs.weights += TargetReader::WeightBytes(config, *backend);
    needs.kv_cache += TargetReader::CacheBytes(
        config,
        options.kv_cache_bytes /
            KvPool::BytesPerToken(KvShape(config, *backend)),
        *backend);
  }
  needs.prefix_store = StoredInMemory(options.prefix_store);
  needs.scratch = ScratchBytes(config, options.step_rows);
  return options.admit(needs);
}

// Of the cache of a model of `config`, which is `whole` or a rank's share of
// it; on a device once its weights are there.
absl::StatusOr<int64_t> CacheBytes(const ModelConfig& whole,
                                   const ModelConfig& config,
                                   kernels::Backend* backend,
                                   const ModelOptions& options,
                                   const TensorShard* shard) {
  const absl::optional<kernels::DeviceMemory> memory = backend->Memory();
  if (!memory.has_value() || !options.kv_budget.has_value()) {
    return options.kv_cache_bytes;
  }
  KvBudget budget = *options.kv_budget;
  if (whole.cross.has_value()) {
    budget.draft = {TargetReader::WeightBytes(whole, *backend),
                    TargetReader::BytesPerToken(whole, *backend)};
  }
  NACRE_ASSIGN_OR_RETURN(
      const int64_t bytes,
      KvBytes(config, *memory, budget,
              KvPool::BytesPerToken(KvShape(config, *backend))));
  if (shard == nullptr) return bytes;
  return shard->least_of_ranks(bytes);
}

// Adds rows without use, until the step has the next of `sizes`
// (Backend::step_sizes). Steps with experts get none, since no device records
// them. Prompts get none, since they differ in more than their rows.
void AddSpareRows(const ModelConfig& config, const KvPool& kv_pool,
                  absl::Span<const int> sizes, StepRows* rows) {
  if (config.experts.count > 0 || !rows->prompt_runs().empty()) return;
  const auto size = std::lower_bound(sizes.begin(), sizes.end(), rows->size());
  if (size == sizes.end()) return;
  rows->AddSpareRows(*size - rows->size(), kv_pool.spare_table());
}

// Scales the rows that were embedded, and adds learned positions.
void FinishEmbedding(const ModelConfig& config, const Weights& weights,
                     int rows, kernels::Backend* backend,
                     Activations* activations) {
  Activations& a = *activations;
  const size_t size =
      static_cast<size_t>(rows) * static_cast<size_t>(config.hidden_size);
  if (weights.embedding_scale != 1.0f) {
    backend->Scale(a.hidden->f32(), size, weights.embedding_scale);
  }
  if (weights.positions != nullptr) {
    backend->EmbedDrawn(*weights.positions, a.positions, rows,
                        a.attended->f32());
    backend->AddInPlace(a.hidden->f32(), a.attended->f32(), size);
  }
}

// What is to be had after the layers.
void KeepLastFeatures(const ModelConfig& config, const NormWeights& final_norm,
                      int rows, LayerRunner* runner, Activations* activations,
                      KeptFeatures* features) {
  const float* const hidden = activations->hidden->f32();
  features->Keep({FeatureTap::Kind::kIn, config.num_hidden_layers}, hidden);
  const FeatureTap final = {FeatureTap::Kind::kFinal};
  if (!features->Has(final)) return;
  float* const normed = activations->normed->f32();
  runner->Norm(hidden, rows, final_norm, normed);
  features->Keep(final, normed);
}

// What the rows' data decides: token ids and nodes.
absl::Status CheckRows(const ModelInfo& info, const SequenceRows& rows) {
  for (const int32_t id : rows.token_ids) {
    if (id < 0 || id >= info.vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token id ", id, " is outside the vocabulary of ", info.vocab_size));
    }
  }
  for (const TreeNode& node : rows.nodes) {
    if (node.position >= info.context_length) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a node at position ", node.position,
          " is outside the model's context of ", info.context_length));
    }
  }
  return AsKvSequence(rows)->CheckNodes(
      rows.nodes, rows.sequence->length() + NumPositions(rows));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(
    ModelConfig config, absl::string_view config_json,
    std::unique_ptr<Checkpoint> checkpoint, kernels::Backend* backend,
    const ModelOptions& options) {
  const ModelConfig whole = std::move(config);  // of all ranks
  NACRE_ASSIGN_OR_RETURN(const int original_layers,
                         OriginalLayers(config_json, whole.num_hidden_layers));
  const TensorShard* const shard = options.shard;
  if (whole.cross.has_value()) {
    NACRE_RETURN_IF_ERROR(TargetReader::Check(shard != nullptr));
  }
  NACRE_RETURN_IF_ERROR(Admit(whole, *checkpoint, backend, options));
  std::unique_ptr<Transformer> model(new Transformer(
      shard != nullptr ? ConfigOfRank(whole, shard->ranks()) : whole, backend));
  // Beside the load, which reads the same bytes. Of a node's ranks the first
  // does it.
  const std::unique_ptr<FingerprintJob> fingerprint =
      shard == nullptr || shard->is_first_of_node
          ? checkpoint->StartFingerprint(config_json)
          : nullptr;
  NACRE_ASSIGN_OR_RETURN(
      model->weights_,
      LoadWeights(*checkpoint, whole, backend, options.progress, shard));
  NACRE_RETURN_IF_ERROR(AddPromptWeights(&model->weights_, backend));
  NACRE_ASSIGN_OR_RETURN(
      const int64_t kv_bytes,
      CacheBytes(whole, model->config_, backend, options, shard));
  const bool records = !backend->step_sizes().empty();
  if (records) model->room_rows_ = options.step_rows;
  NACRE_ASSIGN_OR_RETURN(
      model->kv_pool_,
      KvPool::Create(backend, KvShape(model->config_, *backend), kv_bytes,
                     {.prefix_cache = options.prefix_cache,
                      .store = options.prefix_store,
                      .has_spare_block = records}));
  if (whole.cross.has_value()) {
    NACRE_ASSIGN_OR_RETURN(
        model->target_,
        TargetReader::Create(*checkpoint, whole,
                             model->kv_pool_->capacity_tokens(), backend));
  }
  // What went wrong on the way to the device is known before it serves.
  NACRE_RETURN_IF_ERROR(backend->Synchronize());
  ModelInfo& info = model->info_;
  info.vocab_size = model->config_.vocab_size;
  info.hidden_size = model->config_.hidden_size;
  info.num_layers = original_layers;
  info.context_length = model->config_.max_position_embeddings;
  // A device reads all weights for few rows, too: fewer would cost it more.
  if (backend->location() == kernels::Location::kHost) {
    info.even_positions = EvenPositions(whole);
  }
  info.eos_token_ids = model->config_.eos_token_ids;
  if (fingerprint != nullptr) {
    info.fingerprint = fingerprint->Finish(options.progress);
  }
  info.numerics_id = absl::StrCat(backend->numerics_id(), "-", kModelVersion);
  info.description =
      Describe(model->config_, model->weights_, *model->kv_pool_);
  if (model->target_ != nullptr) {
    info.target_fingerprint = whole.cross->target_fingerprint;
    absl::StrAppend(&info.description,
                    ", a GliDe draft over the target's last ",
                    model->target_->shape().num_layers, " layers");
  }
  info.kv_capacity_tokens = model->kv_pool_->capacity_tokens();
  info.unread = UnreadTensors(*checkpoint, whole);
  return model;
}

absl::StatusOr<std::unique_ptr<Sequence>> Transformer::NewPromptSequence(
    int prompt_positions, int max_length, int num_slots,
    absl::Span<const int32_t> token_ids) {
  NACRE_RETURN_IF_ERROR(
      CheckSequence(max_length, num_slots, info_.context_length));
  // Rows that are alike may share, whatever they are.
  if (backend_->prompt_products() == nullptr) prompt_positions = 0;
  NACRE_ASSIGN_OR_RETURN(
      std::unique_ptr<KvSequence> sequence,
      kv_pool_->Reserve(max_length, token_ids, num_slots, prompt_positions));
  // Here, not in the middle of a step.
  rows_.Reserve(std::min(max_length + num_slots, info_.context_length));
  return sequence;
}

const int32_t* Transformer::KvTable(const Sequence& sequence) {
  const auto& own = static_cast<const KvSequence&>(sequence);
  NACRE_CHECK(own.pool() == kv_pool_.get(),
              "the sequence is not of this model");
  kv_pool_->FinishMoves();
  return own.block_table();
}

absl::Status Transformer::SetTaps(absl::Span<const FeatureTap> taps) {
  for (const FeatureTap& tap : taps) {
    if (tap.kind == FeatureTap::Kind::kFinal) continue;
    if (tap.kind == FeatureTap::Kind::kKv) {
      return absl::UnimplementedError("keys and values are no kept features");
    }
    if (tap.layer >= 0 && tap.layer <= config_.num_hidden_layers) continue;
    return absl::InvalidArgumentError(absl::StrCat("a tap at layer ", tap.layer,
                                                   " of a model that has ",
                                                   config_.num_hidden_layers));
  }
  features_.Set(taps, config_.hidden_size);
  return absl::OkStatus();
}

absl::Status Transformer::CheckBatch(
    absl::Span<const SequenceRows> batch) const {
  for (size_t i = 0; i < batch.size(); ++i) {
    const SequenceRows& rows = batch[i];
    const KvSequence* sequence = AsKvSequence(rows);
    NACRE_CHECK(sequence != nullptr && sequence->pool() == kv_pool_.get(),
                "the sequence is not of this model");
    const int num_rows = static_cast<int>(rows.token_ids.size());
    NACRE_CHECK(num_rows >= 1, "a sequence without rows");
    NACRE_CHECK(NumPositions(rows) >= 0, "more nodes than rows");
    NACRE_CHECK(
        NumPositions(rows) <= sequence->max_length() - sequence->length(),
        "a sequence passes its reserved length");
    NACRE_CHECK(rows.num_logits >= 0 && rows.num_logits <= num_rows,
                "more logits than rows");
    if (rows.next_draw.has_value()) {
      NACRE_CHECK(rows.nodes.empty(), "a next draw behind a node");
      NACRE_CHECK(!rows.draws.empty() && rows.draws.back().has_value(),
                  "a next draw behind a row that is not drawn");
      NACRE_CHECK(num_rows < sequence->max_length() - sequence->length(),
                  "a next draw without room for its row");
    }
    for (size_t j = 0; j < i; ++j) {
      NACRE_CHECK(batch[j].sequence != rows.sequence,
                  "a sequence is twice in a batch");
    }
    NACRE_RETURN_IF_ERROR(CheckRows(info_, rows));
  }
  return absl::OkStatus();
}

size_t Transformer::RunLayers(kernels::StepInputs inputs,
                              absl::FunctionRef<void()> embed, bool may_end) {
  kernels::PromptProducts* const prompts = backend_->prompt_products();
  if (prompts != nullptr) prompts->SetRows(rows_.prompt_runs());
  inputs.num_heads = config_.num_attention_heads;
  inputs.layer = &kv_pool_->layer(0);
  rows_.Send(inputs, backend_, &activations_);
  // Outside of what is recorded: where drawn tokens lie differs from step to
  // step.
  embed();
  FinishEmbedding(config_, weights_, rows_.size(), backend_, &activations_);
  size_t layers_run = 0;
  const auto run = [&] {
    while (layers_run < weights_.layers.size()) {
      if (may_end && layers_run > 0 && interrupt_ && interrupt_()) return;
      const int index = static_cast<int>(layers_run);
      features_.Keep({FeatureTap::Kind::kIn, index},
                     activations_.hidden->f32());
      const LayerWeights& layer = weights_.layers[layers_run];
      const kernels::KvLayer& kv = kv_pool_->layer(index);
      if (target_ == nullptr) {
        runner_.Run(layer, index, kv);
      } else {
        runner_.RunAttention(layer, index, kv);
        target_->Run(index, &activations_);
        runner_.RunFeedForward(layer, index);
      }
      layers_finished_.fetch_add(1, std::memory_order_relaxed);
      ++layers_run;
    }
  };
  // The host chooses experts on the way: a recording would not come so far.
  if (config_.experts.count > 0) {
    run();
  } else {
    backend_->RunStep(rows_.size(), run);
  }
  if (prompts != nullptr) prompts->SetRows({});
  return layers_run;
}

void Transformer::RunHead() {
  Activations& a = activations_;
  const size_t hidden = static_cast<size_t>(config_.hidden_size);
  // The norm also gathers: only rows that need logits reach the head.
  float* packed = a.normed->f32();
  for (const StepRows::Run& run : rows_.head_runs()) {
    runner_.Norm(a.hidden->f32() + static_cast<size_t>(run.first) * hidden,
                 run.count, weights_.final_norm, packed);
    packed += static_cast<size_t>(run.count) * hidden;
  }
  backend_->MatMul(a.normed->f32(), rows_.num_logit_rows(), *weights_.head,
                   a.logits->f32());
  if (config_.soft_caps.final > 0) {
    backend_->SoftCap(a.logits->f32(),
                      static_cast<size_t>(rows_.num_logit_rows()) *
                          static_cast<size_t>(config_.vocab_size),
                      static_cast<float>(config_.soft_caps.final));
  }
}

bool Transformer::TakeQueued(absl::Span<const SequenceRows> batch) {
  if (queued_.empty()) return false;
  const bool is_asked =
      queued_.IsAskedFor(batch, outputs_[current_].drawn_tokens());
  ++(is_asked ? queued_steps_.used : queued_steps_.dropped);
  queued_.Clear();
  if (is_asked) {
    current_ = 1 - current_;
    mark_ = queued_mark_;
  }
  return is_asked;
}

absl::Status Transformer::QueueStep(absl::Span<const SequenceRows> batch) {
  HeadOutputs& outputs = outputs_[current_];
  NACRE_RETURN_IF_ERROR(outputs.Plan(batch));
  if (batch.empty()) return absl::OkStatus();
  rows_.Clear();
  if (target_ != nullptr) target_->Clear();
  for (const SequenceRows& rows : batch) {
    rows_.AddTokenIds(rows.token_ids);
    KvSequence* const sequence = AsKvSequence(rows);
    if (target_ != nullptr) target_->Add(rows, sequence->length());
    for (int i = 0; i < NumPositions(rows); ++i) {
      rows_.AddRow(*sequence, sequence->length() + i);
    }
    for (const TreeNode& node : rows.nodes) rows_.AddNode(node, sequence);
    rows_.AddLogits(rows.num_logits);
  }
  rows_.FinishTails();
  NACRE_RETURN_IF_ERROR(features_.Begin(rows_.size()));
  AddSpareRows(config_, *kv_pool_, backend_->step_sizes(), &rows_);
  NACRE_RETURN_IF_ERROR(activations_.Grow(config_, backend_,
                                          std::max(rows_.size(), room_rows_),
                                          rows_.num_logit_rows()));
  if (target_ != nullptr) NACRE_RETURN_IF_ERROR(target_->Begin());
  kernels::StepInputs inputs;
  inputs.token_ids = rows_.token_ids();
  inputs.draws = outputs.draws();
  const auto embed = [this] {
    backend_->Embed(*weights_.embedding, rows_.token_ids(),
                    activations_.hidden->f32());
  };
  const size_t layers_run = RunLayers(inputs, embed, /*may_end=*/true);
  if (layers_run < weights_.layers.size()) {
    // What was stored past the sequences' ends is stored again next time.
    features_.Clear();
    NACRE_RETURN_IF_ERROR(backend_->Synchronize());
    return absl::AbortedError(absl::StrCat("interrupted after ", layers_run,
                                           " of ", weights_.layers.size(),
                                           " layers"));
  }
  KeepLastFeatures(config_, weights_.final_norm, rows_.size(), &runner_,
                   &activations_, &features_);
  features_.Bring();
  if (rows_.num_logit_rows() > 0) {
    RunHead();
    outputs.Queue(activations_.logits->f32());
  }
  mark_ = backend_->Mark();
  return absl::OkStatus();
}

void Transformer::QueueNext(absl::Span<const SequenceRows> batch) {
  if (target_ != nullptr || !features_.empty()) return;
  queued_.Plan(batch);
  if (queued_.empty()) return;
  HeadOutputs& outputs = outputs_[1 - current_];
  if (!outputs.Plan(queued_.rows()).ok()) {
    // It will be asked for, and then the caller hears of it.
    queued_.Clear();
    return;
  }
  rows_.Clear();
  for (const QueuedStep::Row& row : queued_.rows()) {
    rows_.AddRow(*row.sequence, row.position);
    rows_.AddLogits(1);
  }
  AddSpareRows(config_, *kv_pool_, backend_->step_sizes(), &rows_);
  if (rows_.size() > activations_.max_rows) {
    // Of a step that was given none: what it computes on must not move.
    queued_.Clear();
    return;
  }
  kernels::StepInputs inputs;
  inputs.draws = outputs.draws();
  const auto embed = [this] {
    const absl::Span<const QueuedStep::Row> rows = queued_.rows();
    const int32_t* const ids = outputs_[current_].device_ids();
    float* to = activations_.hidden->f32();
    // Draws one after the other at a time: all, unless some sequences stop.
    for (size_t begin = 0, end; begin < rows.size(); begin = end) {
      end = begin + 1;
      while (end < rows.size() && rows[end].drawn == rows[end - 1].drawn + 1) {
        ++end;
      }
      backend_->EmbedDrawn(*weights_.embedding, ids + rows[begin].drawn,
                           static_cast<int>(end - begin), to);
      to += (end - begin) * static_cast<size_t>(config_.hidden_size);
    }
    // Of any tokens: there are fewer than others.
    backend_->EmbedDrawn(*weights_.embedding, ids + rows.front().drawn,
                         rows_.size() - static_cast<int>(rows.size()), to);
  };
  RunLayers(inputs, embed, /*may_end=*/false);
  RunHead();
  outputs.Queue(activations_.logits->f32());
  queued_mark_ = backend_->Mark();
}

kernels::FloatView Transformer::final_hidden() {
  NACRE_CHECK(queued_.empty(), "hidden states of a step with next draws");
  if (hidden_values_ == 0) return {};
  return {backend_, activations_.normed->f32(), hidden_values_};
}

absl::StatusOr<absl::Span<const float>> Transformer::Forward(
    absl::Span<const SequenceRows> batch) {
  hidden_values_ = 0;
  features_.Clear();
  NACRE_RETURN_IF_ERROR(CheckBatch(batch));
  kv_pool_->FinishMoves();
  if (!TakeQueued(batch)) {
    if (absl::Status status = QueueStep(batch); !status.ok()) {
      EmptySlots(batch);
      return status;
    }
  }
  if (batch.empty()) return absl::Span<const float>();
  // Before the device runs out of work, which it does when this returns.
  QueueNext(batch);
  if (absl::Status status = backend_->WaitFor(mark_); !status.ok()) {
    queued_.Clear();
    EmptySlots(batch);
    return status;
  }
  for (const SequenceRows& rows : batch) {
    // RunHead has left them packed in `normed`.
    hidden_values_ += static_cast<size_t>(rows.num_logits) *
                      static_cast<size_t>(config_.hidden_size);
    AsKvSequence(rows)->Append(NumPositions(rows));
  }
  return outputs_[current_].logits();
}

}  // namespace nacre::model
