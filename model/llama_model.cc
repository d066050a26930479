#include "model/llama_model.h"

#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "model/mapped_file.h"

namespace nacre::model {
namespace {

// The order of this file's operations decides bits too: raise it with them.
constexpr char kModelVersion[] = "llama-v1";

KvSequence* AsKvSequence(const SequenceRows& rows) {
  return static_cast<KvSequence*>(rows.sequence);
}

std::string Describe(const ModelConfig& config, const Weights& weights,
                     const KvPool& kv_pool) {
  return absl::StrFormat(
      "%s, %.1f M parameters in %d layers, %.1f MB, KV cache for %d tokens",
      config.architecture, weights.num_parameters * 1e-6,
      config.num_hidden_layers, weights.size_bytes * 1e-6,
      kv_pool.capacity_tokens());
}

}  // namespace

absl::StatusOr<std::unique_ptr<LlamaModel>> LlamaModel::Load(
    const std::string& dir, kernels::Backend* backend,
    const LlamaModelOptions& options) {
  NACRE_ASSIGN_OR_RETURN(ModelConfig config, ReadConfig(dir));
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint,
                         Checkpoint::Open(dir));
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> config_file,
                         MappedFile::Open(absl::StrCat(dir, "/config.json")));
  return Create(std::move(config), config_file->bytes(), std::move(checkpoint),
                backend, options);
}

absl::StatusOr<std::unique_ptr<LlamaModel>> LlamaModel::Create(
    ModelConfig config, absl::string_view config_json,
    std::unique_ptr<Checkpoint> checkpoint, kernels::Backend* backend,
    const LlamaModelOptions& options) {
  std::unique_ptr<LlamaModel> model(new LlamaModel(std::move(config), backend));
  model->checkpoint_ = std::move(checkpoint);
  NACRE_ASSIGN_OR_RETURN(
      model->weights_, LoadWeights(*model->checkpoint_, model->config_, backend,
                                   options.progress));
  int64_t kv_bytes = options.kv_cache_bytes;
  const absl::optional<kernels::DeviceMemory> memory = backend->Memory();
  if (memory.has_value() && options.kv_budget.has_value()) {
    NACRE_ASSIGN_OR_RETURN(
        kv_bytes, KvBytes(model->config_, *memory, *options.kv_budget));
  }
  const KvPool::Shape kv_shape = {model->config_.num_hidden_layers,
                                  model->config_.num_key_value_heads,
                                  model->config_.head_dim, backend->kv_type()};
  NACRE_ASSIGN_OR_RETURN(
      model->kv_pool_, KvPool::Create(backend, kv_shape, kv_bytes,
                                      {.prefix_cache = options.prefix_cache}));
  // What went wrong on the way to the device is known before it serves.
  NACRE_RETURN_IF_ERROR(backend->Synchronize());
  ModelInfo& info = model->info_;
  info.vocab_size = model->config_.vocab_size;
  info.hidden_size = model->config_.hidden_size;
  info.context_length = model->config_.max_position_embeddings;
  info.eos_token_ids = model->config_.eos_token_ids;
  info.fingerprint = model->checkpoint_->Fingerprint(config_json);
  info.numerics_id = absl::StrCat(backend->numerics_id(), "-", kModelVersion);
  info.description =
      Describe(model->config_, model->weights_, *model->kv_pool_);
  info.kv_capacity_tokens = model->kv_pool_->capacity_tokens();
  return model;
}

absl::StatusOr<std::unique_ptr<Sequence>> LlamaModel::NewSequenceWithPrefix(
    int max_length, absl::Span<const int32_t> token_ids) {
  if (max_length < 1 || max_length > info_.context_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sequence of ", max_length,
                     " positions is outside the model's context of 1 to ",
                     info_.context_length));
  }
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<KvSequence> sequence,
                         kv_pool_->Reserve(max_length, token_ids));
  rope_.Reserve(max_length);  // here, not in the middle of a step
  return sequence;
}

absl::Status LlamaModel::CheckBatch(
    absl::Span<const SequenceRows> batch) const {
  for (size_t i = 0; i < batch.size(); ++i) {
    const SequenceRows& rows = batch[i];
    const KvSequence* sequence = AsKvSequence(rows);
    NACRE_CHECK(sequence != nullptr && sequence->pool() == kv_pool_.get(),
                "the sequence is not of this model");
    const int num_rows = static_cast<int>(rows.token_ids.size());
    NACRE_CHECK(num_rows >= 1, "a sequence without rows");
    NACRE_CHECK(num_rows <= sequence->max_length() - sequence->length(),
                "a sequence passes its reserved length");
    NACRE_CHECK(rows.num_logits >= 0 && rows.num_logits <= num_rows,
                "more logits than rows");
    for (size_t j = 0; j < i; ++j) {
      NACRE_CHECK(batch[j].sequence != rows.sequence,
                  "a sequence is twice in a batch");
    }
    for (const int32_t id : rows.token_ids) {
      if (id < 0 || id >= config_.vocab_size) {
        return absl::InvalidArgumentError(
            absl::StrCat("token id ", id, " is outside the vocabulary of ",
                         config_.vocab_size));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status LlamaModel::GrowActivations(int num_rows, int num_logit_rows) {
  const auto allocate = [this](int rows, int cols,
                               std::unique_ptr<kernels::Buffer>* buffer) {
    absl::StatusOr<std::unique_ptr<kernels::Buffer>> allocated =
        backend_->Allocate(static_cast<size_t>(rows) *
                           static_cast<size_t>(cols) * sizeof(float));
    if (allocated.ok()) *buffer = *std::move(allocated);
    return allocated.status();
  };
  Activations& a = activations_;
  if (num_rows > a.max_rows) {
    const int hidden = config_.hidden_size;
    const int inter = config_.intermediate_size;
    const int qkv = config_.q_size() + 2 * config_.kv_size();
    const int half = config_.head_dim / 2;
    a.max_rows = 0;  // until all of them have grown
    NACRE_RETURN_IF_ERROR(allocate(num_rows, hidden, &a.hidden));
    NACRE_RETURN_IF_ERROR(allocate(num_rows, hidden, &a.normed));
    NACRE_RETURN_IF_ERROR(allocate(num_rows, qkv, &a.qkv));
    NACRE_RETURN_IF_ERROR(allocate(num_rows, config_.q_size(), &a.attention));
    NACRE_RETURN_IF_ERROR(allocate(num_rows, hidden, &a.attended));
    NACRE_RETURN_IF_ERROR(allocate(num_rows, 2 * inter, &a.gate_up));
    NACRE_RETURN_IF_ERROR(allocate(num_rows, inter, &a.mlp));
    NACRE_RETURN_IF_ERROR(allocate(num_rows, half, &a.cos));
    NACRE_RETURN_IF_ERROR(allocate(num_rows, half, &a.sin));
    a.max_rows = num_rows;
  }
  if (num_logit_rows > a.max_logit_rows) {
    a.max_logit_rows = 0;
    NACRE_RETURN_IF_ERROR(
        allocate(num_logit_rows, config_.vocab_size, &a.logits));
    a.max_logit_rows = num_logit_rows;
  }
  return absl::OkStatus();
}

void LlamaModel::GatherRows(absl::Span<const SequenceRows> batch) {
  token_ids_.clear();
  contexts_.clear();
  cos_.clear();
  sin_.clear();
  for (const SequenceRows& rows : batch) {
    const KvSequence* sequence = AsKvSequence(rows);
    int position = sequence->length();
    rope_.Extend(position + static_cast<int>(rows.token_ids.size()) - 1);
    for (const int32_t id : rows.token_ids) {
      token_ids_.push_back(id);
      contexts_.push_back({sequence->block_table(), position});
      const absl::Span<const float> cos = rope_.Cos(position);
      const absl::Span<const float> sin = rope_.Sin(position);
      cos_.insert(cos_.end(), cos.begin(), cos.end());
      sin_.insert(sin_.end(), sin.begin(), sin.end());
      ++position;
    }
  }
  backend_->CopyFromHost(cos_.data(), cos_.size() * sizeof(float),
                         activations_.cos->data());
  backend_->CopyFromHost(sin_.data(), sin_.size() * sizeof(float),
                         activations_.sin->data());
}

void LlamaModel::RunLayer(const LayerWeights& weights,
                          const kernels::KvLayer& kv) {
  Activations& a = activations_;
  const int rows = static_cast<int>(token_ids_.size());
  const int heads = config_.num_attention_heads;
  const int qkv_size = config_.q_size() + 2 * config_.kv_size();
  const float eps = static_cast<float>(config_.rms_norm_eps);
  const float scale = static_cast<float>(
      1.0 / std::sqrt(static_cast<double>(config_.head_dim)));

  backend_->NormMatMul(a.hidden->f32(), rows, weights.input_norm->f32(), eps,
                       *weights.qkv, a.normed->f32(), a.qkv->f32());
  backend_->RopeStoreKv(a.qkv->f32(), heads, a.cos->f32(), a.sin->f32(),
                        contexts_, kv);
  backend_->Attention(a.qkv->f32(), qkv_size, heads, scale, contexts_, kv,
                      a.attention->f32());
  backend_->MatMulAdd(a.attention->f32(), rows, *weights.o, a.hidden->f32(),
                      a.attended->f32());

  backend_->NormMatMul(a.attended->f32(), rows,
                       weights.post_attention_norm->f32(), eps,
                       *weights.gate_up, a.normed->f32(), a.gate_up->f32());
  backend_->SiluMatMulAdd(a.gate_up->f32(), rows, *weights.down,
                          a.attended->f32(), a.mlp->f32(), a.hidden->f32());
  layers_finished_.fetch_add(1, std::memory_order_relaxed);
}

void LlamaModel::RunHead(absl::Span<const SequenceRows> batch,
                         int num_logit_rows) {
  Activations& a = activations_;
  const size_t hidden = static_cast<size_t>(config_.hidden_size);
  // The norm also gathers: only rows that need logits reach the head.
  size_t end = 0;  // rows of the sequences so far
  size_t packed = 0;
  for (const SequenceRows& rows : batch) {
    end += rows.token_ids.size();
    if (rows.num_logits == 0) continue;
    const size_t begin = end - static_cast<size_t>(rows.num_logits);
    backend_->RmsNorm(a.hidden->f32() + begin * hidden, rows.num_logits,
                      config_.hidden_size, weights_.final_norm->f32(),
                      static_cast<float>(config_.rms_norm_eps),
                      a.normed->f32() + packed * hidden);
    packed += static_cast<size_t>(rows.num_logits);
  }
  backend_->MatMul(a.normed->f32(), num_logit_rows, *weights_.head,
                   a.logits->f32());
}

absl::Span<const float> LlamaModel::final_hidden() {
  host_hidden_.resize(hidden_values_);
  if (hidden_values_ > 0) {
    backend_->CopyToHost(activations_.normed->data(),
                         hidden_values_ * sizeof(float), host_hidden_.data());
  }
  return host_hidden_;
}

absl::StatusOr<absl::Span<const float>> LlamaModel::Forward(
    absl::Span<const SequenceRows> batch) {
  hidden_values_ = 0;
  NACRE_RETURN_IF_ERROR(CheckBatch(batch));
  NACRE_RETURN_IF_ERROR(outputs_.Plan(batch));
  if (batch.empty()) return absl::Span<const float>();
  int num_rows = 0;
  int num_logit_rows = 0;
  for (const SequenceRows& rows : batch) {
    num_rows += static_cast<int>(rows.token_ids.size());
    num_logit_rows += rows.num_logits;
  }
  NACRE_RETURN_IF_ERROR(GrowActivations(num_rows, num_logit_rows));
  GatherRows(batch);
  size_t layers_run = 0;
  backend_->RunStep(num_rows, [this, &layers_run] {
    backend_->Embed(*weights_.embedding, token_ids_,
                    activations_.hidden->f32());
    for (const LayerWeights& layer : weights_.layers) {
      if (layers_run > 0 && interrupt_ && interrupt_()) return;
      RunLayer(layer, kv_pool_->layer(static_cast<int>(layers_run)));
      ++layers_run;
    }
  });
  if (layers_run < weights_.layers.size()) {
    // What was stored behind the sequences' ends is stored again next time.
    NACRE_RETURN_IF_ERROR(backend_->Synchronize());
    return absl::AbortedError(absl::StrCat("interrupted after ", layers_run,
                                           " of ", weights_.layers.size(),
                                           " layers"));
  }
  if (num_logit_rows > 0) {
    RunHead(batch, num_logit_rows);
    outputs_.Queue(activations_.logits->f32());
  }
  NACRE_RETURN_IF_ERROR(backend_->Synchronize());
  // RunHead has left them packed in `normed`.
  hidden_values_ = static_cast<size_t>(num_logit_rows) *
                   static_cast<size_t>(config_.hidden_size);
  for (const SequenceRows& rows : batch) {
    AsKvSequence(rows)->Append(static_cast<int>(rows.token_ids.size()));
  }
  return outputs_.logits();
}

}  // namespace nacre::model
