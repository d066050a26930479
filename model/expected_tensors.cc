#include "model/expected_tensors.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "model/families.h"

namespace nacre::model {
namespace {

const TensorNames& NamesOf(const ModelConfig& config) {
  const Family* const family = FindFamily(config.architecture);
  NACRE_CHECK(family != nullptr, "a config that was not parsed");
  return family->tensors;
}

}  // namespace

std::string LayerPrefix(const ModelConfig& config, int index) {
  return absl::StrCat(NamesOf(config).layer, index, ".");
}

void ExpectedTensors::Add(TensorRole role, const std::string& name,
                          std::vector<int64_t> shape, int expert) {
  tensors_.push_back(
      {role, absl::StrCat(name, ".weight"), std::move(shape), expert});
}

void ExpectedTensors::AddWithBias(TensorRole role, TensorRole bias,
                                  bool has_bias, const std::string& name,
                                  std::vector<int64_t> shape) {
  const int64_t outputs = shape[0];
  Add(role, name, std::move(shape));
  if (!has_bias) return;
  tensors_.push_back({bias, absl::StrCat(name, ".bias"), {outputs}});
}

ExpectedTensors ExpectedTensors::OfLayer(const ModelConfig& config, int index) {
  using Role = TensorRole;
  const TensorNames& names = NamesOf(config);
  const int64_t hidden = config.hidden_size;
  const std::string prefix = LayerPrefix(config, index);
  const bool has_norm_bias = config.norms.is_layer_norm;
  ExpectedTensors layer;
  layer.AddWithBias(Role::kInputNorm, Role::kInputNormBias, has_norm_bias,
                    prefix + names.input_norm, {hidden});
  layer.AddAttention(config, prefix);
  if (config.norms.after_both) {
    layer.Add(Role::kAttentionPostNorm, prefix + names.attention_post_norm,
              {hidden});
  }
  layer.AddWithBias(Role::kMlpNorm, Role::kMlpNormBias, has_norm_bias,
                    prefix + names.mlp_norm, {hidden});
  if (config.has_experts(index)) {
    layer.AddExperts(config, prefix);
    return layer;
  }
  layer.AddFeedForward(config, prefix);
  if (config.norms.after_both) {
    layer.Add(Role::kMlpPostNorm, prefix + names.mlp_post_norm, {hidden});
  }
  return layer;
}

void ExpectedTensors::AddAttention(const ModelConfig& config,
                                   const std::string& prefix) {
  using Role = TensorRole;
  const TensorNames& names = NamesOf(config);
  const int64_t hidden = config.hidden_size;
  const int64_t q = config.q_size();
  const int64_t kv = config.kv_size();
  const bool bias = config.qkv_bias;
  if (names.query_key_value != nullptr) {
    AddWithBias(Role::kQueryKeyValue, Role::kQueryKeyValueBias, bias,
                prefix + names.query_key_value, {q + 2 * kv, hidden});
  } else {
    AddWithBias(Role::kQuery, Role::kQueryBias, bias, prefix + names.query,
                {q, hidden});
    AddWithBias(Role::kKey, Role::kKeyBias, bias, prefix + names.key,
                {kv, hidden});
    AddWithBias(Role::kValue, Role::kValueBias, bias, prefix + names.value,
                {kv, hidden});
  }
  if (config.norms.of_heads) {
    Add(Role::kQueryNorm, prefix + names.query_norm, {config.head_dim});
    Add(Role::kKeyNorm, prefix + names.key_norm, {config.head_dim});
  }
  AddWithBias(Role::kAttentionOutput, Role::kAttentionOutputBias,
              config.attention_output_bias, prefix + names.attention_output,
              {hidden, q});
}

void ExpectedTensors::AddFeedForward(const ModelConfig& config,
                                     const std::string& prefix) {
  using Role = TensorRole;
  const TensorNames& names = NamesOf(config);
  const int64_t hidden = config.hidden_size;
  const int64_t inter = config.intermediate_size;
  const bool bias = config.mlp_bias;
  if (names.gate_up != nullptr) {
    Add(Role::kGateUp, prefix + names.gate_up, {2 * inter, hidden});
  } else {
    if (config.blocks.has_gate) {
      AddWithBias(Role::kGate, Role::kGateBias, bias, prefix + names.gate,
                  {inter, hidden});
    }
    AddWithBias(Role::kUp, Role::kUpBias, bias, prefix + names.up,
                {inter, hidden});
  }
  AddWithBias(Role::kDown, Role::kDownBias, bias, prefix + names.down,
              {hidden, inter});
}

void ExpectedTensors::AddExperts(const ModelConfig& config,
                                 const std::string& prefix) {
  const ExpertNames& names = NamesOf(config).experts;
  const int64_t hidden = config.hidden_size;
  const int64_t size = config.experts.size;
  Add(TensorRole::kRouter, prefix + names.router,
      {config.experts.count, hidden});
  for (int i = 0; i < config.experts.count; ++i) {
    const std::string expert = absl::StrCat(prefix, names.expert, i, ".");
    Add(TensorRole::kExpertGate, expert + names.gate, {size, hidden}, i);
    Add(TensorRole::kExpertUp, expert + names.up, {size, hidden}, i);
    Add(TensorRole::kExpertDown, expert + names.down, {hidden, size}, i);
  }
}

ExpectedTensors ExpectedTensors::OutsideLayers(const ModelConfig& config) {
  const TensorNames& names = NamesOf(config);
  const int64_t vocab = config.vocab_size;
  const int64_t hidden = config.hidden_size;
  ExpectedTensors result;
  result.Add(TensorRole::kEmbedding, names.embedding, {vocab, hidden});
  if (config.embedding.has_positions) {
    result.Add(TensorRole::kPositions, names.positions,
               {config.max_position_embeddings, hidden});
  }
  result.AddWithBias(TensorRole::kFinalNorm, TensorRole::kFinalNormBias,
                     config.norms.is_layer_norm, names.final_norm, {hidden});
  if (!config.tie_word_embeddings) {
    result.tensors_.push_back(UntiedHead(config));
  }
  return result;
}

ExpectedTensor ExpectedTensors::UntiedHead(const ModelConfig& config) {
  return {TensorRole::kHead,
          absl::StrCat(NamesOf(config).head, ".weight"),
          {config.vocab_size, config.hidden_size}};
}

bool ExpectedTensors::Has(TensorRole role) const {
  for (const ExpectedTensor& tensor : tensors_) {
    if (tensor.role == role) return true;
  }
  return false;
}

const ExpectedTensor& ExpectedTensors::operator[](TensorRole role) const {
  return OfExpert(role, 0);
}

const ExpectedTensor& ExpectedTensors::OfExpert(TensorRole role,
                                                int expert) const {
  for (const ExpectedTensor& tensor : tensors_) {
    if (tensor.role == role && tensor.expert == expert) return tensor;
  }
  NACRE_CHECK(false, "a tensor that the model does not have");
  return tensors_.front();
}

}  // namespace nacre::model
