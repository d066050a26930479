// The families of checkpoints that can be read, as data: one row for each. A
// family that differs from the others only in what a row says is one more row
// in families.cc.
//
// Constant data and pure functions.

#ifndef MODEL_FAMILIES_H_
#define MODEL_FAMILIES_H_

#include <string>

#include "absl/strings/string_view.h"

namespace nacre::model {

// What a checkpoint calls its tensors. Weights end in ".weight", biases in
// ".bias". Those of layer i begin with `layer`, i and ".".
struct TensorNames {
  const char* embedding;
  const char* layer;
  const char* input_norm;
  const char* query;
  const char* key;
  const char* value;
  const char* attention_output;
  const char* post_attention_norm;
  const char* gate;
  const char* up;
  const char* down;
  const char* final_norm;
  const char* head;  // of checkpoints that do not tie it to the embedding
};

// Whether sliding_window of a config.json limits how far back rows attend.
enum class SlidingWindow {
  kNever,      // the family has none
  kAlways,     // in every layer, unless it is null
  kIfEnabled,  // if use_sliding_window is true, in layers of that type
};

struct Family {
  const char* architecture;  // of config.json
  // What Hugging Face's config class takes where config.json lacks the field.
  int default_num_key_value_heads;  // 0: as many as query heads
  int default_max_position_embeddings;
  int default_sliding_window;  // 0: none
  SlidingWindow sliding_window;
  bool qkv_bias;  // whether query, key and value have biases
  TensorNames tensors;
};

// Null: not supported.
const Family* FindFamily(absl::string_view architecture);

// For messages: "\"LlamaForCausalLM\", ...".
std::string SupportedArchitectures();

}  // namespace nacre::model

#endif  // MODEL_FAMILIES_H_
