#include "model/glide_config.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/config_cross.h"
#include "model/config_fields.h"

namespace nacre::model {
namespace {

absl::Status CheckEqual(const char* field, int value, int of_target) {
  if (value == of_target) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", that of the target ", of_target));
}

absl::StatusOr<ModelConfig> ReadOwnLayers(Json json, const ModelInfo& target) {
  json["architectures"] = Json::array({"LlamaForCausalLM"});
  json.erase("eos_token_id");  // the target's matter
  NACRE_ASSIGN_OR_RETURN(ModelConfig llama, ParseConfig(json.dump()));
  if (llama.rope.scaling.type != RopeScaling::Type::kDefault) {
    return absl::UnimplementedError(
        "a GliDe draft whose positions are scaled (rope_scaling) is not "
        "supported");
  }
  NACRE_RETURN_IF_ERROR(
      CheckEqual("vocab_size", llama.vocab_size, target.vocab_size));
  if (llama.num_hidden_layers <= target.num_layers) return llama;
  return absl::InvalidArgumentError(
      absl::StrCat("num_hidden_layers is ", llama.num_hidden_layers,
                   ", more than the layers of the target that they read, ",
                   target.num_layers));
}

absl::StatusOr<CrossOptions> ReadCross(const Json& json, const KeptKv& kv) {
  constexpr char kKvHeads[] = "large_num_key_value_heads";
  NACRE_ASSIGN_OR_RETURN(const CrossOptions cross, ParseCross(json));
  NACRE_RETURN_IF_ERROR(
      CheckEqual("large_num_attention_heads", cross.num_heads, kv.num_heads));
  NACRE_RETURN_IF_ERROR(
      CheckEqual("large_head_dim", cross.head_dim, kv.layers.front().head_dim));
  if (!IsAbsent(json, kKvHeads)) {
    NACRE_RETURN_IF_ERROR(CheckEqual(kKvHeads, cross.num_key_value_heads,
                                     kv.layers.front().num_kv_heads));
  }
  return cross;
}

}  // namespace

absl::StatusOr<GlideConfig> ParseGlideConfig(const Json& json,
                                             const ModelInfo& target,
                                             const KeptKv& kv) {
  if (kv.layers.empty() || !kv.has_whole_heads) {
    return absl::UnimplementedError(
        "a GliDe draft of a target of whose heads only a part turns");
  }
  GlideConfig config;
  NACRE_ASSIGN_OR_RETURN(config.llama, ReadOwnLayers(json, target));
  NACRE_ASSIGN_OR_RETURN(const CrossOptions cross, ReadCross(json, kv));
  config.cross = CrossHeads(cross);
  config.max_depth = cross.max_depth;
  const int own = config.llama.num_hidden_layers;
  for (int i = 0; i < own; ++i) {
    config.taps.push_back({FeatureTap::Kind::kKv, target.num_layers - own + i});
  }
  return config;
}

}  // namespace nacre::model
