#include "tests/testing/tiny_checkpoint.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "common/check.h"
#include "common/philox.h"
#include "gtest/gtest.h"
#include "model/safetensors_writer.h"
#include "nlohmann/json.hpp"

namespace nacre::testing {
namespace {

using model::TensorSpec;

std::vector<TensorSpec> Tensors(const TinyCheckpoint& shape) {
  const int64_t hidden = shape.hidden_size;
  const int64_t inter = shape.intermediate_size;
  const int64_t q = int64_t{shape.num_attention_heads} * shape.head_dim;
  const int64_t kv = int64_t{shape.num_key_value_heads} * shape.head_dim;
  std::vector<TensorSpec> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> dims) {
    tensors.push_back({name + ".weight", shape.dtype, std::move(dims)});
  };
  add("model.embed_tokens", {shape.vocab_size, hidden});
  for (int i = 0; i < shape.num_hidden_layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    add(prefix + "input_layernorm", {hidden});
    add(prefix + "self_attn.q_proj", {q, hidden});
    add(prefix + "self_attn.k_proj", {kv, hidden});
    add(prefix + "self_attn.v_proj", {kv, hidden});
    add(prefix + "self_attn.o_proj", {hidden, q});
    add(prefix + "post_attention_layernorm", {hidden});
    add(prefix + "mlp.gate_proj", {inter, hidden});
    add(prefix + "mlp.up_proj", {inter, hidden});
    add(prefix + "mlp.down_proj", {hidden, inter});
  }
  add("model.norm", {hidden});
  if (!shape.tie_word_embeddings) add("lm_head", {shape.vocab_size, hidden});
  return tensors;
}

// Truncates a float32 to float16; enough for tests' normal numbers.
uint16_t ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const int exponent = static_cast<int>((bits >> 23) & 0xFF) - 127 + 15;
  const uint32_t sign = (bits >> 16) & 0x8000u;
  if (exponent <= 0 || exponent >= 31) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | (static_cast<uint32_t>(exponent) << 10) |
                               ((bits >> 13) & 0x3FFu));
}

}  // namespace

std::string TestFolder(const std::string& name) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string unique =
      std::string(test->test_suite_name()) + "." + test->name() + "." + name;
  for (char& c : unique) {
    if (c == '/') c = '_';
  }
  const std::string dir = ::testing::TempDir() + "/nacre_" + unique;
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  return dir;
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  NACRE_CHECK(file.good(), "a test file cannot be written");
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  NACRE_CHECK(file.good(), "a test file cannot be read");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void WriteTinyCheckpoint(const TinyCheckpoint& shape, const std::string& dir) {
  const nlohmann::ordered_json config = {
      {"architectures", {"LlamaForCausalLM"}},
      {"hidden_act", "silu"},
      {"hidden_size", shape.hidden_size},
      {"intermediate_size", shape.intermediate_size},
      {"num_hidden_layers", shape.num_hidden_layers},
      {"num_attention_heads", shape.num_attention_heads},
      {"num_key_value_heads", shape.num_key_value_heads},
      {"head_dim", shape.head_dim},
      {"max_position_embeddings", shape.max_position_embeddings},
      {"rms_norm_eps", 1e-5},
      {"tie_word_embeddings", shape.tie_word_embeddings},
      {"vocab_size", shape.vocab_size},
      {"eos_token_id", 2}};
  WriteFile(dir + "/config.json", config.dump(1));

  const std::vector<TensorSpec> tensors = Tensors(shape);
  auto writer =
      model::SafetensorsWriter::Create(dir + "/model.safetensors", tensors);
  NACRE_CHECK(writer.ok(), "a test checkpoint cannot be written");
  uint32_t counter = 0;
  for (const TensorSpec& tensor : tensors) {
    int64_t count = 1;
    for (const int64_t dim : tensor.shape) count *= dim;
    // Norms near 1; matrices so that activations keep their size.
    const bool is_norm = tensor.shape.size() == 1;
    const float scale =
        is_norm ? 0.2f
                : std::sqrt(3.0f / static_cast<float>(tensor.shape.back()));
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t bits = Philox4x32(
          {counter++, 0, 0, 0}, {static_cast<uint32_t>(shape.seed), 7})[0];
      const float uniform = static_cast<float>(bits >> 8) * 0x1p-23f - 1.0f;
      const float value = (is_norm ? 1.0f : 0.0f) + scale * uniform;
      const uint16_t half = shape.dtype == kernels::DType::kBF16
                                ? kernels::ToBF16(value)
                                : ToF16(value);
      const bool is_f32 = shape.dtype == kernels::DType::kF32;
      const absl::Status status = is_f32
                                      ? (*writer)->Append(&value, sizeof(value))
                                      : (*writer)->Append(&half, sizeof(half));
      NACRE_CHECK(status.ok(), "a test checkpoint cannot be written");
    }
  }
  NACRE_CHECK((*writer)->Finish().ok(), "a test checkpoint cannot be written");
}

}  // namespace nacre::testing
