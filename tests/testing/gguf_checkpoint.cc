#include "tests/testing/gguf_checkpoint.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "tests/testing/gguf_blocks.h"

namespace nacre::testing {
namespace {

using gguf::GgufWriter;
using model::Tensor;

// One row after another, in blocks; *type is what the others are.
std::string Quantized(const std::string& name, const Tensor& tensor,
                      const std::vector<float>& values, uint32_t* type) {
  const int64_t cols = tensor.shape[1];
  if (cols % 32 != 0) {
    *type = gguf::kF16Id;
    return gguf::F16(values);
  }
  if (cols % 256 != 0) {
    *type = gguf::kQ8_0Id;
    return gguf::Q8_0(values);
  }
  for (const char* finer : {"embed_tokens", "lm_head", "v_proj", "down_proj"}) {
    if (!absl::StrContains(name, finer)) continue;
    *type = gguf::kQ6_KId;
    return gguf::Q6_K(values);
  }
  *type = gguf::kQ4_KId;
  return gguf::Q4_K(values);
}

// All of a tensor.
std::vector<float> ValuesOf(const Tensor& tensor) {
  const size_t size = kernels::SizeOf(tensor.dtype);
  std::vector<float> values(tensor.bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i) {
    const char* const from = tensor.bytes.data() + i * size;
    uint16_t half;
    if (tensor.dtype == kernels::DType::kF32) {
      std::memcpy(&values[i], from, size);
      continue;
    }
    std::memcpy(&half, from, size);
    values[i] = tensor.dtype == kernels::DType::kBF16 ? kernels::FromBF16(half)
                                                      : kernels::FromF16(half);
  }
  return values;
}

bool HasPairedRows(const model::ModelConfig& config) {
  return absl::StartsWith(config.architecture, "Llama") ||
         absl::StartsWith(config.architecture, "Mistral");
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

GgufWriter Converted(const std::string& dir, bool quantizes) {
  const auto config = *model::ReadConfig(dir);
  const bool is_llama = HasPairedRows(config);
  GgufWriter writer = GgufMetadata(config);
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
    if (is_matrix && quantizes) {
      bytes = Quantized(name, tensor, ValuesOf(tensor), &type);
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

}  // namespace

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

gguf::GgufWriter GgufMetadata(const model::ModelConfig& config) {
  const bool is_qwen2 = absl::StartsWith(config.architecture, "Qwen2");
  const std::string architecture =
      HasPairedRows(config) ? "llama" : (is_qwen2 ? "qwen2" : "qwen3");
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
  return writer;
}

gguf::GgufWriter GgufOfCheckpoint(const std::string& dir) {
  return Converted(dir, false);
}

gguf::GgufWriter QuantizedGgufOfCheckpoint(const std::string& dir) {
  return Converted(dir, true);
}

}  // namespace nacre::testing
