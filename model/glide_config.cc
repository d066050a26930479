#include "model/glide_config.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/config_fields.h"

namespace nacre::model {
namespace {

constexpr int kDefaultBlockSize = 5;  // as published
constexpr int kMaxLargeSize = 1 << 22;

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
  NACRE_ASSIGN_OR_RETURN(const bool is_remapped,
                         BoolOr(json, "use_remap", false));
  if (is_remapped) {
    return absl::UnimplementedError(
        "use_remap true is not supported; supported: false");
  }
  NACRE_RETURN_IF_ERROR(
      CheckEqual("vocab_size", llama.vocab_size, target.vocab_size));
  if (llama.num_hidden_layers <= target.num_layers) return llama;
  return absl::InvalidArgumentError(
      absl::StrCat("num_hidden_layers is ", llama.num_hidden_layers,
                   ", more than the layers of the target that they read, ",
                   target.num_layers));
}

absl::StatusOr<ModelConfig> ReadCross(const Json& json, const KeptKv& kv) {
  constexpr char kHeads[] = "large_num_attention_heads";
  constexpr char kHeadSize[] = "large_head_dim";
  ModelConfig cross;
  cross.rope.theta = GlideConfig::kCrossRopeTheta;
  NACRE_ASSIGN_OR_RETURN(cross.num_attention_heads,
                         RequiredInt(json, kHeads, kMaxLargeSize));
  if (IsAbsent(json, kHeadSize)) {
    NACRE_ASSIGN_OR_RETURN(
        const int hidden,
        RequiredInt(json, "large_hidden_size", kMaxLargeSize));
    cross.head_dim = hidden / cross.num_attention_heads;
    if (hidden % cross.num_attention_heads != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("large_hidden_size is ", hidden, ", no multiple of ",
                       kHeads, ", ", cross.num_attention_heads));
    }
  } else {
    NACRE_ASSIGN_OR_RETURN(cross.head_dim,
                           RequiredInt(json, kHeadSize, kMaxLargeSize));
  }
  NACRE_RETURN_IF_ERROR(
      CheckEqual(kHeads, cross.num_attention_heads, kv.num_heads));
  NACRE_RETURN_IF_ERROR(
      CheckEqual(kHeadSize, cross.head_dim, kv.layers.front().head_dim));
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
  NACRE_ASSIGN_OR_RETURN(config.cross, ReadCross(json, kv));
  NACRE_ASSIGN_OR_RETURN(
      config.max_depth,
      IntOr(json, "block_size", kDefaultBlockSize, 1, GlideConfig::kMaxDepth));
  const int own = config.llama.num_hidden_layers;
  for (int i = 0; i < own; ++i) {
    config.taps.push_back({FeatureTap::Kind::kKv, target.num_layers - own + i});
  }
  return config;
}

}  // namespace nacre::model
