#include "model/eagle_config.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "common/status_macros.h"
#include "model/config_fields.h"

namespace nacre::model {
namespace {

// What EAGLE-3 was published with, and what EAGLE-1 is good for: it was not
// trained on its own features.
constexpr int kDefaultDepth = 7;
constexpr int kDefaultDepthOfFirst = 5;
constexpr int kMaxSize = 1 << 22;
constexpr char kLayerIds[] = "eagle_aux_hidden_state_layer_ids";

// An object of `json`; empty where there is none.
absl::StatusOr<Json> ObjectOr(const Json& json, const char* field) {
  if (IsAbsent(json, field)) return Json::object();
  if (json[field].is_object()) return json[field];
  return absl::InvalidArgumentError(absl::StrCat(
      field, " is ", ShownJson(json[field]), ", expected an object or null"));
}

// Layers as numbered in a list, each `step` more in what they are given, in the
// order of the list, in which SpecForge joins them. vLLM and SGLang find each
// layer once, so one that is there twice is none of a draft that they serve. A
// list of none stands for the usual layers, as in vLLM.
absl::StatusOr<std::vector<FeatureTap>> ReadLayerIds(const Json& json, int step,
                                                     int num_layers) {
  std::vector<FeatureTap> taps;
  if (IsAbsent(json, kLayerIds)) return taps;
  const Json& ids = json[kLayerIds];
  if (!ids.is_array() || ids.size() > EagleLayout::kMaxTaps) {
    return absl::InvalidArgumentError(
        absl::StrCat(kLayerIds, " is ", ShownJson(ids), ", expected at most ",
                     EagleLayout::kMaxTaps, " layers"));
  }
  for (const Json& id : ids) {
    NACRE_ASSIGN_OR_RETURN(const int layer,
                           IntInRange(kLayerIds, id, 0, num_layers - step));
    const FeatureTap tap = {FeatureTap::Kind::kIn, layer + step};
    if (std::find(taps.begin(), taps.end(), tap) != taps.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(kLayerIds, " is ", ShownJson(ids), ", with layer ",
                       layer, " twice, expected each at most once"));
    }
    taps.push_back(tap);
  }
  return taps;
}

absl::StatusOr<std::vector<FeatureTap>> ReadTaps(const Json& json,
                                                 const Json& eagle,
                                                 int num_layers) {
  // SafeAILab and vLLM name layers by what they are given; SpecForge and
  // ModelOpt, in an object of their own, by what they give.
  NACRE_ASSIGN_OR_RETURN(std::vector<FeatureTap> given,
                         ReadLayerIds(json, 0, num_layers));
  NACRE_ASSIGN_OR_RETURN(std::vector<FeatureTap> giving,
                         ReadLayerIds(eagle, 1, num_layers));
  if (!given.empty() && !giving.empty() && given != giving) {
    return absl::InvalidArgumentError(absl::StrCat(
        kLayerIds, " ", ShownJson(json[kLayerIds]),
        " and that of "
        "eagle_config, ",
        ShownJson(eagle[kLayerIds]),
        ", are not the same layers: the first names inputs, the second "
        "outputs"));
  }
  if (given.empty()) given = std::move(giving);
  if (!given.empty()) return given;
  if (num_layers < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat(kLayerIds, " is missing, and a target of ", num_layers,
                     " layers has too few for the usual ones"));
  }
  for (const int layer : {2, num_layers / 2, num_layers - 3}) {
    given.push_back({FeatureTap::Kind::kIn, layer});
  }
  return given;
}

// A flag that tensors tell, too.
absl::StatusOr<bool> ReadNormFlag(const Json& json, const Json& eagle,
                                  const char* field, bool has_tensors,
                                  const char* tensors) {
  NACRE_ASSIGN_OR_RETURN(const bool inner, BoolOr(eagle, field, has_tensors));
  NACRE_ASSIGN_OR_RETURN(const bool flag, BoolOr(json, field, inner));
  if (flag == has_tensors) return flag;
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", flag ? "true" : "false", ", but ", tensors,
                   has_tensors ? " is there" : " is missing"));
}

absl::StatusOr<int> ReadDepth(const Json& json, int fallback) {
  NACRE_ASSIGN_OR_RETURN(const Json speculators,
                         ObjectOr(json, "speculators_config"));
  const auto methods = speculators.find("proposal_methods");
  if (methods == speculators.end() || !methods->is_array() ||
      methods->empty() || !(*methods)[0].is_object()) {
    return fallback;
  }
  return IntOr((*methods)[0], "speculative_tokens", fallback, 1,
               EagleConfig::kMaxDepth);
}

// The layer and the head, which are a Llama's.
absl::StatusOr<ModelConfig> ReadLlama(Json json, int draft_vocab_size) {
  NACRE_ASSIGN_OR_RETURN(const int layers,
                         IntOr(json, "num_hidden_layers", 1, 1, kMaxSize));
  NACRE_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(json, "mlp_bias", false));
  if (layers != 1 || mlp_bias) {
    return absl::UnimplementedError(absl::StrCat(
        "an EAGLE draft with num_hidden_layers ", layers, " and mlp_bias ",
        mlp_bias ? "true" : "false", " is not supported; supported: 1, false"));
  }
  json["architectures"] = Json::array({"LlamaForCausalLM"});
  json["num_hidden_layers"] = 1;
  json["vocab_size"] = draft_vocab_size;
  json["tie_word_embeddings"] = false;
  json.erase("eos_token_id");  // the target's matter
  NACRE_ASSIGN_OR_RETURN(ModelConfig config, ParseConfig(json.dump()));
  if (IsAbsent(json, "layer_types")) return config;
  const Json& types = json["layer_types"];
  if (types == Json::array({"full_attention"})) return config;
  if (types != Json::array({"sliding_attention"})) {
    return absl::UnimplementedError(
        absl::StrCat("layer_types ", ShownJson(types),
                     " is not supported; supported: "
                     "[\"full_attention\"], [\"sliding_attention\"]"));
  }
  NACRE_ASSIGN_OR_RETURN(const int window,
                         RequiredInt(json, "sliding_window", kMaxContext));
  config.windows.sizes = {window};
  return config;
}

absl::Status ReadFirst(const Json& json, const EagleLayout& layout,
                       const ModelInfo& target, EagleConfig* config) {
  if (config->llama.hidden_size != target.hidden_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("hidden_size is ", config->llama.hidden_size,
                     ", that of the target ", target.hidden_size));
  }
  config->taps = {{FeatureTap::Kind::kFinal, 0}};
  constexpr char kNorm[] = "embedding_layernorm.weight";
  NACRE_ASSIGN_OR_RETURN(config->norm_inputs,
                         ReadNormFlag(json, Json::object(), "add_para_norm",
                                      layout.Has(kNorm), kNorm));
  return ReadNormFlag(json, Json::object(), "fusion_bias",
                      layout.Has("fc.bias"), "fc.bias")
      .status();
}

absl::Status ReadThird(const Json& json, const EagleLayout& layout,
                       const ModelInfo& target, EagleConfig* config) {
  NACRE_ASSIGN_OR_RETURN(const Json eagle, ObjectOr(json, "eagle_config"));
  NACRE_ASSIGN_OR_RETURN(const bool reads_layers,
                         BoolOr(eagle, "use_aux_hidden_state", true));
  if (!reads_layers) {
    return absl::UnimplementedError(
        "use_aux_hidden_state false of eagle_config is not supported; "
        "supported: true");
  }
  NACRE_ASSIGN_OR_RETURN(config->taps,
                         ReadTaps(json, eagle, target.num_layers));
  NACRE_ASSIGN_OR_RETURN(config->norm_before_residual,
                         BoolOr(json, "norm_before_residual",
                                json.contains("speculators_version")));
  NACRE_ASSIGN_OR_RETURN(config->norm_output,
                         BoolOr(json, "norm_output", false));
  NACRE_ASSIGN_OR_RETURN(
      config->norm_before_fc,
      ReadNormFlag(json, eagle, "norm_before_fc",
                   layout.Has("input_norm.weight"), "input_norm.weight"));
  NACRE_ASSIGN_OR_RETURN(
      config->norm_each_tap,
      ReadNormFlag(json, eagle, "fc_norm", layout.num_fc_norms > 0,
                   "fc_norm.0.weight"));
  if (!config->norm_each_tap ||
      static_cast<size_t>(layout.num_fc_norms) == config->taps.size()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the file has ", layout.num_fc_norms, " fc_norm for ",
                   config->taps.size(), " layers of the target"));
}

}  // namespace

absl::StatusOr<EagleConfig> ParseEagleConfig(const Json& json,
                                             const EagleLayout& layout,
                                             const ModelInfo& target) {
  if (target.num_layers < 1) {
    return absl::UnimplementedError(
        "an EAGLE draft of a model that keeps no features");
  }
  const bool is_nested = json.contains("transformer_layer_config");
  NACRE_ASSIGN_OR_RETURN(const Json llama,
                         is_nested ? ObjectOr(json, "transformer_layer_config")
                                   : absl::StatusOr<Json>(json));
  NACRE_ASSIGN_OR_RETURN(
      const int vocab_size,
      IntOr(llama, "vocab_size", target.vocab_size, 1, kMaxSize));
  NACRE_ASSIGN_OR_RETURN(
      const int draft_vocab_size,
      IntOr(json, "draft_vocab_size", vocab_size, 1, kMaxSize));
  EagleConfig config;
  NACRE_ASSIGN_OR_RETURN(config.llama, ReadLlama(llama, draft_vocab_size));
  NACRE_ASSIGN_OR_RETURN(
      config.tap_size,
      IntOr(json, "target_hidden_size", config.llama.hidden_size, 1, kMaxSize));
  if (config.tap_size != target.hidden_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "target_hidden_size, or else hidden_size, is ", config.tap_size,
        ", that of the target ", target.hidden_size));
  }
  NACRE_ASSIGN_OR_RETURN(
      config.max_depth,
      ReadDepth(json, layout.is_third ? kDefaultDepth : kDefaultDepthOfFirst));
  if (layout.is_third) {
    NACRE_RETURN_IF_ERROR(ReadThird(json, layout, target, &config));
    return config;
  }
  NACRE_RETURN_IF_ERROR(ReadFirst(json, layout, target, &config));
  return config;
}

}  // namespace nacre::model
