#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/json_fields.h"
#include "common/status_macros.h"
#include "kernels/cpu/attention.h"
#include "model/families.h"
#include "model/mapped_file.h"

namespace nacre::model {
namespace {

// Upper limits. They are far above any published model and keep every product
// that sizes a buffer inside 64 bits and every row inside 32.
constexpr int kMaxHiddenSize = 1 << 17;
constexpr int kMaxIntermediateSize = 1 << 20;
constexpr int kMaxLayers = 4096;
constexpr int kMaxHeads = 4096;
constexpr int kMaxHeadDim = 512;  // of the backends' attention
static_assert(kMaxHeadDim <= kernels::kMaxHeadDim);
constexpr int kMaxContext = 1 << 24;
constexpr int kMaxVocabSize = 1 << 22;
constexpr int kMaxStackedRows = 1 << 22;

// For messages: huge strings and structures are cut.
std::string Shown(const Json& value) {
  std::string text = JsonText(value);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

bool IsAbsent(const Json& object, const char* field) {
  return FindField(object, field) == nullptr;
}

absl::StatusOr<Json> ParseObject(absl::string_view text) {
  Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (json.is_discarded()) return absl::InvalidArgumentError("not valid JSON");
  if (!json.is_object()) {
    return absl::InvalidArgumentError("not a JSON object");
  }
  return json;
}

absl::StatusOr<int> IntInRange(const char* field, const Json& value, int min,
                               int max) {
  const bool fits = value.is_number_integer() &&
                    (value.is_number_unsigned()
                         ? value.get<uint64_t>() <= static_cast<uint64_t>(max)
                         : value.get<int64_t>() <= max) &&
                    value.get<int64_t>() >= min;
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " is ", Shown(value), ", expected an integer from ",
                     min, " to ", max));
  }
  return value.get<int>();
}

absl::StatusOr<int> RequiredInt(const Json& object, const char* field,
                                int max) {
  const Json* const value = FindField(object, field);
  if (value == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(field, " is missing"));
  }
  return IntInRange(field, *value, 1, max);
}

absl::StatusOr<int> IntOr(const Json& object, const char* field, int fallback,
                          int min, int max) {
  const Json* const value = FindField(object, field);
  return value == nullptr ? fallback : IntInRange(field, *value, min, max);
}

absl::StatusOr<double> PositiveOr(const Json& object, const char* field,
                                  double fallback, double max) {
  const Json* const found = FindField(object, field);
  if (found == nullptr) return fallback;
  const Json& value = *found;
  if (!value.is_number() || !(value.get<double>() > 0) ||
      !(value.get<double>() <= max)) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, " is ", Shown(value), ", expected a number > 0 and <= ", max));
  }
  return value.get<double>();
}

absl::StatusOr<bool> BoolOr(const Json& object, const char* field,
                            bool fallback) {
  const Json* const value = FindField(object, field);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " is ", Shown(*value), ", expected true or false"));
  }
  return value->get<bool>();
}

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
  return absl::UnimplementedError(
      absl::StrCat("architecture ", Shown(name),
                   " is not supported; supported: ", SupportedArchitectures()));
}

absl::Status CheckSupported(const Family& family, const Json& json) {
  if (!IsAbsent(json, "hidden_act") && json["hidden_act"] != "silu") {
    return absl::UnimplementedError(
        absl::StrCat("hidden_act ", Shown(json["hidden_act"]),
                     " is not supported; supported: \"silu\""));
  }
  if (!IsAbsent(json, "quantization_config")) {
    return absl::UnimplementedError(
        "quantization_config is set: quantized checkpoints are not supported");
  }
  for (const char* field : {"attention_bias", "mlp_bias"}) {
    // A family that always has biases does not read the field.
    if (family.qkv_bias && absl::string_view(field) == "attention_bias") {
      continue;
    }
    NACRE_ASSIGN_OR_RETURN(const bool has_bias, BoolOr(json, field, false));
    if (has_bias) {
      return absl::UnimplementedError(
          absl::StrCat(field, " true is not supported; supported: false"));
    }
  }
  return absl::OkStatus();
}

// Whether layer_types, or without it max_window_layers, gives a layer a window.
absl::StatusOr<bool> HasWindowLayers(const Json& json, int num_hidden_layers) {
  if (IsAbsent(json, "layer_types")) {
    NACRE_ASSIGN_OR_RETURN(const int first,
                           IntOr(json, "max_window_layers", 28, 0, kMaxLayers));
    return first < num_hidden_layers;
  }
  const Json& types = json["layer_types"];
  if (!types.is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer_types is ", Shown(types), ", expected a list or null"));
  }
  bool has_window = false;
  for (const Json& type : types) {
    if (type == "sliding_attention") {
      has_window = true;
    } else if (type != "full_attention") {
      return absl::UnimplementedError(
          absl::StrCat("layer type ", Shown(type),
                       " is not supported; supported: \"full_attention\""));
    }
  }
  return has_window;
}

// Rows attend to all positions before them: a window must be no limit.
absl::Status CheckSlidingWindow(const Family& family, const Json& json,
                                const ModelConfig& config) {
  bool has_window = family.sliding_window == SlidingWindow::kAlways;
  if (family.sliding_window == SlidingWindow::kIfEnabled) {
    NACRE_ASSIGN_OR_RETURN(const bool enabled,
                           BoolOr(json, "use_sliding_window", false));
    NACRE_ASSIGN_OR_RETURN(has_window,
                           HasWindowLayers(json, config.num_hidden_layers));
    has_window = has_window && enabled;
  }
  const auto field = json.find("sliding_window");
  if (!has_window || (field != json.end() && field->is_null())) {
    return absl::OkStatus();
  }
  NACRE_ASSIGN_OR_RETURN(
      const int window,
      IntOr(json, "sliding_window", family.default_sliding_window, 1,
            std::numeric_limits<int>::max()));
  if (window >= config.max_position_embeddings) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "sliding_window ", window, field == json.end() ? " (the default)" : "",
      " is less than max_position_embeddings ", config.max_position_embeddings,
      ": attention within a window is not supported; supported: null, or at "
      "least max_position_embeddings, which may be lowered to ",
      window));
}

// `rope` is the object "rope_scaling", or "rope_parameters" of newer folders,
// which also holds rope_theta.
absl::Status ParseRope(const Json& rope, ModelConfig* config) {
  constexpr double kMaxNumber = 1e12;
  NACRE_ASSIGN_OR_RETURN(
      config->rope_theta,
      PositiveOr(rope, "rope_theta", config->rope_theta, kMaxNumber));
  if (!IsAbsent(rope, "partial_rotary_factor") &&
      rope["partial_rotary_factor"] != 1.0) {
    return absl::UnimplementedError(absl::StrCat(
        "partial_rotary_factor ", Shown(rope["partial_rotary_factor"]),
        " is not supported"));
  }
  const char* type_field = IsAbsent(rope, "rope_type") ? "type" : "rope_type";
  if (IsAbsent(rope, type_field) || rope[type_field] == "default") {
    return absl::OkStatus();
  }
  RopeScaling& scaling = config->rope_scaling;
  if (rope[type_field] == "linear") {
    scaling.type = RopeScaling::Type::kLinear;
  } else if (rope[type_field] == "llama3") {
    scaling.type = RopeScaling::Type::kLlama3;
  } else {
    return absl::UnimplementedError(absl::StrCat(
        "rope type ", Shown(rope[type_field]),
        " is not supported; supported: \"default\", \"linear\", \"llama3\""));
  }
  if (IsAbsent(rope, "factor")) {
    return absl::InvalidArgumentError("rope scaling has no factor");
  }
  NACRE_ASSIGN_OR_RETURN(scaling.factor,
                         PositiveOr(rope, "factor", 1.0, kMaxNumber));
  NACRE_ASSIGN_OR_RETURN(scaling.low_freq_factor,
                         PositiveOr(rope, "low_freq_factor", 1.0, kMaxNumber));
  NACRE_ASSIGN_OR_RETURN(scaling.high_freq_factor,
                         PositiveOr(rope, "high_freq_factor", 4.0, kMaxNumber));
  NACRE_ASSIGN_OR_RETURN(
      scaling.original_max_position_embeddings,
      IntOr(rope, "original_max_position_embeddings", 8192, 1, kMaxContext));
  if (scaling.type == RopeScaling::Type::kLlama3 &&
      !(scaling.high_freq_factor > scaling.low_freq_factor)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "high_freq_factor ", scaling.high_freq_factor,
        " must be greater than low_freq_factor ", scaling.low_freq_factor));
  }
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

absl::Status ParseShapes(const Family& family, const Json& json,
                         ModelConfig* config) {
  NACRE_ASSIGN_OR_RETURN(config->hidden_size,
                         RequiredInt(json, "hidden_size", kMaxHiddenSize));
  NACRE_ASSIGN_OR_RETURN(
      config->intermediate_size,
      RequiredInt(json, "intermediate_size", kMaxIntermediateSize));
  NACRE_ASSIGN_OR_RETURN(config->num_hidden_layers,
                         RequiredInt(json, "num_hidden_layers", kMaxLayers));
  NACRE_ASSIGN_OR_RETURN(config->num_attention_heads,
                         RequiredInt(json, "num_attention_heads", kMaxHeads));
  // Null is as many as query heads, whatever the family's default is.
  const bool is_default = !json.contains("num_key_value_heads") &&
                          family.default_num_key_value_heads > 0;
  NACRE_ASSIGN_OR_RETURN(config->num_key_value_heads,
                         IntOr(json, "num_key_value_heads",
                               is_default ? family.default_num_key_value_heads
                                          : config->num_attention_heads,
                               1, kMaxHeads));
  NACRE_ASSIGN_OR_RETURN(config->vocab_size,
                         RequiredInt(json, "vocab_size", kMaxVocabSize));
  NACRE_ASSIGN_OR_RETURN(
      config->max_position_embeddings,
      IntOr(json, "max_position_embeddings",
            family.default_max_position_embeddings, 1, kMaxContext));
  if (!IsAbsent(json, "head_dim")) {
    NACRE_ASSIGN_OR_RETURN(config->head_dim,
                           RequiredInt(json, "head_dim", kMaxHeadDim));
    return absl::OkStatus();
  }
  if (config->hidden_size % config->num_attention_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "head_dim is missing and hidden_size ", config->hidden_size,
        " is not a multiple of num_attention_heads ",
        config->num_attention_heads));
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

}  // namespace

absl::StatusOr<ModelConfig> ParseConfig(absl::string_view config_json) {
  NACRE_ASSIGN_OR_RETURN(const Json json, ParseObject(config_json));
  NACRE_ASSIGN_OR_RETURN(const Family* const family, ReadFamily(json));
  NACRE_RETURN_IF_ERROR(CheckSupported(*family, json));
  ModelConfig config;
  config.architecture = family->architecture;
  config.qkv_bias = family->qkv_bias;
  NACRE_RETURN_IF_ERROR(ParseShapes(*family, json, &config));
  NACRE_RETURN_IF_ERROR(CheckShapes(config));
  NACRE_RETURN_IF_ERROR(CheckSlidingWindow(*family, json, config));
  NACRE_ASSIGN_OR_RETURN(config.rms_norm_eps,
                         PositiveOr(json, "rms_norm_eps", 1e-6, 1.0));
  NACRE_ASSIGN_OR_RETURN(config.tie_word_embeddings,
                         BoolOr(json, "tie_word_embeddings", false));
  NACRE_ASSIGN_OR_RETURN(config.rope_theta,
                         PositiveOr(json, "rope_theta", 10000.0, 1e12));
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (IsAbsent(json, field)) continue;
    if (!json[field].is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(
          field, " is ", Shown(json[field]), ", expected an object or null"));
    }
    NACRE_RETURN_IF_ERROR(ParseRope(json[field], &config));
  }
  NACRE_RETURN_IF_ERROR(ParseEos(json, &config));
  return config;
}

absl::Status ApplyGenerationConfig(absl::string_view generation_config_json,
                                   ModelConfig* config) {
  NACRE_ASSIGN_OR_RETURN(const Json json, ParseObject(generation_config_json));
  return ParseEos(json, config);
}

absl::StatusOr<ModelConfig> ReadConfig(const std::string& dir) {
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

}  // namespace nacre::model
