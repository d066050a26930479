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

ExpectedTensors ExpectedTensors::OfLayer(const ModelConfig& config, int index) {
  using Role = TensorRole;
  const TensorNames& names = NamesOf(config);
  const int64_t hidden = config.hidden_size;
  const int64_t inter = config.intermediate_size;
  const std::string prefix = LayerPrefix(config, index);
  ExpectedTensors layer;
  const auto add = [&](Role role, const char* name,
                       std::vector<int64_t> shape) {
    layer.tensors_.push_back(
        {role, absl::StrCat(prefix, name, ".weight"), std::move(shape)});
  };
  // A product, with its biases where the family has them.
  const auto add_product = [&](Role role, Role bias, bool has_bias,
                               const char* name, int64_t outputs,
                               int64_t inputs) {
    add(role, name, {outputs, inputs});
    if (!has_bias) return;
    layer.tensors_.push_back(
        {bias, absl::StrCat(prefix, name, ".bias"), {outputs}});
  };
  const int64_t q = config.q_size();
  const int64_t kv = config.kv_size();
  add(Role::kInputNorm, names.input_norm, {hidden});
  if (names.query_key_value != nullptr) {
    add(Role::kQueryKeyValue, names.query_key_value, {q + 2 * kv, hidden});
  } else {
    const bool bias = config.qkv_bias;
    add_product(Role::kQuery, Role::kQueryBias, bias, names.query, q, hidden);
    add_product(Role::kKey, Role::kKeyBias, bias, names.key, kv, hidden);
    add_product(Role::kValue, Role::kValueBias, bias, names.value, kv, hidden);
  }
  if (config.norms.of_heads) {
    add(Role::kQueryNorm, names.query_norm, {config.head_dim});
    add(Role::kKeyNorm, names.key_norm, {config.head_dim});
  }
  add_product(Role::kAttentionOutput, Role::kAttentionOutputBias,
              config.attention_output_bias, names.attention_output, hidden, q);
  if (config.norms.after_both) {
    add(Role::kAttentionPostNorm, names.attention_post_norm, {hidden});
  }
  add(Role::kMlpNorm, names.mlp_norm, {hidden});
  const bool mlp_bias = config.mlp_bias;
  if (config.has_experts(index)) {
    layer.AddExperts(config, prefix);
    return layer;
  }
  if (names.gate_up != nullptr) {
    add(Role::kGateUp, names.gate_up, {2 * inter, hidden});
  } else {
    add_product(Role::kGate, Role::kGateBias, mlp_bias, names.gate, inter,
                hidden);
    add_product(Role::kUp, Role::kUpBias, mlp_bias, names.up, inter, hidden);
  }
  add_product(Role::kDown, Role::kDownBias, mlp_bias, names.down, hidden,
              inter);
  if (config.norms.after_both) {
    add(Role::kMlpPostNorm, names.mlp_post_norm, {hidden});
  }
  return layer;
}

void ExpectedTensors::AddExperts(const ModelConfig& config,
                                 const std::string& prefix) {
  const TensorNames& names = NamesOf(config);
  const int64_t hidden = config.hidden_size;
  const int64_t size = config.experts.size;
  tensors_.push_back({TensorRole::kRouter,
                      absl::StrCat(prefix, names.router, ".weight"),
                      {config.experts.count, hidden}});
  for (int i = 0; i < config.experts.count; ++i) {
    const auto add = [&](TensorRole role, const char* name,
                         std::vector<int64_t> shape) {
      tensors_.push_back(
          {role, absl::StrCat(prefix, names.expert, i, ".", name, ".weight"),
           std::move(shape), i});
    };
    add(TensorRole::kExpertGate, names.expert_gate, {size, hidden});
    add(TensorRole::kExpertUp, names.expert_up, {size, hidden});
    add(TensorRole::kExpertDown, names.expert_down, {hidden, size});
  }
}

ExpectedTensors ExpectedTensors::OutsideLayers(const ModelConfig& config) {
  const TensorNames& names = NamesOf(config);
  ExpectedTensors result;
  const auto add = [&](TensorRole role, const char* name,
                       std::vector<int64_t> shape) {
    result.tensors_.push_back(
        {role, absl::StrCat(name, ".weight"), std::move(shape)});
  };
  const int64_t vocab = config.vocab_size;
  const int64_t hidden = config.hidden_size;
  add(TensorRole::kEmbedding, names.embedding, {vocab, hidden});
  add(TensorRole::kFinalNorm, names.final_norm, {hidden});
  if (!config.tie_word_embeddings) {
    add(TensorRole::kHead, names.head, {vocab, hidden});
  }
  return result;
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
