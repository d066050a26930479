#include "model/weights.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
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

// Rows [first, first + count) of a matrix.
HostMatrix RowsOf(const HostMatrix& matrix, int first, int count) {
  const size_t row_bytes =
      static_cast<size_t>(matrix.cols) * kernels::SizeOf(matrix.dtype);
  return {matrix.dtype,
          static_cast<const char*>(matrix.data) +
              static_cast<size_t>(first) * row_bytes,
          count, matrix.cols};
}

// Where the elements of a head come from: with h = head_dim / 2 and r pairs
// that turn, elements j and j + r of the checkpoint become j and j + h.
class HeadOrder {
 public:
  explicit HeadOrder(const ModelConfig& config)
      : from_(static_cast<size_t>(config.head_dim)) {
    const size_t half = from_.size() / 2;
    const size_t pairs = static_cast<size_t>(config.rotary_size()) / 2;
    size_t rest = 2 * pairs;
    for (size_t j = 0; j < half; ++j) from_[j] = j < pairs ? j : rest++;
    for (size_t j = 0; j < half; ++j) {
      from_[half + j] = j < pairs ? pairs + j : rest++;
    }
    is_same_ = pairs == half;
  }

  // Of each head's rows; `storage` holds what *matrix points to then.
  void Apply(HostMatrix* matrix, std::string* storage) const {
    if (is_same_) return;
    const int size = static_cast<int>(from_.size());
    for (int row = 0; row < matrix->rows; ++row) {
      const int from = row / size * size +
                       static_cast<int>(from_[static_cast<size_t>(row % size)]);
      storage->append(
          static_cast<const char*>(RowsOf(*matrix, from, 1).data),
          static_cast<size_t>(matrix->cols) * kernels::SizeOf(matrix->dtype));
    }
    matrix->data = storage->data();
  }
  // Of heads one after another.
  void Apply(std::vector<float>* values) const {
    if (is_same_) return;
    const std::vector<float> before = *values;
    for (size_t i = 0; i < before.size(); ++i) {
      const size_t at = i % from_.size();
      (*values)[i] = before[i - at + from_[at]];
    }
  }

 private:
  std::vector<size_t> from_;
  bool is_same_ = true;
};

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

  // Of one tensor, or of several one after another; `edit` changes the values
  // of each.
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Vector(
      const ExpectedTensors& tensors, absl::Span<const TensorRole> roles,
      absl::FunctionRef<void(TensorRole, std::vector<float>*)> edit =
          [](TensorRole, std::vector<float>*) {}) {
    std::vector<float> values;
    for (const TensorRole role : roles) {
      const ExpectedTensor& tensor = tensors[role];
      NACRE_ASSIGN_OR_RETURN(
          std::vector<float> part,
          checkpoint_.Vector(tensor.name, static_cast<int>(tensor.shape[0])));
      edit(role, &part);
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

  // Of rows, and of heads, whose elements are reordered.
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Norm(
      const ModelConfig& config, const ExpectedTensors& tensors,
      TensorRole role) {
    const bool is_of_heads =
        role == TensorRole::kQueryNorm || role == TensorRole::kKeyNorm;
    return Vector(tensors, {role}, [&](TensorRole, std::vector<float>* values) {
      if (is_of_heads) HeadOrder(config).Apply(values);
      if (config.norms.offset == 0) return;
      for (float& value : *values) {
        value += static_cast<float>(config.norms.offset);
      }
    });
  }

  absl::StatusOr<LayerWeights> Layer(const ModelConfig& config, int index) {
    using Role = TensorRole;
    const ExpectedTensors tensors = ExpectedTensors::OfLayer(config, index);
    LayerWeights layer;
    NACRE_ASSIGN_OR_RETURN(layer.input_norm,
                           Norm(config, tensors, Role::kInputNorm));
    NACRE_RETURN_IF_ERROR(QueryKeyValue(config, tensors, &layer));
    NACRE_ASSIGN_OR_RETURN(layer.o, Packed(tensors, {Role::kAttentionOutput}));
    if (config.attention_output_bias) {
      NACRE_ASSIGN_OR_RETURN(layer.o_bias,
                             Vector(tensors, {Role::kAttentionOutputBias}));
    }
    NACRE_ASSIGN_OR_RETURN(layer.mlp_norm,
                           Norm(config, tensors, Role::kMlpNorm));
    if (config.norms.after_both) {
      NACRE_ASSIGN_OR_RETURN(layer.attention_post_norm,
                             Norm(config, tensors, Role::kAttentionPostNorm));
      NACRE_ASSIGN_OR_RETURN(layer.mlp_post_norm,
                             Norm(config, tensors, Role::kMlpPostNorm));
    }
    if (config.has_experts(index)) {
      NACRE_RETURN_IF_ERROR(Experts(config, tensors, &layer));
      return layer;
    }
    if (tensors.Has(Role::kGateUp)) {
      NACRE_ASSIGN_OR_RETURN(layer.gate_up, Packed(tensors, {Role::kGateUp}));
    } else {
      NACRE_ASSIGN_OR_RETURN(layer.gate_up,
                             Packed(tensors, {Role::kGate, Role::kUp}));
    }
    NACRE_ASSIGN_OR_RETURN(layer.down, Packed(tensors, {Role::kDown}));
    if (config.mlp_bias) {
      NACRE_ASSIGN_OR_RETURN(layer.gate_up_bias,
                             Vector(tensors, {Role::kGateBias, Role::kUpBias}));
      NACRE_ASSIGN_OR_RETURN(layer.down_bias,
                             Vector(tensors, {Role::kDownBias}));
    }
    return layer;
  }

 private:
  absl::Status Experts(const ModelConfig& config,
                       const ExpectedTensors& tensors, LayerWeights* layer) {
    using Role = TensorRole;
    NACRE_ASSIGN_OR_RETURN(layer->router, Packed(tensors, {Role::kRouter}));
    for (int i = 0; i < config.experts.count; ++i) {
      const auto packed = [&](absl::Span<const Role> roles)
          -> absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> {
        std::vector<HostMatrix> parts;
        for (const Role role : roles) {
          NACRE_ASSIGN_OR_RETURN(parts.emplace_back(),
                                 Matrix(tensors.OfExpert(role, i)));
        }
        return Stacked(tensors.OfExpert(roles.front(), i).name, parts);
      };
      ExpertWeights& expert = layer->experts.emplace_back();
      NACRE_ASSIGN_OR_RETURN(expert.gate_up,
                             packed({Role::kExpertGate, Role::kExpertUp}));
      NACRE_ASSIGN_OR_RETURN(expert.down, packed({Role::kExpertDown}));
    }
    return absl::OkStatus();
  }

  // The rows of queries, keys and values.
  absl::Status QueryKeyValue(const ModelConfig& config,
                             const ExpectedTensors& tensors,
                             LayerWeights* layer) {
    using Role = TensorRole;
    const HeadOrder order(config);
    std::vector<HostMatrix> parts;
    if (tensors.Has(Role::kQueryKeyValue)) {
      NACRE_ASSIGN_OR_RETURN(const HostMatrix all,
                             Matrix(tensors[Role::kQueryKeyValue]));
      const int q = config.q_size();
      const int kv = config.kv_size();
      parts = {RowsOf(all, 0, q), RowsOf(all, q, kv), RowsOf(all, q + kv, kv)};
    } else {
      for (const Role role : {Role::kQuery, Role::kKey, Role::kValue}) {
        NACRE_ASSIGN_OR_RETURN(parts.emplace_back(), Matrix(tensors[role]));
      }
    }
    std::string reordered[2];
    for (size_t i = 0; i < 2; ++i) order.Apply(&parts[i], &reordered[i]);
    NACRE_ASSIGN_OR_RETURN(layer->qkv, Stacked(tensors.begin()[1].name, parts));
    const auto edit = [&](Role role, std::vector<float>* values) {
      if (role != Role::kValueBias) order.Apply(values);
    };
    if (config.qkv_bias) {
      NACRE_ASSIGN_OR_RETURN(
          layer->qkv_bias,
          Vector(tensors, {Role::kQueryBias, Role::kKeyBias, Role::kValueBias},
                 edit));
    }
    if (config.norms.of_heads) {
      NACRE_ASSIGN_OR_RETURN(layer->query_norm,
                             Norm(config, tensors, Role::kQueryNorm));
      NACRE_ASSIGN_OR_RETURN(layer->key_norm,
                             Norm(config, tensors, Role::kKeyNorm));
    }
    return absl::OkStatus();
  }

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

float EmbeddingScale(const ModelConfig& config, kernels::DType table) {
  const auto scale =
      static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  return table == kernels::DType::kBF16
             ? kernels::FromBF16(kernels::ToBF16(scale))
             : scale;
}

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
  if (config.scales_embedding) {
    weights.embedding_scale = EmbeddingScale(config, embedding.dtype);
  }
  report(1);
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    NACRE_ASSIGN_OR_RETURN(LayerWeights layer, loader.Layer(config, i));
    weights.layers.push_back(std::move(layer));
    report(i + 2);
  }
  NACRE_ASSIGN_OR_RETURN(weights.final_norm,
                         loader.Norm(config, outside, TensorRole::kFinalNorm));
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
