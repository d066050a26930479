// The shape of a model, from a Hugging Face folder's config.json. Field names
// are Hugging Face's. Every number is checked: a config that parses cannot make
// a later size overflow.
//
// Thread-safe: values and pure functions.

#ifndef MODEL_CONFIG_H_
#define MODEL_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace nacre::model {

// How rotary frequencies are stretched for contexts longer than pre-training's.
struct RopeScaling {
  enum class Type { kDefault, kLinear, kLlama3, kYarn, kLongRope };
  Type type = Type::kDefault;
  double factor = 1.0;                          // linear, llama3, yarn
  double low_freq_factor = 1.0;                 // llama3
  double high_freq_factor = 4.0;                // llama3
  int original_max_position_embeddings = 8192;  // llama3, yarn, longrope
  double beta_fast = 32.0;                      // yarn
  double beta_slow = 1.0;                       // yarn
  bool truncate = true;                         // yarn
  double magnitude = 1.0;            // of cosines and sines: yarn, longrope
  std::vector<double> pair_factors;  // of each frequency: longrope
};

// Of the gate of a feed-forward block. Where it has no gate, of the block:
// kGeluTanh or kGelu. kGelu is for blocks without a gate alone.
enum class Activation { kSilu, kGeluTanh, kGelu };

// Caps of attention's scores and of logits; 0: none.
struct SoftCaps {
  double attention = 0;
  double final = 0;
};

struct NormOptions {
  double epsilon = 1e-6;
  bool is_layer_norm = false;  // LayerNorm, with biases; else RMSNorm
  bool of_heads = false;       // each query and key head has a norm of its own
  bool after_both = false;     // attention and feed-forward end in a norm, too
  double offset = 0;           // added to the weights
};

// The rows of a tensor that holds queries, keys and values.
enum class QkvLayout {
  kStacked,  // all queries, then all keys, then all values
  kByHead,   // of each head its query, its key and its value
};

struct RopeOptions {
  double theta = 10000.0;
  RopeScaling scaling;
  double share = 1.0;  // of a head that turns; 0: positions are learned
};

struct EmbeddingOptions {
  bool is_scaled = false;      // by the square root of hidden_size
  bool has_positions = false;  // learned ones are added
};

struct BlockOptions {
  bool has_gate = true;  // the feed-forward block has one
  // The feed-forward block starts from what attention starts from, too.
  bool is_parallel = false;
  QkvLayout qkv_layout = QkvLayout::kStacked;  // where one tensor has them
};

// Layers that attend to so many positions at most.
struct WindowOptions {
  std::vector<int> sizes;  // of each layer, 0: all positions; empty: all 0
  double rope_theta = 0;   // of layers with a window; 0: as of the others
};

// Of layers whose feed-forward block is a choice of experts.
struct ExpertOptions {
  int count = 0;  // 0: the model has none
  int per_token = 0;
  int size = 0;                    // of one, what intermediate_size is
  bool normalize = false;          // the weights of a token's sum to 1
  std::vector<bool> dense_layers;  // which have none; empty: none of them
};

// Of a draft whose layers also attend to what its target has kept, the last
// layer to the target's last, and so on.
struct CrossOptions {
  int num_heads = 0;            // of the target's queries
  int num_key_value_heads = 0;  // divides num_heads
  int head_dim = 0;
  int max_depth = 0;  // tokens that it was trained to say after the newest keys
  std::string target_fingerprint;  // that it was made for; empty: not known

  // Numbers of one position: keys and values of so many layers.
  int row_size(int num_layers) const {
    return num_layers * 2 * num_key_value_heads * head_dim;
  }
};

struct ModelConfig {
  std::string architecture;  // of model/families.h
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_hidden_layers = 0;
  int num_attention_heads = 0;
  int num_key_value_heads = 0;      // divides num_attention_heads
  int head_dim = 0;                 // even, at most 512
  int max_position_embeddings = 0;  // with those of rope scaling (ParseRope)
  int vocab_size = 0;
  RopeOptions rope;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  // whether query, key and value have biases
  bool attention_output_bias = false;
  bool mlp_bias = false;  // of gate, up and down
  EmbeddingOptions embedding;
  NormOptions norms;
  BlockOptions blocks;
  Activation activation = Activation::kSilu;
  double attention_scalar = 0;  // scores are divided by its square root
  SoftCaps soft_caps;
  WindowOptions windows;
  ExpertOptions experts;
  absl::optional<CrossOptions> cross;
  std::vector<int32_t> eos_token_ids;  // ascending, in [0, vocab_size)

  int q_size() const { return num_attention_heads * head_dim; }
  int kv_size() const { return num_key_value_heads * head_dim; }
  // Positions that a layer attends to at most; 0: all.
  int window(int layer) const {
    return windows.sizes.empty() ? 0
                                 : windows.sizes[static_cast<size_t>(layer)];
  }
  // Whether a layer turns by windows.rope_theta.
  bool has_local_rope(int layer) const {
    return windows.rope_theta > 0 && window(layer) > 0;
  }
  bool has_experts(int layer) const {
    return experts.count > 0 &&
           (experts.dense_layers.empty() ||
            !experts.dense_layers[static_cast<size_t>(layer)]);
  }
  // The first dimensions of a head, which rotary embedding turns. If they are
  // odd, one more turns, as in Hugging Face.
  int rotary_size() const { return static_cast<int>(head_dim * rope.share); }
  int rotary_pairs() const { return (rotary_size() + 1) / 2; }
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

// Reads `dir`/config.json and, if there, `dir`/generation_config.json; of a
// GGUF file its metadata. NOT_FOUND names a missing folder or config.json; else
// as ParseConfig, with the file's name in front.
absl::StatusOr<ModelConfig> ReadConfig(const std::string& dir);

// What a fingerprint has of the config: all of config.json. Of a GGUF file: all
// metadata, and the config that they and the tensors make. That config holds
// the factors of rope.
absl::StatusOr<std::string> ReadConfigText(const std::string& dir);

// Layers of an inflated checkpoint before others were added: drafts of what it
// was made from name those. Of others `num_layers`. INVALID_ARGUMENT: more than
// there are, or none.
absl::StatusOr<int> OriginalLayers(absl::string_view config_text,
                                   int num_layers);

}  // namespace nacre::model

#endif  // MODEL_CONFIG_H_
