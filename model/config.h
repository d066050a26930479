// The shape of a model, from a Hugging Face folder's config.json. Field names
// are Hugging Face's. Every number is checked: a config that parses cannot make
// a later size overflow.
//
// Thread-safe: values and pure functions.

#ifndef MODEL_CONFIG_H_
#define MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nacre::model {

// How rotary frequencies are stretched for contexts longer than pre-training's.
struct RopeScaling {
  enum class Type { kDefault, kLinear, kLlama3 };
  Type type = Type::kDefault;
  double factor = 1.0;                          // linear, llama3
  double low_freq_factor = 1.0;                 // llama3
  double high_freq_factor = 4.0;                // llama3
  int original_max_position_embeddings = 8192;  // llama3
};

struct ModelConfig {
  std::string architecture;  // of model/families.h
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_hidden_layers = 0;
  int num_attention_heads = 0;
  int num_key_value_heads = 0;  // divides num_attention_heads
  int head_dim = 0;             // even, at most 512
  int max_position_embeddings = 0;
  int vocab_size = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  // whether query, key and value have biases
  std::vector<int32_t> eos_token_ids;  // ascending, in [0, vocab_size)

  int q_size() const { return num_attention_heads * head_dim; }
  int kv_size() const { return num_key_value_heads * head_dim; }
};

// Parses the text of a config.json. INVALID_ARGUMENT: not JSON, or a field is
// missing, of the wrong type or out of range (named, with value and limit).
// UNIMPLEMENTED: architecture, activation, rope type, quantization, bias or
// sliding window that this build lacks, with the value and what is supported.
absl::StatusOr<ModelConfig> ParseConfig(absl::string_view config_json);

// Lets the eos_token_id of a generation_config.json, if it has one, replace the
// config's, as Hugging Face generation does. INVALID_ARGUMENT as above.
absl::Status ApplyGenerationConfig(absl::string_view generation_config_json,
                                   ModelConfig* config);

// Reads `dir`/config.json and, if there, `dir`/generation_config.json.
// NOT_FOUND names a missing folder or config.json; else as ParseConfig, with
// the file's name in front.
absl::StatusOr<ModelConfig> ReadConfig(const std::string& dir);

}  // namespace nacre::model

#endif  // MODEL_CONFIG_H_
