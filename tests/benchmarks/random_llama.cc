#include "tests/benchmarks/random_llama.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "model/expected_tensors.h"
#include "model/safetensors_writer.h"
#include "tests/benchmarks/machine_limits.h"

namespace nacre::model {
namespace {

// Bytes that a tensor may begin after the buffer's start.
constexpr size_t kStarts = size_t{8} << 20;
// What is random; after it, it repeats.
constexpr size_t kPeriod = size_t{32} << 20;

std::string ConfigJson(const LlamaShape& shape) {
  const nlohmann::ordered_json config = {
      {"architectures", {"LlamaForCausalLM"}},
      {"hidden_act", "silu"},
      {"hidden_size", shape.hidden},
      {"intermediate_size", shape.intermediate},
      {"num_hidden_layers", shape.layers},
      {"num_attention_heads", shape.heads},
      {"num_key_value_heads", shape.kv_heads},
      {"head_dim", shape.head_dim},
      {"max_position_embeddings", shape.context},
      {"rms_norm_eps", 1e-5},
      {"tie_word_embeddings", false},
      {"vocab_size", shape.vocab},
      {"eos_token_id", 2}};
  return config.dump();
}

void Store(float value, kernels::DType dtype, size_t index, char* to) {
  if (dtype == kernels::DType::kBF16) {
    const uint16_t bits = kernels::ToBF16(value);
    std::memcpy(to + index * sizeof(bits), &bits, sizeof(bits));
  } else {
    std::memcpy(to + index * sizeof(value), &value, sizeof(value));
  }
}

// `center` +- `scale`, uniform.
std::vector<char> RandomBytes(size_t bytes, kernels::DType dtype, float center,
                              float scale) {
  std::vector<char> values(bytes);
  const size_t random = std::min(bytes, kPeriod);
  uint32_t state = 1;
  for (size_t i = 0; i < random / kernels::SizeOf(dtype); ++i) {
    state = state * 1664525u + 1013904223u;
    const float uniform =
        static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    Store(center + scale * uniform, dtype, i, values.data());
  }
  for (size_t at = random; at < bytes; at += random) {
    std::memcpy(values.data() + at, values.data(),
                std::min(random, bytes - at));
  }
  return values;
}

size_t BytesOf(const std::vector<int64_t>& size, kernels::DType dtype) {
  size_t bytes = kernels::SizeOf(dtype);
  for (const int64_t each : size) bytes *= static_cast<size_t>(each);
  return bytes;
}

}  // namespace

std::vector<ExpectedTensor> AllTensors(const ModelConfig& config) {
  const auto outside = ExpectedTensors::OutsideLayers(config);
  std::vector<ExpectedTensor> tensors(outside.begin(), outside.end());
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    const auto layer = ExpectedTensors::OfLayer(config, i);
    tensors.insert(tensors.end(), layer.begin(), layer.end());
  }
  return tensors;
}

LlamaShape ShapeOfWidth(int hidden, int layers, int vocab, int context) {
  return {.hidden = hidden,
          .intermediate = hidden * 11 / 4,
          .layers = layers,
          .heads = hidden / 64,
          .kv_heads = hidden / 256,
          .head_dim = 64,
          .vocab = vocab,
          .context = context};
}

double MatrixWeights(const ModelConfig& config) {
  double weights = 1.0 * config.vocab_size * config.hidden_size;  // the head
  for (const ExpectedTensor& tensor : AllTensors(config)) {
    if (tensor.shape.size() != 2) continue;
    switch (tensor.role) {
      case TensorRole::kEmbedding:
      case TensorRole::kPositions:
      case TensorRole::kHead:
        continue;
      case TensorRole::kExpertGate:
      case TensorRole::kExpertUp:
      case TensorRole::kExpertDown:
        if (tensor.expert >= config.experts.per_token) continue;
        break;
      default:
        break;
    }
    weights += 1.0 * static_cast<double>(tensor.shape[0]) *
               static_cast<double>(tensor.shape[1]);
  }
  return weights;
}

RandomLlama::RandomLlama(const LlamaShape& shape, kernels::DType dtype)
    : RandomLlama(ConfigJson(shape), dtype) {}

RandomLlama::RandomLlama(std::string config_json, kernels::DType dtype)
    : config_json_(std::move(config_json)),
      config_(kernels::ValueOrExit(ParseConfig(config_json_))),
      dtype_(dtype) {
  NACRE_CHECK(dtype == kernels::DType::kBF16 || dtype == kernels::DType::kF32,
              "weights of another type");
  size_t largest = 0;
  for (const ExpectedTensor& tensor : AllTensors(config_)) {
    largest = std::max(largest, BytesOf(tensor.shape, dtype));
  }
  // So that what goes through a matrix keeps its size, about.
  matrices_ =
      RandomBytes(largest + kStarts, dtype, 0.0f,
                  std::sqrt(3.0f / static_cast<float>(config_.hidden_size)));
  // Gemma adds 1.
  const auto center = static_cast<float>(1 - config_.norms.offset);
  norms_ = RandomBytes(
      BytesOf({std::max(config_.hidden_size, config_.head_dim)}, dtype), dtype,
      center, 0.2f);
}

absl::string_view RandomLlama::Bytes(const ExpectedTensor& tensor,
                                     size_t* matrices) const {
  const bool is_vector = tensor.shape.size() == 1;
  const bool is_norm = is_vector && absl::EndsWith(tensor.name, ".weight");
  // A prime number of rows' lines apart; aligned as in a file.
  const size_t start = is_vector ? 0 : (*matrices)++ * 7919 * 64 % kStarts;
  const std::vector<char>& from = is_norm ? norms_ : matrices_;
  return {from.data() + start, BytesOf(tensor.shape, dtype_)};
}

absl::StatusOr<std::unique_ptr<LanguageModel>> RandomLlama::Load(
    kernels::Backend* backend, const ModelOptions& options) const {
  std::map<std::string, Tensor> tensors;
  size_t matrices = 0;
  for (const ExpectedTensor& tensor : AllTensors(config_)) {
    tensors[tensor.name] = {dtype_, tensor.shape, Bytes(tensor, &matrices)};
  }
  return CreateModel(config_, config_json_, Checkpoint::OfTensors(tensors),
                     backend, options);
}

absl::Status RandomLlama::Write(const std::string& dir) const {
  NACRE_RETURN_IF_ERROR(WriteFile(dir + "/config.json", config_json_));
  std::vector<TensorSpec> specs;
  for (const ExpectedTensor& tensor : AllTensors(config_)) {
    specs.push_back({tensor.name, dtype_, tensor.shape});
  }
  NACRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<SafetensorsWriter> writer,
      SafetensorsWriter::Create(dir + "/model.safetensors", specs));
  size_t matrices = 0;
  for (const ExpectedTensor& tensor : AllTensors(config_)) {
    const absl::string_view bytes = Bytes(tensor, &matrices);
    NACRE_RETURN_IF_ERROR(writer->Append(bytes.data(), bytes.size()));
  }
  return writer->Finish();
}

}  // namespace nacre::model
