#include "tests/testing/gguf_checkpoint.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "model/checkpoint.h"
#include "model/config.h"

namespace nacre::testing {
namespace {

using gguf::GgufWriter;
using model::Tensor;

std::string GgufName(const std::string& name) {
  return absl::StrReplaceAll(name, {{"model.embed_tokens.", "token_embd."},
                                    {"model.norm.", "output_norm."},
                                    {"lm_head.", "output."},
                                    {"model.layers.", "blk."},
                                    {"post_attention_layernorm.", "ffn_norm."},
                                    {"input_layernorm.", "attn_norm."},
                                    {"self_attn.q_proj.", "attn_q."},
                                    {"self_attn.k_proj.", "attn_k."},
                                    {"self_attn.v_proj.", "attn_v."},
                                    {"self_attn.o_proj.", "attn_output."},
                                    {"self_attn.q_norm.", "attn_q_norm."},
                                    {"self_attn.k_norm.", "attn_k_norm."},
                                    {"mlp.gate_proj.", "ffn_gate."},
                                    {"mlp.up_proj.", "ffn_up."},
                                    {"mlp.down_proj.", "ffn_down."}});
}

// Of each head: row 0 of its first half, row 0 of its second, row 1 of its
// first, and so on.
std::string Paired(const std::string& bytes, int64_t rows, int heads) {
  const size_t row = bytes.size() / static_cast<size_t>(rows);
  const auto head_rows = static_cast<size_t>(rows) / static_cast<size_t>(heads);
  std::string paired;
  for (size_t head = 0; head < static_cast<size_t>(heads); ++head) {
    for (size_t j = 0; j < head_rows / 2; ++j) {
      for (const size_t half : {size_t{0}, head_rows / 2}) {
        paired += bytes.substr((head * head_rows + half + j) * row, row);
      }
    }
  }
  return paired;
}

}  // namespace

gguf::GgufWriter GgufOfCheckpoint(const std::string& dir) {
  const auto config = *model::ReadConfig(dir);
  const bool is_llama = absl::StartsWith(config.architecture, "Llama") ||
                        absl::StartsWith(config.architecture, "Mistral");
  const bool is_qwen2 = absl::StartsWith(config.architecture, "Qwen2");
  const std::string architecture =
      is_llama ? "llama" : (is_qwen2 ? "qwen2" : "qwen3");
  const std::string prefix = architecture + ".";
  GgufWriter writer;
  const auto size = [&](const char* key, int value) {
    writer.U32(prefix + key, static_cast<uint32_t>(value));
  };
  writer.String("general.architecture", architecture);
  size("context_length", config.max_position_embeddings);
  size("embedding_length", config.hidden_size);
  size("block_count", config.num_hidden_layers);
  size("feed_forward_length", config.intermediate_size);
  size("attention.head_count", config.num_attention_heads);
  size("attention.head_count_kv", config.num_key_value_heads);
  size("attention.key_length", config.head_dim);
  size("attention.value_length", config.head_dim);
  size("vocab_size", config.vocab_size);
  writer.F32(prefix + "rope.freq_base", static_cast<float>(config.rope.theta));
  writer.F32(prefix + "attention.layer_norm_rms_epsilon",
             static_cast<float>(config.norms.epsilon));
  const auto checkpoint = *model::Checkpoint::Open(dir);
  for (const std::string& name : checkpoint->Names()) {
    const Tensor tensor = *checkpoint->Find(name);
    const bool is_matrix = tensor.shape.size() == 2;
    std::string bytes(tensor.bytes);
    uint32_t type = 0;
    if (!is_matrix) {
      bytes.clear();
      const auto values =
          *checkpoint->Vector(name, static_cast<int>(tensor.shape[0]));
      for (const float value : values) bytes += GgufWriter::Raw(value);
    } else if (tensor.dtype == kernels::DType::kF16) {
      type = 1;
    } else if (tensor.dtype == kernels::DType::kBF16) {
      type = 30;
    }
    const bool is_query = absl::StrContains(name, ".q_proj.");
    if (is_llama && (is_query || absl::StrContains(name, ".k_proj."))) {
      bytes = Paired(
          bytes, tensor.shape[0],
          is_query ? config.num_attention_heads : config.num_key_value_heads);
    }
    writer.Tensor(GgufName(name), type, tensor.shape, bytes);
  }
  return writer;
}

}  // namespace nacre::testing
