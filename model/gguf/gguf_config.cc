#include "model/gguf/gguf_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/json_fields.h"
#include "common/status_macros.h"

namespace nacre::model {
namespace {

using gguf::Contents;
using gguf::Metadata;

struct Architecture {
  absl::string_view name;
  const char* hugging_face;
  bool has_paired_rows;
};

// Mistral's is "llama", too.
constexpr Architecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM", true},
    {"qwen2", "Qwen2ForCausalLM", false},
    {"qwen3", "Qwen3ForCausalLM", false},
};

// Keys of an architecture that are read, or that say nothing of the model: the
// tensors tell the size of the vocabulary.
constexpr absl::string_view kKeys[] = {
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_used_count",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "vocab_size",
};

// Control tokens that end an answer, whatever the file's ids of end tokens are:
// these name one, and published chat models end with several.
constexpr absl::string_view kEndTokens[] = {"<|end_of_text|>", "<|endoftext|>",
                                            "<|eom_id|>", "<|eot_id|>",
                                            "<|im_end|>"};
constexpr int32_t kControlToken = 3;

absl::StatusOr<const Architecture*> FindArchitecture(const Metadata& metadata) {
  NACRE_ASSIGN_OR_RETURN(const absl::string_view name,
                         metadata.String("general.architecture"));
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
  }
  return absl::UnimplementedError(
      absl::StrCat("general.architecture ", gguf::Shown(name),
                   " of GGUF files is not supported; supported: \"llama\" "
                   "(Mistral, too), \"qwen2\", \"qwen3\""));
}

absl::Status CheckKeys(const Metadata& metadata, absl::string_view prefix) {
  for (const absl::string_view key : metadata.Keys()) {
    if (!absl::StartsWith(key, prefix)) continue;
    const absl::string_view name = key.substr(prefix.size());
    if (absl::c_linear_search(kKeys, name)) continue;
    if (name == "tensor_data_layout") {
      // What old converters call the rows of HasPairedRows.
      NACRE_ASSIGN_OR_RETURN(const absl::string_view layout,
                             metadata.String(key));
      if (prefix == "llama." && layout == "Meta AI original pth") continue;
    }
    return absl::UnimplementedError(absl::StrCat(
        "metadata ", gguf::Shown(key), " changes the model and is not read"));
  }
  NACRE_ASSIGN_OR_RETURN(
      const uint64_t experts,
      metadata.UnsignedOr(absl::StrCat(prefix, "expert_count"), 0));
  if (experts > 0) {
    return absl::UnimplementedError(
        absl::StrCat("metadata ", prefix, "expert_count is ", experts,
                     ": experts are read from safetensors only"));
  }
  return absl::OkStatus();
}

// The shortest decimal number that is this float: what config.json had.
double AsWritten(float value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  double written = value;
  std::from_chars(text, end, written);
  return written;
}

absl::StatusOr<double> Written(const Metadata& metadata,
                               const std::string& key) {
  NACRE_ASSIGN_OR_RETURN(const double value, metadata.Float(key));
  const auto narrow = static_cast<float>(value);
  if (std::isfinite(narrow)) return AsWritten(narrow);
  return absl::InvalidArgumentError(
      absl::StrCat("metadata ", key, " is ", value, ", expected a number"));
}

// What each pair's frequency is divided by: what the converter makes of Llama
// 3's scaling.
absl::StatusOr<std::vector<double>> PairFactors(const gguf::Tensor& tensor) {
  if (tensor.type->id != 0 || tensor.shape.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor rope_freqs.weight is ", tensor.type->name, " of ",
        tensor.shape.size(), " dimensions, expected F32 of one dimension"));
  }
  std::vector<double> factors;
  for (size_t at = 0; at < tensor.bytes.size(); at += sizeof(float)) {
    float factor;
    std::memcpy(&factor, tensor.bytes.data() + at, sizeof(factor));
    if (!std::isfinite(factor) || !(factor > 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor rope_freqs.weight holds ", factor, ", expected numbers > 0"));
    }
    factors.push_back(factor);
  }
  return factors;
}

absl::Status SetScaling(const Contents& contents, const std::string& prefix,
                        Json* config) {
  const Metadata& metadata = contents.metadata;
  const std::string scaling = absl::StrCat(prefix, "rope.scaling.");
  const std::string old_factor = absl::StrCat(prefix, "rope.scale_linear");
  absl::string_view type = "none";
  if (metadata.Has(scaling + "type")) {
    NACRE_ASSIGN_OR_RETURN(type, metadata.String(scaling + "type"));
  } else if (metadata.Has(old_factor) || metadata.Has(scaling + "factor")) {
    type = "linear";
  }
  const auto factors = contents.tensors.find("rope_freqs.weight");
  if (factors != contents.tensors.end()) {
    if (type != "none") {
      return absl::UnimplementedError(
          absl::StrCat("rope_freqs.weight beside ", scaling, "type ",
                       gguf::Shown(type), " is not supported"));
    }
    NACRE_ASSIGN_OR_RETURN(const std::vector<double> pairs,
                           PairFactors(factors->second));
    (*config)["rope_scaling"] = {{"rope_type", "longrope"},
                                 {"short_factor", pairs},
                                 {"long_factor", pairs},
                                 {"attention_factor", 1.0},
                                 {"original_max_position_embeddings",
                                  (*config)["max_position_embeddings"]}};
    return absl::OkStatus();
  }
  if (type == "none") return absl::OkStatus();
  if (type != "linear" && type != "yarn") {
    return absl::UnimplementedError(absl::StrCat(
        "metadata ", scaling, "type ", gguf::Shown(type),
        " is not supported; supported: \"none\", \"linear\", \"yarn\""));
  }
  const std::string key =
      metadata.Has(old_factor) ? old_factor : scaling + "factor";
  NACRE_ASSIGN_OR_RETURN(const double factor, Written(metadata, key));
  // llama.cpp's context: its converter writes max_position_embeddings.
  (*config)["nacre_context_length"] = (*config)["max_position_embeddings"];
  Json& written = (*config)["rope_scaling"];
  written = {{"rope_type", std::string(type)}, {"factor", factor}};
  const std::string original = scaling + "original_context_length";
  if (type == "yarn" && metadata.Has(original)) {
    NACRE_ASSIGN_OR_RETURN(written["original_max_position_embeddings"],
                           metadata.Unsigned(original));
  }
  return absl::OkStatus();
}

absl::Status SetShapes(const Contents& contents, const std::string& prefix,
                       Json* config) {
  const Metadata& metadata = contents.metadata;
  constexpr struct {
    const char* key;
    const char* field;
  } kSizes[] = {{"embedding_length", "hidden_size"},
                {"feed_forward_length", "intermediate_size"},
                {"block_count", "num_hidden_layers"},
                {"attention.head_count", "num_attention_heads"},
                {"context_length", "max_position_embeddings"}};
  for (const auto& size : kSizes) {
    NACRE_ASSIGN_OR_RETURN((*config)[size.field],
                           metadata.Unsigned(prefix + size.key));
  }
  NACRE_ASSIGN_OR_RETURN(const uint64_t heads,
                         metadata.Unsigned(prefix + "attention.head_count"));
  NACRE_ASSIGN_OR_RETURN(
      (*config)["num_key_value_heads"],
      metadata.UnsignedOr(prefix + "attention.head_count_kv", heads));
  NACRE_ASSIGN_OR_RETURN(const uint64_t hidden,
                         metadata.Unsigned(prefix + "embedding_length"));
  const uint64_t share = heads == 0 ? 0 : hidden / heads;
  const std::string key_length = prefix + "attention.key_length";
  NACRE_ASSIGN_OR_RETURN(const uint64_t head_dim,
                         metadata.UnsignedOr(key_length, share));
  (*config)["head_dim"] = head_dim;
  for (const char* same : {"attention.value_length", "rope.dimension_count"}) {
    NACRE_ASSIGN_OR_RETURN(const uint64_t other,
                           metadata.UnsignedOr(prefix + same, head_dim));
    if (other == head_dim) continue;
    return absl::UnimplementedError(
        absl::StrCat("metadata ", prefix, same, " ", other,
                     " is not supported where heads "
                     "have ",
                     head_dim, " dimensions"));
  }
  const auto embedding = contents.tensors.find("token_embd.weight");
  if (embedding == contents.tensors.end()) {
    return absl::NotFoundError("tensor token_embd.weight is missing");
  }
  (*config)["vocab_size"] = embedding->second.shape.front();
  return absl::OkStatus();
}

// Ids of end tokens, ascending.
absl::StatusOr<std::vector<uint64_t>> EndTokens(const Metadata& metadata) {
  std::vector<uint64_t> ids;
  for (const char* name : {"eos", "eot", "eom"}) {
    const std::string key = absl::StrCat("tokenizer.ggml.", name, "_token_id");
    if (!metadata.Has(key)) continue;
    NACRE_ASSIGN_OR_RETURN(ids.emplace_back(), metadata.Unsigned(key));
  }
  if (metadata.Has("tokenizer.ggml.tokens") &&
      metadata.Has("tokenizer.ggml.token_type")) {
    NACRE_ASSIGN_OR_RETURN(const std::vector<absl::string_view> tokens,
                           metadata.Strings("tokenizer.ggml.tokens"));
    NACRE_ASSIGN_OR_RETURN(const std::vector<int32_t> types,
                           metadata.Integers("tokenizer.ggml.token_type"));
    for (size_t id = 0; id < std::min(tokens.size(), types.size()); ++id) {
      if (types[id] == kControlToken &&
          absl::c_linear_search(kEndTokens, tokens[id])) {
        ids.push_back(id);
      }
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

bool HasPairedRows(absl::string_view architecture) {
  for (const Architecture& known : kArchitectures) {
    if (known.name == architecture) return known.has_paired_rows;
  }
  return false;
}

absl::StatusOr<std::string> GgufConfigJson(const Contents& contents) {
  const Metadata& metadata = contents.metadata;
  NACRE_ASSIGN_OR_RETURN(const Architecture* const architecture,
                         FindArchitecture(metadata));
  const std::string prefix = absl::StrCat(architecture->name, ".");
  NACRE_RETURN_IF_ERROR(CheckKeys(metadata, prefix));
  Json config;
  config["architectures"] = Json::array({architecture->hugging_face});
  NACRE_RETURN_IF_ERROR(SetShapes(contents, prefix, &config));
  NACRE_ASSIGN_OR_RETURN(
      config["rms_norm_eps"],
      Written(metadata, prefix + "attention.layer_norm_rms_epsilon"));
  config["rope_theta"] = 10000.0;
  if (metadata.Has(prefix + "rope.freq_base")) {
    NACRE_ASSIGN_OR_RETURN(config["rope_theta"],
                           Written(metadata, prefix + "rope.freq_base"));
  }
  NACRE_RETURN_IF_ERROR(SetScaling(contents, prefix, &config));
  const auto has = [&](absl::string_view tensor) {
    return contents.tensors.find(tensor) != contents.tensors.end();
  };
  config["tie_word_embeddings"] = !has("output.weight");
  config["attention_bias"] = has("blk.0.attn_q.bias");
  config["mlp_bias"] = has("blk.0.ffn_gate.bias");
  NACRE_ASSIGN_OR_RETURN(const std::vector<uint64_t> ends, EndTokens(metadata));
  if (!ends.empty()) config["eos_token_id"] = ends;
  return config.dump();
}

}  // namespace nacre::model
