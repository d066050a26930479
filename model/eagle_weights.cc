#include "model/eagle_weights.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/draft_tensors.h"

namespace nacre::model {
namespace {

absl::Status LoadLayer(const EagleLayout& layout, const ModelConfig& llama,
                       DraftTensors* loader, LayerWeights* layer) {
  const int hidden = llama.hidden_size;
  const int inter = llama.intermediate_size;
  NACRE_ASSIGN_OR_RETURN(
      layer->qkv,
      loader->Packed({{"layer.self_attn.q_proj.weight", llama.q_size()},
                      {"layer.self_attn.k_proj.weight", llama.kv_size()},
                      {"layer.self_attn.v_proj.weight", llama.kv_size()}},
                     layout.is_third ? 2 * hidden : hidden));
  if (llama.qkv_bias || layout.Has("layer.self_attn.q_proj.bias") ||
      layout.Has("layer.self_attn.k_proj.bias") ||
      layout.Has("layer.self_attn.v_proj.bias")) {
    NACRE_ASSIGN_OR_RETURN(
        layer->qkv_bias,
        loader->Vector({{"layer.self_attn.q_proj.bias", llama.q_size()},
                        {"layer.self_attn.k_proj.bias", llama.kv_size()},
                        {"layer.self_attn.v_proj.bias", llama.kv_size()}}));
  }
  NACRE_ASSIGN_OR_RETURN(
      layer->o, loader->Packed({{"layer.self_attn.o_proj.weight", hidden}},
                               llama.q_size()));
  if (layout.Has("layer.self_attn.o_proj.bias")) {
    NACRE_ASSIGN_OR_RETURN(
        layer->o_bias,
        loader->Vector({{"layer.self_attn.o_proj.bias", hidden}}));
  }
  NACRE_ASSIGN_OR_RETURN(
      layer->mlp_norm.weight,
      loader->Vector({{"layer.post_attention_layernorm.weight", hidden}}));
  NACRE_ASSIGN_OR_RETURN(layer->gate_up,
                         loader->Packed({{"layer.mlp.gate_proj.weight", inter},
                                         {"layer.mlp.up_proj.weight", inter}},
                                        hidden));
  NACRE_ASSIGN_OR_RETURN(
      layer->down,
      loader->Packed({{"layer.mlp.down_proj.weight", hidden}}, inter));
  return absl::OkStatus();
}

// Of EAGLE-3.
absl::Status LoadProjection(const EagleConfig& config, DraftTensors* loader,
                            EagleWeights* weights) {
  const int all = static_cast<int>(config.taps.size()) * config.tap_size;
  NACRE_ASSIGN_OR_RETURN(
      weights->fc,
      loader->Packed({{"fc.weight", config.llama.hidden_size}}, all));
  if (config.norm_before_fc) {
    NACRE_ASSIGN_OR_RETURN(weights->input_norm,
                           loader->Vector({{"input_norm.weight", all}}));
  }
  for (size_t i = 0; config.norm_each_tap && i < config.taps.size(); ++i) {
    const std::string part = absl::StrCat("fc_norm.", i, ".weight");
    NACRE_ASSIGN_OR_RETURN(weights->tap_norms.emplace_back(),
                           loader->Vector({{part.c_str(), config.tap_size}}));
  }
  return absl::OkStatus();
}

// Of EAGLE-3's layer and head.
absl::Status LoadNorms(const EagleConfig& config, DraftTensors* loader,
                       EagleWeights* weights) {
  const int hidden = config.llama.hidden_size;
  NACRE_ASSIGN_OR_RETURN(
      weights->embedding_norm,
      loader->Vector({{"layer.input_layernorm.weight", hidden}}));
  NACRE_ASSIGN_OR_RETURN(
      weights->hidden_norm,
      loader->Vector({{"layer.hidden_norm.weight", hidden}}));
  NACRE_ASSIGN_OR_RETURN(weights->final_norm.weight,
                         loader->Vector({{"norm.weight", hidden}}));
  return absl::OkStatus();
}

// d2t has, for each row of the head, what to add to its number.
absl::StatusOr<std::vector<int32_t>> ReadTokenIds(const Checkpoint& checkpoint,
                                                  const std::string& name,
                                                  int draft_vocab_size,
                                                  int target_vocab_size) {
  NACRE_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets,
                         checkpoint.Integers(name));
  if (offsets.size() != static_cast<size_t>(draft_vocab_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", name, " has ", offsets.size(),
                     " offsets, draft_vocab_size is ", draft_vocab_size));
  }
  std::vector<int32_t> ids;
  std::vector<bool> seen(static_cast<size_t>(target_vocab_size), false);
  for (size_t i = 0; i < offsets.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i);
    if (offsets[i] < -row || offsets[i] >= target_vocab_size - row) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", name, " has the offset ", offsets[i], " at ",
                       i, ", which leads outside the target's vocabulary of ",
                       target_vocab_size));
    }
    const size_t id = static_cast<size_t>(row + offsets[i]);
    if (seen[id]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", name, " leads twice to the token ", id,
          ", the second time at ", i, ": it has offsets, not token ids"));
    }
    seen[id] = true;
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

absl::Status LoadVocabulary(const Checkpoint& checkpoint,
                            const EagleLayout& layout,
                            const EagleConfig& config, int target_vocab_size,
                            DraftTensors* loader, EagleWeights* weights) {
  const int rows = config.llama.vocab_size;
  const int hidden = config.llama.hidden_size;
  if (layout.Has("embed_tokens.weight")) {
    NACRE_ASSIGN_OR_RETURN(
        weights->embedding,
        loader->Table("embed_tokens.weight", target_vocab_size, hidden));
  }
  if (layout.Has("lm_head.weight")) {
    NACRE_ASSIGN_OR_RETURN(weights->head,
                           loader->Packed({{"lm_head.weight", rows}}, hidden));
  }
  if (layout.Has("d2t")) {
    NACRE_ASSIGN_OR_RETURN(weights->token_ids,
                           ReadTokenIds(checkpoint, loader->NameOf("d2t"), rows,
                                        target_vocab_size));
    return absl::OkStatus();
  }
  if (rows == target_vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("draft_vocab_size, or else vocab_size, is ", rows,
                   ", the target's vocabulary ", target_vocab_size,
                   ", and no tensor d2t says which tokens those are"));
}

// EAGLE-1's fc joins each feature with an embedding: it is of the layer.
absl::Status LoadFirst(const EagleLayout& layout, const EagleConfig& config,
                       DraftTensors* loader, EagleWeights* weights) {
  const int hidden = config.llama.hidden_size;
  NACRE_ASSIGN_OR_RETURN(weights->fc, loader->Packed({{"fc.weight", hidden}},
                                                     hidden + config.tap_size));
  if (layout.Has("fc.bias")) {
    NACRE_ASSIGN_OR_RETURN(weights->fc_bias,
                           loader->Vector({{"fc.bias", hidden}}));
  }
  if (!config.norm_inputs) return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(
      weights->embedding_norm,
      loader->Vector({{"embedding_layernorm.weight", hidden}}));
  NACRE_ASSIGN_OR_RETURN(
      weights->hidden_norm,
      loader->Vector({{"hidden_states_layernorm.weight", hidden}}));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EagleWeights> LoadEagleWeights(const Checkpoint& checkpoint,
                                              const EagleLayout& layout,
                                              const EagleConfig& config,
                                              int target_vocab_size,
                                              kernels::Backend* backend,
                                              EagleParts parts) {
  EagleWeights weights;
  DraftTensors loader(checkpoint, layout.names, backend);
  if (layout.is_third && parts != EagleParts::kRest) {
    NACRE_RETURN_IF_ERROR(LoadProjection(config, &loader, &weights));
  }
  if (parts != EagleParts::kProjection) {
    NACRE_RETURN_IF_ERROR(layout.is_third
                              ? LoadNorms(config, &loader, &weights)
                              : LoadFirst(layout, config, &loader, &weights));
    NACRE_RETURN_IF_ERROR(
        LoadLayer(layout, config.llama, &loader, &weights.layer));
    NACRE_RETURN_IF_ERROR(LoadVocabulary(checkpoint, layout, config,
                                         target_vocab_size, &loader, &weights));
  }
  weights.num_parameters = loader.num_parameters();
  weights.size_bytes = loader.size_bytes();
  return weights;
}

}  // namespace nacre::model
