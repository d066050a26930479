#include "model/families.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace nacre::model {
namespace {

constexpr TensorNames kLlamaTensors = {
    .embedding = "model.embed_tokens",
    .layer = "model.layers.",
    .input_norm = "input_layernorm",
    .query = "self_attn.q_proj",
    .key = "self_attn.k_proj",
    .value = "self_attn.v_proj",
    .attention_output = "self_attn.o_proj",
    .post_attention_norm = "post_attention_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .final_norm = "model.norm",
    .head = "lm_head",
};

constexpr Family kFamilies[] = {
    {.architecture = "LlamaForCausalLM",
     .default_num_key_value_heads = 0,
     .default_max_position_embeddings = 2048,
     .default_sliding_window = 0,
     .sliding_window = SlidingWindow::kNever,
     .qkv_bias = false,
     .tensors = kLlamaTensors},
    {.architecture = "MistralForCausalLM",
     .default_num_key_value_heads = 8,
     .default_max_position_embeddings = 131072,
     .default_sliding_window = 4096,
     .sliding_window = SlidingWindow::kAlways,
     .qkv_bias = false,
     .tensors = kLlamaTensors},
    // Qwen2 and Qwen2.5.
    {.architecture = "Qwen2ForCausalLM",
     .default_num_key_value_heads = 32,
     .default_max_position_embeddings = 32768,
     .default_sliding_window = 4096,
     .sliding_window = SlidingWindow::kIfEnabled,
     .qkv_bias = true,
     .tensors = kLlamaTensors},
};

}  // namespace

const Family* FindFamily(absl::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (architecture == family.architecture) return &family;
  }
  return nullptr;
}

std::string SupportedArchitectures() {
  return absl::StrJoin(kFamilies, ", ",
                       [](std::string* out, const Family& family) {
                         absl::StrAppend(out, "\"", family.architecture, "\"");
                       });
}

}  // namespace nacre::model
