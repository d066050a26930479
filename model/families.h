// The families of checkpoints that can be read, as data: one row for each. A
// family that differs from the others only in what a row says is one more row
// in families.cc.
//
// Constant data and pure functions.

#ifndef MODEL_FAMILIES_H_
#define MODEL_FAMILIES_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/config.h"

namespace nacre::model {

// Of families with experts. Those of expert i begin with `expert`, i and ".".
struct ExpertNames {
  const char* router = nullptr;
  const char* expert = "mlp.experts.";
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
};

// What a checkpoint calls its tensors; by default, what Llama's does. Weights
// end in ".weight", biases in ".bias". Those of layer i begin with `layer`, i
// and ".".
struct TensorNames {
  const char* embedding = "model.embed_tokens";
  const char* positions = nullptr;  // null: positions are not learned
  const char* layer = "model.layers.";
  const char* input_norm = "input_layernorm";
  // One tensor for the three that follow; null: each has its own.
  const char* query_key_value = nullptr;
  const char* query = "self_attn.q_proj";
  const char* key = "self_attn.k_proj";
  const char* value = "self_attn.v_proj";
  const char* query_norm = "self_attn.q_norm";  // of families with qk_norm
  const char* key_norm = "self_attn.k_norm";
  const char* attention_output = "self_attn.o_proj";
  const char* attention_post_norm = nullptr;          // null: none
  const char* mlp_norm = "post_attention_layernorm";  // before the block
  const char* mlp_post_norm = nullptr;                // null: none
  const char* gate_up = nullptr;       // one tensor for the two that follow
  const char* gate = "mlp.gate_proj";  // null: blocks have no gate
  const char* up = "mlp.up_proj";
  const char* down = "mlp.down_proj";
  ExpertNames experts;
  const char* final_norm = "model.norm";
  const char* head = "lm_head";  // of those that do not tie it to the embedding
};

// Whether sliding_window of a config.json limits how far back rows attend.
enum class SlidingWindow {
  kNever,         // the family has none
  kAlways,        // in every layer, unless it is null
  kIfEnabled,     // if use_sliding_window is true, in layers of that type
  kByType,        // in layers of that type
  kAllIfEnabled,  // in every layer, if use_sliding_window is true
};

// Whether the products of a block have biases. The config's field is one of
// FieldNames.
enum class Biases {
  kNever,
  kIfEnabled,       // if the field is true
  kUnlessDisabled,  // unless the field is false
  kAlways,          // the field is not read
  kInputs,          // of attention: query, key and value; the field is not read
};

// What a config.json calls its fields, where families differ; by default, what
// Llama's does.
struct FieldNames {
  const char* hidden_size = "hidden_size";
  const char* intermediate_size = "intermediate_size";
  const char* num_layers = "num_hidden_layers";
  const char* num_heads = "num_attention_heads";
  const char* context = "max_position_embeddings";
  const char* activation = "hidden_act";
  const char* norm_epsilon = "rms_norm_eps";
  const char* attention_bias = "attention_bias";
  const char* mlp_bias = "mlp_bias";
  const char* rope_theta = "rope_theta";
  const char* rotary_share = "partial_rotary_factor";
};

// Of families with experts.
struct ExpertFields {
  const char* size = nullptr;  // the field of an expert's size
  int default_count = 0;       // 0: the family has none
  int default_per_token = 0;
  bool always_normalize = false;  // else if norm_topk_prob is true
};

struct RopeDefaults {
  double theta = 10000;
  double local_theta = 0;  // of layers with a window; 0: one for all layers
  double share = 1;        // of a head that turns
  // Hugging Face turns a share of each head. Elsewhere it ignores the field,
  // unless the rope type is another than "default": then it fails.
  bool may_be_partial = false;
};

struct LayerKind {
  bool have_layer_norm = false;  // LayerNorm, with biases; else RMSNorm
  bool may_be_parallel =
      false;  // they are unless use_parallel_residual says no
  QkvLayout qkv_layout = QkvLayout::kStacked;
};

struct Family {
  const char* architecture;  // of config.json
  const char* models;        // what is published of it, for people
  // What Hugging Face's config class takes where config.json lacks the field.
  int default_num_key_value_heads = 0;  // 0: as many as query heads
  int default_head_dim = 0;             // 0: hidden_size / num_attention_heads
  int default_max_position_embeddings = 0;
  int default_sliding_window = 0;  // 0: none
  double default_norm_epsilon = 1e-6;
  RopeDefaults rope = {};
  bool default_tie_word_embeddings = false;
  Activation default_activation = Activation::kSilu;
  // Of layer_types: all layers but each so many-th have a window; 0: by
  // max_window_layers.
  int window_pattern = 0;
  SlidingWindow sliding_window = SlidingWindow::kNever;
  Biases attention_bias = Biases::kNever;
  Biases mlp_bias = Biases::kNever;
  bool qk_norm = false;  // each query and key head has a norm of its own
  LayerKind layers = {};
  // What Gemma has: norms multiply by 1 + weight, the embedding is scaled, and
  // query_pre_attn_scalar and soft caps are read.
  bool is_gemma = false;
  double default_query_pre_attn_scalar = 0;   // 0: head_dim
  double default_attn_logit_softcapping = 0;  // 0: the field is not read
  double default_final_logit_softcapping = 0;
  // What GPT-BigCode has: positions are learned, multi_query and
  // scale_attn_weights are read, and feed-forward blocks have a default size.
  bool is_big_code = false;
  ExpertFields experts = {};
  FieldNames fields = {};
  TensorNames tensors = {};

  bool is_gated() const { return tensors.gate != nullptr; }
};

absl::Span<const Family> AllFamilies();

// Null: not supported.
const Family* FindFamily(absl::string_view architecture);

// For messages: "\"LlamaForCausalLM\", ...".
std::string SupportedArchitectures();

}  // namespace nacre::model

#endif  // MODEL_FAMILIES_H_
