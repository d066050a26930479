#include "model/families.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace nacre::model {
namespace {

constexpr TensorNames kGemmaTensors = {
    .attention_post_norm = "post_attention_layernorm",
    .mlp_norm = "pre_feedforward_layernorm",
    .mlp_post_norm = "post_feedforward_layernorm",
};

constexpr Family kFamilies[] = {
    {.architecture = "LlamaForCausalLM",
     .models = "Llama 1 to 3.3, CodeLlama, Vicuna, DeepSeek-Coder",
     .default_max_position_embeddings = 2048,
     .attention_bias = Biases::kIfEnabled,
     .mlp_bias = Biases::kIfEnabled},
    {.architecture = "MistralForCausalLM",
     .models = "Mistral 7B, Nemo, Small to 3 (2501)",
     .default_num_key_value_heads = 8,
     .default_max_position_embeddings = 131072,
     .default_sliding_window = 4096,
     .sliding_window = SlidingWindow::kAlways},
    {.architecture = "Qwen2ForCausalLM",
     .models = "Qwen2, Qwen2.5",
     .default_num_key_value_heads = 32,
     .default_max_position_embeddings = 32768,
     .default_sliding_window = 4096,
     .sliding_window = SlidingWindow::kIfEnabled,
     .attention_bias = Biases::kInputs},
    {.architecture = "Qwen3ForCausalLM",
     .models = "Qwen3, without experts",
     .default_num_key_value_heads = 32,
     .default_head_dim = 128,
     .default_max_position_embeddings = 32768,
     .default_sliding_window = 4096,
     .sliding_window = SlidingWindow::kIfEnabled,
     .attention_bias = Biases::kIfEnabled,
     .qk_norm = true},
    {.architecture = "Phi3ForCausalLM",
     .models = "Phi-3 mini and medium, Phi-3.5-mini, Phi-4, Phi-4-mini",
     .default_max_position_embeddings = 4096,
     .default_norm_epsilon = 1e-5,
     .sliding_window = SlidingWindow::kAlways,
     .tensors = {.query_key_value = "self_attn.qkv_proj",
                 .gate_up = "mlp.gate_up_proj"}},
    {.architecture = "MixtralForCausalLM",
     .models = "Mixtral 8x7B, 8x22B",
     .default_num_key_value_heads = 8,
     .default_max_position_embeddings = 131072,
     .default_norm_epsilon = 1e-5,
     .rope = {.theta = 1e6},
     .sliding_window = SlidingWindow::kAlways,
     .experts = {.size = "intermediate_size",
                 .default_count = 8,
                 .default_per_token = 2,
                 .always_normalize = true},
     .tensors = {.router = "block_sparse_moe.gate",
                 .expert = "block_sparse_moe.experts.",
                 .expert_gate = "w1",
                 .expert_up = "w3",
                 .expert_down = "w2"}},
    {.architecture = "Qwen3MoeForCausalLM",
     .models = "Qwen3 with experts (30B-A3B, 235B-A22B)",
     .default_num_key_value_heads = 4,
     .default_max_position_embeddings = 32768,
     .default_sliding_window = 4096,
     .sliding_window = SlidingWindow::kAllIfEnabled,
     .attention_bias = Biases::kIfEnabled,
     .qk_norm = true,
     .experts = {.size = "moe_intermediate_size",
                 .default_count = 128,
                 .default_per_token = 8},
     .tensors = {.router = "mlp.gate"}},
    {.architecture = "GemmaForCausalLM",
     .models = "Gemma 1, CodeGemma",
     .default_num_key_value_heads = 16,
     .default_head_dim = 256,
     .default_max_position_embeddings = 8192,
     .default_tie_word_embeddings = true,
     .default_activation = Activation::kGeluTanh,
     .attention_bias = Biases::kIfEnabled,
     .is_gemma = true},
    {.architecture = "Gemma2ForCausalLM",
     .models = "Gemma 2",
     .default_num_key_value_heads = 4,
     .default_head_dim = 256,
     .default_max_position_embeddings = 8192,
     .default_sliding_window = 4096,
     .default_tie_word_embeddings = true,
     .default_activation = Activation::kGeluTanh,
     .window_pattern = 2,
     .sliding_window = SlidingWindow::kByType,
     .attention_bias = Biases::kIfEnabled,
     .is_gemma = true,
     .default_query_pre_attn_scalar = 256,
     .default_attn_logit_softcapping = 50,
     .default_final_logit_softcapping = 30,
     .tensors = kGemmaTensors},
    {.architecture = "Gemma3ForCausalLM",
     .models = "Gemma 3, text only (270M, 1B)",
     .default_num_key_value_heads = 4,
     .default_head_dim = 256,
     .default_max_position_embeddings = 131072,
     .default_sliding_window = 4096,
     .rope = {.theta = 1e6, .local_theta = 10000},
     .default_tie_word_embeddings = true,
     .default_activation = Activation::kGeluTanh,
     .window_pattern = 6,
     .sliding_window = SlidingWindow::kByType,
     .attention_bias = Biases::kIfEnabled,
     .qk_norm = true,
     .is_gemma = true,
     .default_query_pre_attn_scalar = 256,
     .tensors = kGemmaTensors},
    {.architecture = "GPTNeoXForCausalLM",
     .models = "GPT-NeoX, Pythia",
     .default_max_position_embeddings = 2048,
     .default_norm_epsilon = 1e-5,
     .rope = {.share = 0.25},
     .default_activation = Activation::kGelu,
     .attention_bias = Biases::kUnlessDisabled,
     .mlp_bias = Biases::kAlways,
     .layers = {.have_layer_norm = true,
                .may_be_parallel = true,
                .qkv_layout = QkvLayout::kByHead},
     .fields = {.norm_epsilon = "layer_norm_eps",
                .rope_theta = "rotary_emb_base",
                .rotary_share = "rotary_pct"},
     .tensors = {.embedding = "gpt_neox.embed_in",
                 .layer = "gpt_neox.layers.",
                 .query_key_value = "attention.query_key_value",
                 .attention_output = "attention.dense",
                 .gate = nullptr,
                 .up = "mlp.dense_h_to_4h",
                 .down = "mlp.dense_4h_to_h",
                 .final_norm = "gpt_neox.final_layer_norm",
                 .head = "embed_out"}},
    {.architecture = "Starcoder2ForCausalLM",
     .models = "StarCoder2 (3B, 7B, 15B)",
     .default_num_key_value_heads = 2,
     .default_max_position_embeddings = 4096,
     .default_norm_epsilon = 1e-5,
     .default_tie_word_embeddings = true,
     .default_activation = Activation::kGeluTanh,
     .sliding_window = SlidingWindow::kAlways,
     .attention_bias = Biases::kUnlessDisabled,
     .mlp_bias = Biases::kUnlessDisabled,
     .layers = {.have_layer_norm = true},
     .fields = {.norm_epsilon = "norm_epsilon",
                .attention_bias = "use_bias",
                .mlp_bias = "use_bias"},
     .tensors = {.gate = nullptr, .up = "mlp.c_fc", .down = "mlp.c_proj"}},
};

}  // namespace

absl::Span<const Family> AllFamilies() { return kFamilies; }

const char* BackendsOf(const Family& family) {
  return family.experts.default_count == 0 ? "cpu, cuda, reference"
                                           : "cpu, reference";
}

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
