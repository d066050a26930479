#include "tests/testing/tiny_checkpoint.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "common/check.h"
#include "common/json.h"
#include "common/philox.h"
#include "gtest/gtest.h"
#include "model/config.h"
#include "model/expected_tensors.h"
#include "model/safetensors_writer.h"

namespace nacre::testing {
namespace {

using model::ExpectedTensor;
using model::ExpectedTensors;

// The embedding, the layers, the rest.
std::vector<ExpectedTensor> Tensors(const model::ModelConfig& config) {
  const auto outside = ExpectedTensors::OutsideLayers(config);
  std::vector<ExpectedTensor> tensors(outside.begin(), outside.begin() + 1);
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    const auto layer = ExpectedTensors::OfLayer(config, i);
    tensors.insert(tensors.end(), layer.begin(), layer.end());
  }
  tensors.insert(tensors.end(), outside.begin() + 1, outside.end());
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

namespace {

// Of this process, which takes them away when it ends.
struct Folders {
  ~Folders() {
    if (getpid() != owner) return;  // a child that was forked ends
    std::error_code ignored;
    for (const std::string& path : paths) {
      std::filesystem::remove_all(path, ignored);
    }
  }
  const pid_t owner = getpid();
  std::set<std::string> paths;
};

}  // namespace

std::string TestFolder(const std::string& name) {
  static Folders folders;
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string unique =
      std::string(test->test_suite_name()) + "." + test->name() + "." + name;
  for (char& c : unique) {
    if (c == '/') c = '_';
  }
  const std::string dir = ::testing::TempDir() + "/nacre_" +
                          std::to_string(getpid()) + "_" + unique;
  folders.paths.insert(dir);
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
      {"architectures", {shape.architecture}},
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

  const auto parsed = model::ParseConfig(config.dump());
  NACRE_CHECK(parsed.ok(), "a test checkpoint that is not supported");
  const std::vector<ExpectedTensor> tensors = Tensors(*parsed);
  std::vector<model::TensorSpec> specs;
  for (const ExpectedTensor& tensor : tensors) {
    specs.push_back({tensor.name, shape.dtype, tensor.shape});
  }
  auto writer =
      model::SafetensorsWriter::Create(dir + "/model.safetensors", specs);
  NACRE_CHECK(writer.ok(), "a test checkpoint cannot be written");
  uint32_t counter = 0;
  for (const ExpectedTensor& tensor : tensors) {
    int64_t count = 1;
    for (const int64_t dim : tensor.shape) count *= dim;
    // Norms and biases near 1; matrices so that activations keep their size.
    const bool is_vector = tensor.shape.size() == 1;
    const float scale =
        is_vector ? 0.2f
                  : std::sqrt(3.0f / static_cast<float>(tensor.shape.back()));
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t bits = Philox4x32(
          {counter++, 0, 0, 0}, {static_cast<uint32_t>(shape.seed), 7})[0];
      const float uniform = static_cast<float>(bits >> 8) * 0x1p-23f - 1.0f;
      const float value = (is_vector ? 1.0f : 0.0f) + scale * uniform;
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
