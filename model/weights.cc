#include "model/weights.h"

#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "model/expected_tensors.h"

namespace nacre::model {
namespace {

using kernels::HostMatrix;

// Loads tensors of one checkpoint to one backend and counts them.
class Loader {
 public:
  Loader(const Checkpoint& checkpoint, kernels::Backend* backend,
         Weights* weights)
      : checkpoint_(checkpoint), backend_(backend), weights_(weights) {}

  absl::StatusOr<HostMatrix> Matrix(const ExpectedTensor& tensor) {
    NACRE_ASSIGN_OR_RETURN(
        const HostMatrix matrix,
        checkpoint_.Matrix(tensor.name, static_cast<int>(tensor.shape[0]),
                           static_cast<int>(tensor.shape[1])));
    const int64_t count = tensor.shape[0] * tensor.shape[1];
    weights_->num_parameters += count;
    weights_->size_bytes +=
        count * static_cast<int64_t>(kernels::SizeOf(matrix.dtype));
    return matrix;
  }

  // Of one tensor, or of several that share their inputs.
  absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> Packed(
      const ExpectedTensors& tensors, absl::Span<const TensorRole> roles) {
    std::vector<HostMatrix> parts;
    for (const TensorRole role : roles) {
      NACRE_ASSIGN_OR_RETURN(parts.emplace_back(), Matrix(tensors[role]));
    }
    return Stacked(tensors[roles.front()].name, parts);
  }

  // `name` is for errors.
  absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> Stacked(
      const std::string& name, absl::Span<const HostMatrix> parts) {
    auto packed = backend_->Pack(parts);
    if (packed.ok()) return packed;
    return absl::Status(packed.status().code(),
                        absl::StrCat(name, ": ", packed.status().message()));
  }

  absl::StatusOr<std::unique_ptr<kernels::PackedTable>> Table(
      const std::string& name, const HostMatrix& matrix) {
    auto packed = backend_->PackTable(matrix);
    if (packed.ok()) return packed;
    return absl::Status(packed.status().code(),
                        absl::StrCat(name, ": ", packed.status().message()));
  }

  // Of one tensor, or of several one after another.
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Vector(
      const ExpectedTensors& tensors, absl::Span<const TensorRole> roles) {
    std::vector<float> values;
    for (const TensorRole role : roles) {
      const ExpectedTensor& tensor = tensors[role];
      NACRE_ASSIGN_OR_RETURN(
          const std::vector<float> part,
          checkpoint_.Vector(tensor.name, static_cast<int>(tensor.shape[0])));
      values.insert(values.end(), part.begin(), part.end());
    }
    const size_t bytes = values.size() * sizeof(float);
    weights_->num_parameters += static_cast<int64_t>(values.size());
    weights_->size_bytes += static_cast<int64_t>(bytes);
    NACRE_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Buffer> buffer,
                           backend_->Allocate(bytes));
    backend_->CopyFromHost(values.data(), bytes, buffer->data());
    return buffer;
  }

  absl::StatusOr<LayerWeights> Layer(const ModelConfig& config, int index) {
    using Role = TensorRole;
    const ExpectedTensors tensors = ExpectedTensors::OfLayer(config, index);
    LayerWeights layer;
    NACRE_ASSIGN_OR_RETURN(layer.input_norm,
                           Vector(tensors, {Role::kInputNorm}));
    NACRE_ASSIGN_OR_RETURN(
        layer.qkv, Packed(tensors, {Role::kQuery, Role::kKey, Role::kValue}));
    if (config.qkv_bias) {
      NACRE_ASSIGN_OR_RETURN(layer.qkv_bias,
                             Vector(tensors, {Role::kQueryBias, Role::kKeyBias,
                                              Role::kValueBias}));
    }
    NACRE_ASSIGN_OR_RETURN(layer.o, Packed(tensors, {Role::kAttentionOutput}));
    NACRE_ASSIGN_OR_RETURN(layer.post_attention_norm,
                           Vector(tensors, {Role::kPostAttentionNorm}));
    NACRE_ASSIGN_OR_RETURN(layer.gate_up,
                           Packed(tensors, {Role::kGate, Role::kUp}));
    NACRE_ASSIGN_OR_RETURN(layer.down, Packed(tensors, {Role::kDown}));
    return layer;
  }

 private:
  const Checkpoint& checkpoint_;
  kernels::Backend* backend_;
  Weights* weights_;
};

absl::optional<HostMatrix> AsMatrix(const Tensor& tensor) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (tensor.shape.size() != 2) return absl::nullopt;
  for (const int64_t size : tensor.shape) {
    if (size < 1 || size > kMost) return absl::nullopt;
  }
  return HostMatrix{tensor.dtype, tensor.bytes.data(),
                    static_cast<int>(tensor.shape[0]),
                    static_cast<int>(tensor.shape[1])};
}

// RESOURCE_EXHAUSTED where the device has too little memory for all weights:
// better said now than after minutes.
absl::Status CheckRoom(const Checkpoint& checkpoint, const ModelConfig& config,
                       kernels::Backend* backend) {
  const absl::optional<kernels::DeviceMemory> memory = backend->Memory();
  if (!memory.has_value()) return absl::OkStatus();
  const ExpectedTensors outside = ExpectedTensors::OutsideLayers(config);
  const std::string& table = outside[TensorRole::kEmbedding].name;
  int64_t bytes = 0;
  for (const std::string& name : checkpoint.Names()) {
    // What else is wrong with a tensor is said when it is loaded.
    const absl::StatusOr<Tensor> tensor = checkpoint.Find(name);
    if (!tensor.ok()) continue;
    const bool is_table = name == table;
    const absl::optional<HostMatrix> matrix = AsMatrix(*tensor);
    if (is_table || !matrix.has_value()) {
      bytes += static_cast<int64_t>(tensor->bytes.size());
    }
    if (matrix.has_value() && (!is_table || config.tie_word_embeddings)) {
      bytes += backend->PackedBytes({&*matrix, 1});
    }
  }
  if (bytes <= memory->available()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the weights need ", bytes,
                                                   " bytes on the device, ",
                                                   memory->ToString()));
}

// A config with fewer layers than the checkpoint would load and talk nonsense.
absl::Status CheckNoFurtherLayer(const Checkpoint& checkpoint,
                                 const ModelConfig& config) {
  const std::string prefix = LayerPrefix(config, config.num_hidden_layers);
  for (const std::string& name : checkpoint.Names()) {
    if (absl::StartsWith(name, prefix)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the checkpoint holds ", name, ", but num_hidden_layers is ",
          config.num_hidden_layers));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Weights> LoadWeights(const Checkpoint& checkpoint,
                                    const ModelConfig& config,
                                    kernels::Backend* backend,
                                    const ProgressCallback& progress) {
  // Steps: embedding, each layer, norm and head.
  const double num_steps = config.num_hidden_layers + 2;
  const auto report = [&](int step) {
    if (progress) progress("weights", step / num_steps);
  };
  NACRE_RETURN_IF_ERROR(CheckNoFurtherLayer(checkpoint, config));
  NACRE_RETURN_IF_ERROR(CheckRoom(checkpoint, config, backend));
  Weights weights;
  Loader loader(checkpoint, backend, &weights);
  const ExpectedTensors outside = ExpectedTensors::OutsideLayers(config);
  const ExpectedTensor& table = outside[TensorRole::kEmbedding];
  report(0);
  NACRE_ASSIGN_OR_RETURN(const HostMatrix embedding, loader.Matrix(table));
  NACRE_ASSIGN_OR_RETURN(weights.embedding,
                         loader.Table(table.name, embedding));
  report(1);
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    NACRE_ASSIGN_OR_RETURN(LayerWeights layer, loader.Layer(config, i));
    weights.layers.push_back(std::move(layer));
    report(i + 2);
  }
  NACRE_ASSIGN_OR_RETURN(weights.final_norm,
                         loader.Vector(outside, {TensorRole::kFinalNorm}));
  if (config.tie_word_embeddings) {
    NACRE_ASSIGN_OR_RETURN(weights.head,
                           loader.Stacked(table.name, {embedding}));
  } else {
    NACRE_ASSIGN_OR_RETURN(weights.head,
                           loader.Packed(outside, {TensorRole::kHead}));
  }
  report(config.num_hidden_layers + 2);
  return weights;
}

}  // namespace nacre::model
