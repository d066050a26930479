#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_file.h"
#include "common/json_fields.h"
#include "common/mapped_file.h"
#include "common/status_macros.h"
#include "kernels/cpu/attention.h"
#include "model/config_cross.h"
#include "model/config_fields.h"
#include "model/config_rope.h"
#include "model/draft_files.h"
#include "model/families.h"
#include "model/gguf/gguf_config.h"
#include "model/quantized/quantization.h"

namespace nacre::model {
namespace {

// Upper limits. They are far above any published model and keep every product
// that sizes a buffer inside 64 bits and every row inside 32.
constexpr int kMaxHiddenSize = 1 << 17;
constexpr int kMaxIntermediateSize = 1 << 20;
constexpr int kMaxLayers = 4096;
constexpr int kMaxHeads = 4096;
constexpr int kMaxExperts = 4096;
constexpr int kMaxHeadDim = 512;  // of the backends' attention
static_assert(kMaxHeadDim <= kernels::kMaxHeadDim);
constexpr int kMaxVocabSize = 1 << 22;
constexpr int kMaxStackedRows = 1 << 22;

absl::StatusOr<const Family*> ReadFamily(const Json& json) {
  const auto architectures = json.find("architectures");
  if (architectures == json.end() || !architectures->is_array() ||
      architectures->size() != 1 || !(*architectures)[0].is_string()) {
    return absl::InvalidArgumentError(
        "architectures is missing or not a list of one name");
  }
  const Json& name = (*architectures)[0];
  const Family* const family = FindFamily(name.get<std::string>());
  if (family != nullptr) return family;
  // Whose weights have other names, in a config that holds the text's.
  const char* const hint =
      name == "Gemma3ForConditionalGeneration"
          ? "; of Gemma 3 the text part alone is read, as Gemma3ForCausalLM "
            "(transformers saves it: docs/models.md)"
          : "";
  return absl::UnimplementedError(
      absl::StrCat("architecture ", ShownJson(name), " is not supported", hint,
                   "; supported: ", SupportedArchitectures()));
}

absl::Status ParseBlocks(const Family& family, const Json& json,
                         ModelConfig* config) {
  config->norms.of_heads = family.qk_norm;
  config->norms.is_layer_norm = family.layers.have_layer_norm;
  config->blocks.has_gate = family.is_gated();
  config->blocks.qkv_layout = family.layers.qkv_layout;
  if (family.layers.may_be_parallel) {
    NACRE_ASSIGN_OR_RETURN(config->blocks.is_parallel,
                           BoolOr(json, "use_parallel_residual", true));
  }
  if (!family.is_big_code) return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(const bool reads_others,
                         BoolOr(json, "add_cross_attention", false));
  if (reads_others) {
    return absl::UnimplementedError(
        "add_cross_attention true is not supported; supported: false");
  }
  config->embedding.has_positions = true;
  NACRE_ASSIGN_OR_RETURN(const bool is_multi_query,
                         BoolOr(json, "multi_query", true));
  config->blocks.qkv_layout =
      is_multi_query ? QkvLayout::kStacked : QkvLayout::kByHead;
  return absl::OkStatus();
}

absl::StatusOr<bool> ReadBiases(const Family& family, Biases biases,
                                const char* field, const Json& json) {
  if (biases == Biases::kAlways || biases == Biases::kInputs) return true;
  NACRE_ASSIGN_OR_RETURN(
      const bool has_biases,
      BoolOr(json, field, biases == Biases::kUnlessDisabled));
  if (!has_biases || biases != Biases::kNever) return has_biases;
  return absl::UnimplementedError(
      absl::StrCat(field, " true of ", family.architecture,
                   " is not supported; supported: false"));
}

absl::Status ParseBiases(const Family& family, const Json& json,
                         ModelConfig* config) {
  NACRE_ASSIGN_OR_RETURN(config->qkv_bias,
                         ReadBiases(family, family.attention_bias,
                                    family.fields.attention_bias, json));
  config->attention_output_bias =
      config->qkv_bias && family.attention_bias != Biases::kInputs;
  NACRE_ASSIGN_OR_RETURN(
      config->mlp_bias,
      ReadBiases(family, family.mlp_bias, family.fields.mlp_bias, json));
  return absl::OkStatus();
}

// Of a family whose feed-forward blocks have no gate.
absl::Status ParseGelu(const char* field, const Json& json,
                       ModelConfig* config) {
  if (IsAbsent(json, field)) return absl::OkStatus();
  const Json& name = json[field];
  if (name == "gelu") {
    config->activation = Activation::kGelu;
  } else if (name == "gelu_pytorch_tanh" || name == "gelu_new" ||
             name == "gelu_fast") {
    config->activation = Activation::kGeluTanh;
  } else {
    return absl::UnimplementedError(
        absl::StrCat(field, " ", ShownJson(name),
                     " is not supported; supported: \"gelu\", \"gelu_new\", "
                     "\"gelu_fast\", \"gelu_pytorch_tanh\""));
  }
  return absl::OkStatus();
}

absl::Status ParseActivation(const Family& family, const Json& json,
                             ModelConfig* config) {
  config->activation = family.default_activation;
  if (!family.is_gated())
    return ParseGelu(family.fields.activation, json, config);
  const bool is_old = IsAbsent(json, "hidden_activation");
  const char* const field = is_old ? "hidden_act" : "hidden_activation";
  // Gemma since 2 has the other field only.
  const bool is_later_gemma =
      family.is_gemma && family.default_query_pre_attn_scalar > 0;
  if (IsAbsent(json, field) || (is_old && is_later_gemma)) {
    return absl::OkStatus();
  }
  const Json& name = json[field];
  // Gemma's first configs said "gelu" and meant the other.
  if (name == "gelu_pytorch_tanh" ||
      (family.is_gemma && is_old && name == "gelu")) {
    config->activation = Activation::kGeluTanh;
  } else if (name == "silu") {
    config->activation = Activation::kSilu;
  } else {
    return absl::UnimplementedError(absl::StrCat(
        field, " ", ShownJson(name),
        " is not supported; supported: \"silu\", \"gelu_pytorch_tanh\""));
  }
  return absl::OkStatus();
}

// Of each layer, whether layer_types gives it a window.
absl::StatusOr<std::vector<bool>> ReadLayerTypes(const Json& types,
                                                 int num_hidden_layers) {
  if (!types.is_array() ||
      types.size() != static_cast<size_t>(num_hidden_layers)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer_types is ", ShownJson(types), ", expected a list of ",
        num_hidden_layers, " types, one for each layer, or null"));
  }
  std::vector<bool> has_window;
  for (const Json& type : types) {
    has_window.push_back(type == "sliding_attention");
    if (has_window.back() || type == "full_attention") continue;
    return absl::UnimplementedError(
        absl::StrCat("layer type ", ShownJson(type),
                     " is not supported; supported: \"full_attention\", "
                     "\"sliding_attention\""));
  }
  return has_window;
}

// Of each layer, whether the config gives it a window.
absl::StatusOr<std::vector<bool>> ReadWindowLayers(const Family& family,
                                                   const Json& json,
                                                   int num_hidden_layers) {
  std::vector<bool> has_window(static_cast<size_t>(num_hidden_layers), false);
  if (family.sliding_window == SlidingWindow::kNever) return has_window;
  if (family.sliding_window == SlidingWindow::kAlways) {
    has_window.assign(has_window.size(), true);
    return has_window;
  }
  bool enabled = true;
  if (family.sliding_window != SlidingWindow::kByType) {
    NACRE_ASSIGN_OR_RETURN(enabled, BoolOr(json, "use_sliding_window", false));
  }
  if (family.sliding_window == SlidingWindow::kAllIfEnabled) {
    has_window.assign(has_window.size(), enabled);
    return has_window;
  }
  std::vector<bool> by_type = has_window;
  if (!IsAbsent(json, "layer_types")) {
    NACRE_ASSIGN_OR_RETURN(
        by_type, ReadLayerTypes(json["layer_types"], num_hidden_layers));
  } else if (family.window_pattern > 0) {
    NACRE_ASSIGN_OR_RETURN(const int pattern,
                           IntOr(json, "sliding_window_pattern",
                                 family.window_pattern, 1, kMaxLayers));
    for (int i = 0; i < num_hidden_layers; ++i) {
      by_type[static_cast<size_t>(i)] = (i + 1) % pattern != 0;
    }
  } else {
    NACRE_ASSIGN_OR_RETURN(const int first,
                           IntOr(json, "max_window_layers", 28, 0, kMaxLayers));
    for (int i = first; i < num_hidden_layers; ++i) {
      by_type[static_cast<size_t>(i)] = true;
    }
  }
  return enabled ? by_type : has_window;
}

absl::Status ParseWindows(const Family& family, const Json& json,
                          ModelConfig* config) {
  NACRE_ASSIGN_OR_RETURN(
      const std::vector<bool> has_window,
      ReadWindowLayers(family, json, config->num_hidden_layers));
  const bool has_any =
      std::find(has_window.begin(), has_window.end(), true) != has_window.end();
  const auto field = json.find("sliding_window");
  const bool is_missing = field == json.end();
  if (!has_any || (is_missing && family.default_sliding_window == 0) ||
      (!is_missing && field->is_null())) {
    return absl::OkStatus();
  }
  NACRE_ASSIGN_OR_RETURN(
      const int window,
      IntOr(json, "sliding_window", family.default_sliding_window, 1,
            std::numeric_limits<int>::max()));
  // Else it limits nothing. But such a layer may turn by another theta.
  if (window >= config->max_position_embeddings &&
      config->windows.rope_theta == 0) {
    return absl::OkStatus();
  }
  for (const bool has_one : has_window) {
    config->windows.sizes.push_back(has_one ? window : 0);
  }
  return absl::OkStatus();
}

// Null is no cap, whatever the family's default is.
absl::StatusOr<double> ReadSoftCap(const Json& json, const char* field,
                                   double fallback) {
  const auto found = json.find(field);
  if (found != json.end() && found->is_null()) return 0.0;
  return PositiveOr(json, field, fallback, 1e12);
}

absl::Status ParseAttentionScalar(const Family& family, const Json& json,
                                  ModelConfig* config) {
  config->attention_scalar = config->head_dim;
  if (family.is_big_code) {
    NACRE_ASSIGN_OR_RETURN(const bool is_scaled,
                           BoolOr(json, "scale_attn_weights", true));
    if (!is_scaled) config->attention_scalar = 1;
  }
  if (family.default_query_pre_attn_scalar == 0) return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(
      config->attention_scalar,
      PositiveOr(json, "query_pre_attn_scalar",
                 family.default_query_pre_attn_scalar, 1e12));
  return absl::OkStatus();
}

absl::Status ParseGemma(const Family& family, const Json& json,
                        ModelConfig* config) {
  if (!family.is_gemma) return absl::OkStatus();
  config->norms.offset = 1;
  config->embedding.is_scaled = true;
  config->norms.after_both = family.tensors.mlp_post_norm != nullptr;
  NACRE_ASSIGN_OR_RETURN(const bool sees_later,
                         BoolOr(json, "use_bidirectional_attention", false));
  if (sees_later) {
    return absl::UnimplementedError(
        "use_bidirectional_attention true is not supported; supported: false");
  }
  if (family.default_query_pre_attn_scalar == 0) return absl::OkStatus();
  // Gemma 3 keeps the field in its config, and no layer of it reads it.
  if (family.default_attn_logit_softcapping > 0) {
    NACRE_ASSIGN_OR_RETURN(config->soft_caps.attention,
                           ReadSoftCap(json, "attn_logit_softcapping",
                                       family.default_attn_logit_softcapping));
  }
  NACRE_ASSIGN_OR_RETURN(config->soft_caps.final,
                         ReadSoftCap(json, "final_logit_softcapping",
                                     family.default_final_logit_softcapping));
  return absl::OkStatus();
}

// Which layers have no experts.
absl::StatusOr<std::vector<bool>> ReadDenseLayers(const Json& json,
                                                  int num_hidden_layers) {
  std::vector<bool> dense(static_cast<size_t>(num_hidden_layers), false);
  NACRE_ASSIGN_OR_RETURN(const int step,
                         IntOr(json, "decoder_sparse_step", 1, 1, kMaxLayers));
  for (int i = 0; i < num_hidden_layers; ++i) {
    dense[static_cast<size_t>(i)] = (i + 1) % step != 0;
  }
  if (IsAbsent(json, "mlp_only_layers")) return dense;
  const Json& layers = json["mlp_only_layers"];
  if (!layers.is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat("mlp_only_layers is ", ShownJson(layers),
                     ", expected a list of layers or null"));
  }
  for (const Json& layer : layers) {
    NACRE_ASSIGN_OR_RETURN(
        const int index,
        IntInRange("mlp_only_layers", layer, 0, num_hidden_layers - 1));
    dense[static_cast<size_t>(index)] = true;
  }
  return dense;
}

absl::Status ParseExperts(const Family& family, const Json& json,
                          ModelConfig* config) {
  if (family.experts.default_count == 0) return absl::OkStatus();
  // Of either family: transformers 5 saves both as the first.
  const char* const count =
      IsAbsent(json, "num_local_experts") ? "num_experts" : "num_local_experts";
  NACRE_ASSIGN_OR_RETURN(
      config->experts.count,
      IntOr(json, count, family.experts.default_count, 1, kMaxExperts));
  NACRE_ASSIGN_OR_RETURN(
      config->experts.per_token,
      IntOr(json, "num_experts_per_tok", family.experts.default_per_token, 1,
            config->experts.count));
  NACRE_ASSIGN_OR_RETURN(
      config->experts.size,
      RequiredInt(json, family.experts.size, kMaxIntermediateSize));
  config->experts.normalize = true;
  if (family.experts.always_normalize) return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(config->experts.normalize,
                         BoolOr(json, "norm_topk_prob", false));
  NACRE_ASSIGN_OR_RETURN(config->experts.dense_layers,
                         ReadDenseLayers(json, config->num_hidden_layers));
  return absl::OkStatus();
}

absl::Status ParseEos(const Json& json, ModelConfig* config) {
  if (IsAbsent(json, "eos_token_id")) return absl::OkStatus();
  const Json& value = json["eos_token_id"];
  std::vector<int32_t> ids;
  const size_t count = value.is_array() ? value.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    NACRE_ASSIGN_OR_RETURN(
        const int id,
        IntInRange("eos_token_id", value.is_array() ? value[i] : value, 0,
                   config->vocab_size - 1));
    ids.push_back(id);
  }
  // Equal models have equal lists, whatever the order in their files.
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  config->eos_token_ids = std::move(ids);
  return absl::OkStatus();
}

absl::Status ParseKvHeads(const Family& family, const Json& json,
                          ModelConfig* config) {
  config->num_key_value_heads = config->num_attention_heads;
  if (config->blocks.qkv_layout == QkvLayout::kByHead) return absl::OkStatus();
  if (family.is_big_code) {
    config->num_key_value_heads = 1;
    return absl::OkStatus();
  }
  // Null is as many as query heads, whatever the family's default is.
  const bool is_default = !json.contains("num_key_value_heads") &&
                          family.default_num_key_value_heads > 0;
  NACRE_ASSIGN_OR_RETURN(config->num_key_value_heads,
                         IntOr(json, "num_key_value_heads",
                               is_default ? family.default_num_key_value_heads
                                          : config->num_attention_heads,
                               1, kMaxHeads));
  return absl::OkStatus();
}

absl::Status ParseShapes(const Family& family, const Json& json,
                         ModelConfig* config) {
  const FieldNames& fields = family.fields;
  NACRE_ASSIGN_OR_RETURN(config->hidden_size,
                         RequiredInt(json, fields.hidden_size, kMaxHiddenSize));
  if (family.is_big_code && IsAbsent(json, fields.intermediate_size)) {
    config->intermediate_size = 4 * config->hidden_size;
  } else {
    NACRE_ASSIGN_OR_RETURN(
        config->intermediate_size,
        RequiredInt(json, fields.intermediate_size, kMaxIntermediateSize));
  }
  NACRE_ASSIGN_OR_RETURN(config->num_hidden_layers,
                         RequiredInt(json, fields.num_layers, kMaxLayers));
  NACRE_ASSIGN_OR_RETURN(config->num_attention_heads,
                         RequiredInt(json, fields.num_heads, kMaxHeads));
  NACRE_RETURN_IF_ERROR(ParseKvHeads(family, json, config));
  NACRE_ASSIGN_OR_RETURN(config->vocab_size,
                         RequiredInt(json, "vocab_size", kMaxVocabSize));
  NACRE_ASSIGN_OR_RETURN(
      config->max_position_embeddings,
      IntOr(json, fields.context, family.default_max_position_embeddings, 1,
            kMaxContext));
  if (!IsAbsent(json, "head_dim")) {
    NACRE_ASSIGN_OR_RETURN(config->head_dim,
                           RequiredInt(json, "head_dim", kMaxHeadDim));
    return absl::OkStatus();
  }
  if (family.default_head_dim > 0) {
    config->head_dim = family.default_head_dim;
    return absl::OkStatus();
  }
  if (config->hidden_size % config->num_attention_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("head_dim is missing and ", fields.hidden_size, " ",
                     config->hidden_size, " is not a multiple of ",
                     fields.num_heads, " ", config->num_attention_heads));
  }
  config->head_dim = config->hidden_size / config->num_attention_heads;
  return absl::OkStatus();
}

absl::Status CheckShapes(const ModelConfig& config) {
  if (config.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "head_dim is ", config.head_dim, ", expected an even number"));
  }
  if (config.head_dim > kMaxHeadDim) {  // hidden_size / num_attention_heads
    return absl::InvalidArgumentError(absl::StrCat(
        "head_dim is ", config.head_dim, ", the limit is ", kMaxHeadDim));
  }
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_attention_heads ", config.num_attention_heads,
                     " is not a multiple of num_key_value_heads ",
                     config.num_key_value_heads));
  }
  const int64_t stacked_rows = (int64_t{config.num_attention_heads} +
                                2 * int64_t{config.num_key_value_heads}) *
                               config.head_dim;
  if (stacked_rows > kMaxStackedRows) {
    return absl::InvalidArgumentError(absl::StrCat(
        "(num_attention_heads + 2 * num_key_value_heads) * head_dim is ",
        stacked_rows, ", the limit is ", kMaxStackedRows));
  }
  return absl::OkStatus();
}

absl::Status InFile(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<ModelConfig> ReadGgufConfig(const std::string& path) {
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<gguf::File> file,
                         gguf::File::Open(path));
  const absl::StatusOr<std::string> json = GgufConfigJson(file->contents());
  if (!json.ok()) return InFile(path, json.status());
  absl::StatusOr<ModelConfig> config = ParseConfig(*json);
  if (!config.ok()) return InFile(path, config.status());
  return config;
}

// Without what it reads of its target a GliDe draft would be a Llama that says
// little.
absl::Status CheckMethod(const std::string& dir, const ModelConfig& config) {
  if (config.cross.has_value()) return absl::OkStatus();
  // Of a plain model the card is not read: it may be anything.
  const absl::StatusOr<std::string> method = DraftMethod(dir);
  if (!method.ok() || *method != "glide") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(dir, "/config.json: large_num_attention_heads is missing, ",
                   "but nacre_draft.json says that it is a GliDe draft"));
}

}  // namespace

absl::StatusOr<ModelConfig> ParseConfig(absl::string_view config_json) {
  NACRE_ASSIGN_OR_RETURN(Json json, ParseJsonObject(config_json));
  const bool has_cross = HasCross(json);
  // Its architecture has a name of its own.
  if (has_cross) json["architectures"] = {"LlamaForCausalLM"};
  NACRE_ASSIGN_OR_RETURN(const Family* const family, ReadFamily(json));
  NACRE_RETURN_IF_ERROR(ParseQuantization(json).status());
  ModelConfig config;
  config.architecture = family->architecture;
  NACRE_RETURN_IF_ERROR(ParseBlocks(*family, json, &config));
  NACRE_RETURN_IF_ERROR(ParseBiases(*family, json, &config));
  NACRE_RETURN_IF_ERROR(ParseShapes(*family, json, &config));
  NACRE_RETURN_IF_ERROR(CheckShapes(config));
  NACRE_RETURN_IF_ERROR(ParseActivation(*family, json, &config));
  NACRE_RETURN_IF_ERROR(ParseAttentionScalar(*family, json, &config));
  NACRE_RETURN_IF_ERROR(ParseGemma(*family, json, &config));
  NACRE_RETURN_IF_ERROR(ParseExperts(*family, json, &config));
  NACRE_ASSIGN_OR_RETURN(config.norms.epsilon,
                         PositiveOr(json, family->fields.norm_epsilon,
                                    family->default_norm_epsilon, 1.0));
  NACRE_ASSIGN_OR_RETURN(
      config.tie_word_embeddings,
      BoolOr(json, "tie_word_embeddings", family->default_tie_word_embeddings));
  NACRE_RETURN_IF_ERROR(ParseRope(*family, json, &config));
  NACRE_RETURN_IF_ERROR(ParseWindows(*family, json, &config));
  NACRE_RETURN_IF_ERROR(ParseEos(json, &config));
  if (has_cross) {
    NACRE_ASSIGN_OR_RETURN(config.cross, ParseCross(json));
  }
  return config;
}

absl::Status ApplyGenerationConfig(absl::string_view generation_config_json,
                                   ModelConfig* config) {
  NACRE_ASSIGN_OR_RETURN(const Json json,
                         ParseJsonObject(generation_config_json));
  return ParseEos(json, config);
}

absl::StatusOr<std::string> ReadConfigText(const std::string& dir) {
  if (gguf::File::Is(dir)) {
    NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<gguf::File> file,
                           gguf::File::Open(dir));
    const absl::StatusOr<std::string> json = GgufConfigJson(file->contents());
    if (!json.ok()) return InFile(dir, json.status());
    // What tensors say of the config is in no metadata.
    return absl::StrCat(file->contents().metadata_bytes, *json);
  }
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> config_file,
                         MappedFile::Open(absl::StrCat(dir, "/config.json")));
  return std::string(config_file->bytes());
}

absl::StatusOr<ModelConfig> ReadConfig(const std::string& dir) {
  if (gguf::File::Is(dir)) return ReadGgufConfig(dir);
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error)) {
    return absl::NotFoundError(
        absl::StrCat("model folder ", dir, " does not exist"));
  }
  const std::string config_path = absl::StrCat(dir, "/config.json");
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> config_file,
                         MappedFile::Open(config_path));
  absl::StatusOr<ModelConfig> config = ParseConfig(config_file->bytes());
  if (!config.ok()) return InFile(config_path, config.status());
  NACRE_RETURN_IF_ERROR(CheckMethod(dir, *config));

  const std::string generation_path =
      absl::StrCat(dir, "/generation_config.json");
  absl::StatusOr<std::unique_ptr<MappedFile>> generation_file =
      MappedFile::Open(generation_path);
  if (absl::IsNotFound(generation_file.status())) return config;
  NACRE_RETURN_IF_ERROR(generation_file.status());
  NACRE_RETURN_IF_ERROR(
      InFile(generation_path,
             ApplyGenerationConfig((*generation_file)->bytes(), &*config)));
  return config;
}

absl::StatusOr<int> OriginalLayers(absl::string_view config_text,
                                   int num_layers) {
  const absl::StatusOr<Json> json = ParseJsonObject(config_text);
  if (!json.ok()) return num_layers;
  return IntOr(*json, "nacre_original_num_hidden_layers", num_layers, 1,
               num_layers);
}

}  // namespace nacre::model
