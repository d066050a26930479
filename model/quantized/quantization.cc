#include "model/quantized/quantization.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/config_fields.h"

namespace nacre::model {
namespace {

constexpr char kConfigField[] = "quantization_config";
constexpr int kMaxGroup = 1 << 24;

absl::Status Unsupported(absl::string_view field, const Json& value,
                         absl::string_view supported) {
  return absl::UnimplementedError(
      absl::StrCat(kConfigField, ": ", field, " ", ShownJson(value),
                   " is not supported; supported: ", supported));
}

// An error unless the field is absent or `expected`.
absl::Status CheckIs(const Json& json, const char* field, const Json& expected,
                     absl::string_view supported) {
  if (IsAbsent(json, field) || json[field] == expected) return absl::OkStatus();
  return Unsupported(field, json[field], supported);
}

// -1, all columns, becomes 0.
absl::StatusOr<int> ReadGroupSize(const Json& json, int fallback) {
  NACRE_ASSIGN_OR_RETURN(const int size,
                         IntOr(json, "group_size", fallback, -1, kMaxGroup));
  if (size == 0)
    return Unsupported("group_size", 0, "-1 and whole numbers > 0");
  return size == -1 ? 0 : size;
}

absl::StatusOr<Quantization> ParseAwq(const Json& json) {
  Quantization result;
  result.format = QuantizedFormat::kAwq;
  result.bits = 4;
  result.has_zeros = true;
  // AutoAWQ has written the first of these names in several cases.
  const char* const format = IsAbsent(json, "version") ? "format" : "version";
  if (!IsAbsent(json, format)) {
    const Json& value = json[format];
    if (!value.is_string() ||
        !absl::EqualsIgnoreCase(value.get<std::string>(), "gemm")) {
      return Unsupported(format, value, "\"gemm\"");
    }
  }
  NACRE_RETURN_IF_ERROR(CheckIs(json, "bits", 4, "4"));
  NACRE_RETURN_IF_ERROR(CheckIs(json, "zero_point", true, "true"));
  const Json* const backend = FindField(json, "backend");
  if (backend != nullptr && *backend == "llm-awq") {
    return Unsupported("backend", *backend, "\"autoawq\" or none");
  }
  NACRE_ASSIGN_OR_RETURN(result.block_cols, ReadGroupSize(json, 128));
  return result;
}

// Numbers of bits and sizes of groups that hold for some layers only. What says
// which layers are not quantized ("-:...") says what their tensors say, too.
absl::Status CheckNoOverrides(const Json& json) {
  if (IsAbsent(json, "dynamic")) return absl::OkStatus();
  const Json& overrides = json["dynamic"];
  if (!overrides.is_object()) {
    return Unsupported("dynamic", overrides, "an object or none");
  }
  for (const auto& [layers, change] : overrides.items()) {
    if (absl::StartsWith(layers, "-:")) continue;
    return absl::UnimplementedError(
        absl::StrCat(kConfigField, ": dynamic has ", ShownJson(layers),
                     ": layers that are quantized in another way than the rest "
                     "are not supported"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Quantization> ParseGptq(const Json& json) {
  Quantization result;
  result.format = QuantizedFormat::kGptq;
  result.has_zeros = true;
  const Json* const bits = FindField(json, "bits");
  if (bits == nullptr || (*bits != 4 && *bits != 8)) {
    return Unsupported("bits", bits == nullptr ? Json() : *bits, "4, 8");
  }
  result.bits = bits->get<int>();
  const char* const format =
      IsAbsent(json, "checkpoint_format") ? "format" : "checkpoint_format";
  result.zeros_lack_one = IsAbsent(json, format) || json[format] == "gptq";
  if (!result.zeros_lack_one && json[format] != "gptq_v2") {
    return Unsupported(format, json[format], "\"gptq\", \"gptq_v2\"");
  }
  NACRE_RETURN_IF_ERROR(CheckIs(json, "pack_dtype", "int32", "\"int32\""));
  NACRE_RETURN_IF_ERROR(CheckIs(json, "is_marlin_format", false, "false"));
  NACRE_RETURN_IF_ERROR(CheckNoOverrides(json));
  NACRE_ASSIGN_OR_RETURN(result.block_cols, ReadGroupSize(json, 128));
  NACRE_ASSIGN_OR_RETURN(result.orders_columns,
                         BoolOr(json, "desc_act", false));
  return result;
}

// [rows, columns] that share a scale.
absl::Status ReadBlock(const Json& json, const char* field,
                       Quantization* result) {
  const Json* const block = FindField(json, field);
  if (block == nullptr || !block->is_array() || block->size() != 2) {
    return Unsupported(field, block == nullptr ? Json() : *block,
                       "two whole numbers, rows and columns of a block");
  }
  NACRE_ASSIGN_OR_RETURN(result->block_rows,
                         IntInRange(field, (*block)[0], 1, kMaxGroup));
  NACRE_ASSIGN_OR_RETURN(result->block_cols,
                         IntInRange(field, (*block)[1], 1, kMaxGroup));
  return absl::OkStatus();
}

// F8_E4M3: of transformers in blocks; without a word about blocks AutoFP8's,
// one scale a tensor.
absl::StatusOr<Quantization> ParseFp8(const Json& json) {
  Quantization result;
  result.is_float = true;
  NACRE_RETURN_IF_ERROR(CheckIs(json, "fmt", "e4m3", "\"e4m3\""));
  if (!json.contains("weight_block_size")) {
    result.block_rows = 0;
    return result;
  }
  result.has_inverse_name = true;
  NACRE_RETURN_IF_ERROR(CheckIs(json, "scale_fmt", "float", "\"float\""));
  NACRE_RETURN_IF_ERROR(ReadBlock(json, "weight_block_size", &result));
  return result;
}

absl::Status ReadStrategy(const Json& weights, Quantization* result) {
  const Json* const strategy = FindField(weights, "strategy");
  const Json name = strategy == nullptr ? Json() : *strategy;
  if (name == "tensor") {
    result->block_rows = 0;
  } else if (name == "group") {
    NACRE_ASSIGN_OR_RETURN(result->block_cols,
                           RequiredInt(weights, "group_size", kMaxGroup));
  } else if (name == "block") {
    return ReadBlock(weights, "block_structure", result);
  } else if (name != "channel") {
    return Unsupported("strategy of weights", name,
                       "\"tensor\", \"channel\", \"group\", \"block\"");
  }
  return absl::OkStatus();
}

// In which order a group's columns were quantized. Only "group" leaves them in
// groups of that order ("dynamic" and true are older names of it).
absl::Status ReadOrder(const Json& weights, Quantization* result) {
  const Json* const order = FindField(weights, "actorder");
  if (order == nullptr || *order == "weight" || *order == "static" ||
      *order == false) {
    return absl::OkStatus();
  }
  if (*order != "group" && *order != "dynamic" && *order != true) {
    return Unsupported(
        "actorder of weights", *order,
        "\"weight\", \"static\", \"group\", \"dynamic\" or none");
  }
  const Json* const strategy = FindField(weights, "strategy");
  if (strategy == nullptr || *strategy != "group") {
    return Unsupported("strategy of weights with actorder \"group\"",
                       strategy == nullptr ? Json() : *strategy, "\"group\"");
  }
  result->orders_columns = true;
  return absl::OkStatus();
}

// The numbers of a compressed-tensors group's `weights`.
absl::StatusOr<Quantization> ReadScheme(const Json& format,
                                        const Json& weights) {
  Quantization result;
  if (format == "pack-quantized") {
    result.format = QuantizedFormat::kPacked;
  } else if (format != "float-quantized" && format != "int-quantized" &&
             format != "naive-quantized") {
    return Unsupported("format", format,
                       "\"float-quantized\", \"int-quantized\", "
                       "\"naive-quantized\", \"pack-quantized\"");
  }
  const bool is_packed = result.format == QuantizedFormat::kPacked;
  const Json* const type = FindField(weights, "type");
  result.is_float = type != nullptr && *type == "float";
  if (type != nullptr && *type != "int" && (is_packed || !result.is_float)) {
    return Unsupported("type of weights", *type,
                       is_packed ? "\"int\"" : "\"float\", \"int\"");
  }
  NACRE_ASSIGN_OR_RETURN(result.bits, IntOr(weights, "num_bits", 8, 1, 64));
  if (result.bits != 8 && (!is_packed || result.bits != 4)) {
    return Unsupported("num_bits of weights", result.bits,
                       is_packed ? "4, 8" : "8");
  }
  NACRE_ASSIGN_OR_RETURN(const bool is_symmetric,
                         BoolOr(weights, "symmetric", true));
  result.has_zeros = !is_symmetric;
  if (result.is_float && result.has_zeros) {
    return Unsupported("symmetric of weights of type \"float\"", false, "true");
  }
  NACRE_RETURN_IF_ERROR(ReadOrder(weights, &result));
  NACRE_RETURN_IF_ERROR(ReadStrategy(weights, &result));
  if (is_packed && result.has_zeros && result.block_rows != 1) {
    return Unsupported("strategy of weights that are not symmetric",
                       weights["strategy"], "\"channel\", \"group\"");
  }
  return result;
}

// What is said of activations and the KV cache decides how others compute, not
// what weights are: it is not read.
absl::StatusOr<Quantization> ParseCompressedTensors(const Json& json) {
  const Json* const sparsity = FindField(json, "sparsity_config");
  if (sparsity != nullptr && sparsity->is_object() &&
      !IsAbsent(*sparsity, "format") && (*sparsity)["format"] != "dense") {
    return Unsupported("format of sparsity_config", (*sparsity)["format"],
                       "\"dense\"");
  }
  // Rotations that others compute beside the quantized layers.
  const Json* const transforms = FindField(json, "transform_config");
  if (transforms != nullptr && !transforms->empty()) {
    return Unsupported("transform_config", *transforms, "none");
  }
  const Json* const groups = FindField(json, "config_groups");
  if (groups == nullptr || !groups->is_object() || groups->size() != 1) {
    return Unsupported("config_groups",
                       groups == nullptr ? Json() : Json(groups->size()),
                       "one group, all of whose layers are quantized alike");
  }
  const Json& group = *groups->begin();
  const Json* const weights =
      group.is_object() ? FindField(group, "weights") : nullptr;
  if (weights == nullptr || !weights->is_object()) {
    return Unsupported("config_groups", group, "a group with weights");
  }
  const Json* const own_format = FindField(group, "format");
  const Json* const format =
      own_format != nullptr ? own_format : FindField(json, "format");
  return ReadScheme(format == nullptr ? Json() : *format, *weights);
}

absl::StatusOr<Quantization> ParseMethod(const Json& json) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(
        kConfigField, " is ", ShownJson(json), ", expected an object or null"));
  }
  const Json* const found = FindField(json, "quant_method");
  const Json method = found == nullptr ? Json() : *found;
  if (method == "compressed-tensors") return ParseCompressedTensors(json);
  if (method == "fp8") return ParseFp8(json);
  if (method == "awq") return ParseAwq(json);
  if (method == "gptq") return ParseGptq(json);
  return Unsupported("quant_method", method,
                     "\"compressed-tensors\", \"fp8\", \"awq\", \"gptq\"");
}

}  // namespace

absl::StatusOr<std::optional<Quantization>> ParseQuantization(
    const Json& config) {
  if (!IsAbsent(config, "compression_config")) {
    return absl::UnimplementedError(
        "compression_config is not supported; supported: quantization_config");
  }
  const Json* const json = FindField(config, kConfigField);
  if (json == nullptr) return std::optional<Quantization>();
  NACRE_ASSIGN_OR_RETURN(const Quantization result, ParseMethod(*json));
  return std::optional<Quantization>(result);
}

absl::StatusOr<std::optional<Quantization>> ReadQuantization(
    absl::string_view config_json) {
  NACRE_ASSIGN_OR_RETURN(const Json config,
                         ParseJsonObject(config_json, "config.json"));
  return ParseQuantization(config);
}

}  // namespace nacre::model
