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
  // A product's outputs, with their biases where the family has them.
  const auto add_qkv = [&](Role role, Role bias, const char* name,
                           int64_t outputs) {
    add(role, name, {outputs, hidden});
    if (!config.qkv_bias) return;
    layer.tensors_.push_back(
        {bias, absl::StrCat(prefix, name, ".bias"), {outputs}});
  };
  add(Role::kInputNorm, names.input_norm, {hidden});
  add_qkv(Role::kQuery, Role::kQueryBias, names.query, config.q_size());
  add_qkv(Role::kKey, Role::kKeyBias, names.key, config.kv_size());
  add_qkv(Role::kValue, Role::kValueBias, names.value, config.kv_size());
  add(Role::kAttentionOutput, names.attention_output,
      {hidden, config.q_size()});
  add(Role::kPostAttentionNorm, names.post_attention_norm, {hidden});
  add(Role::kGate, names.gate, {inter, hidden});
  add(Role::kUp, names.up, {inter, hidden});
  add(Role::kDown, names.down, {hidden, inter});
  return layer;
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

const ExpectedTensor& ExpectedTensors::operator[](TensorRole role) const {
  for (const ExpectedTensor& tensor : tensors_) {
    if (tensor.role == role) return tensor;
  }
  NACRE_CHECK(false, "a tensor that the model does not have");
  return tensors_.front();
}

}  // namespace nacre::model
