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

namespace nacre::model {
namespace {

using kernels::HostMatrix;

constexpr char kEmbedding[] = "model.embed_tokens.weight";

// Loads tensors of one checkpoint to one backend and counts them.
class Loader {
 public:
  Loader(const Checkpoint& checkpoint, kernels::Backend* backend,
         Weights* weights)
      : checkpoint_(checkpoint), backend_(backend), weights_(weights) {}

  absl::StatusOr<HostMatrix> Matrix(const std::string& name, int rows,
                                    int cols) {
    NACRE_ASSIGN_OR_RETURN(const HostMatrix matrix,
                           checkpoint_.Matrix(name, rows, cols));
    const int64_t count = int64_t{rows} * cols;
    weights_->num_parameters += count;
    weights_->size_bytes +=
        count * static_cast<int64_t>(kernels::SizeOf(matrix.dtype));
    return matrix;
  }

  absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> Packed(
      const std::string& name, int rows, int cols) {
    NACRE_ASSIGN_OR_RETURN(const HostMatrix matrix, Matrix(name, rows, cols));
    return Stacked(name, {matrix});
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

  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Vector(
      const std::string& name, int size) {
    NACRE_ASSIGN_OR_RETURN(const std::vector<float> values,
                           checkpoint_.Vector(name, size));
    weights_->num_parameters += size;
    weights_->size_bytes += size * static_cast<int64_t>(sizeof(float));
    const size_t bytes = values.size() * sizeof(float);
    NACRE_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Buffer> buffer,
                           backend_->Allocate(bytes));
    backend_->CopyFromHost(values.data(), bytes, buffer->data());
    return buffer;
  }

  absl::StatusOr<LayerWeights> Layer(const ModelConfig& config, int index) {
    const std::string prefix = absl::StrCat("model.layers.", index, ".");
    const std::string attention = prefix + "self_attn.";
    const std::string mlp = prefix + "mlp.";
    const int hidden = config.hidden_size;
    const int inter = config.intermediate_size;
    LayerWeights layer;
    NACRE_ASSIGN_OR_RETURN(layer.input_norm,
                           Vector(prefix + "input_layernorm.weight", hidden));
    NACRE_ASSIGN_OR_RETURN(
        const HostMatrix q,
        Matrix(attention + "q_proj.weight", config.q_size(), hidden));
    NACRE_ASSIGN_OR_RETURN(
        const HostMatrix k,
        Matrix(attention + "k_proj.weight", config.kv_size(), hidden));
    NACRE_ASSIGN_OR_RETURN(
        const HostMatrix v,
        Matrix(attention + "v_proj.weight", config.kv_size(), hidden));
    NACRE_ASSIGN_OR_RETURN(layer.qkv,
                           Stacked(attention + "{q,k,v}_proj", {q, k, v}));
    NACRE_ASSIGN_OR_RETURN(
        layer.o, Packed(attention + "o_proj.weight", hidden, config.q_size()));
    NACRE_ASSIGN_OR_RETURN(
        layer.post_attention_norm,
        Vector(prefix + "post_attention_layernorm.weight", hidden));
    NACRE_ASSIGN_OR_RETURN(const HostMatrix gate,
                           Matrix(mlp + "gate_proj.weight", inter, hidden));
    NACRE_ASSIGN_OR_RETURN(const HostMatrix up,
                           Matrix(mlp + "up_proj.weight", inter, hidden));
    NACRE_ASSIGN_OR_RETURN(layer.gate_up,
                           Stacked(mlp + "{gate,up}_proj", {gate, up}));
    NACRE_ASSIGN_OR_RETURN(layer.down,
                           Packed(mlp + "down_proj.weight", hidden, inter));
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
  int64_t bytes = 0;
  for (const std::string& name : checkpoint.Names()) {
    // What else is wrong with a tensor is said when it is loaded.
    const absl::StatusOr<Tensor> tensor = checkpoint.Find(name);
    if (!tensor.ok()) continue;
    const bool is_table = name == kEmbedding;
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
                                 int num_hidden_layers) {
  const std::string prefix =
      absl::StrCat("model.layers.", num_hidden_layers, ".");
  for (const std::string& name : checkpoint.Names()) {
    if (absl::StartsWith(name, prefix)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the checkpoint holds ", name,
                       ", but num_hidden_layers is ", num_hidden_layers));
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
  NACRE_RETURN_IF_ERROR(
      CheckNoFurtherLayer(checkpoint, config.num_hidden_layers));
  NACRE_RETURN_IF_ERROR(CheckRoom(checkpoint, config, backend));
  Weights weights;
  Loader loader(checkpoint, backend, &weights);
  report(0);
  NACRE_ASSIGN_OR_RETURN(
      const HostMatrix embedding,
      loader.Matrix(kEmbedding, config.vocab_size, config.hidden_size));
  NACRE_ASSIGN_OR_RETURN(weights.embedding,
                         loader.Table(kEmbedding, embedding));
  report(1);
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    NACRE_ASSIGN_OR_RETURN(LayerWeights layer, loader.Layer(config, i));
    weights.layers.push_back(std::move(layer));
    report(i + 2);
  }
  NACRE_ASSIGN_OR_RETURN(weights.final_norm, loader.Vector("model.norm.weight",
                                                           config.hidden_size));
  if (config.tie_word_embeddings) {
    NACRE_ASSIGN_OR_RETURN(weights.head,
                           loader.Stacked(kEmbedding, {embedding}));
  } else {
    NACRE_ASSIGN_OR_RETURN(
        weights.head,
        loader.Packed("lm_head.weight", config.vocab_size, config.hidden_size));
  }
  report(config.num_hidden_layers + 2);
  return weights;
}

}  // namespace nacre::model
