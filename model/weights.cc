#include "model/weights.h"

#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "model/config_cross.h"
#include "model/expected_tensors.h"
#include "model/families.h"
#include "model/matrix_slice.h"
#include "model/memory_needs.h"
#include "model/prompt_weights.h"
#include "model/qkv_rows.h"
#include "model/quantized/quantized_weights.h"
#include "model/tied_head.h"

namespace nacre::model {
namespace {

using kernels::HostMatrix;

// Loads tensors of one checkpoint to one backend and counts them.
class Loader {
 public:
  // `quantized` is null where all weights are floats, `shard` where all of them
  // are loaded.
  Loader(const Checkpoint& checkpoint, const QuantizedWeights* quantized,
         kernels::Backend* backend, const TensorShard* shard, Weights* weights)
      : checkpoint_(checkpoint),
        quantized_(quantized),
        backend_(backend),
        shard_(shard),
        weights_(weights) {}

  const Checkpoint& checkpoint() const { return checkpoint_; }

  // Of a matrix: whether all of it is wanted at `data`, or its rows as they are
  // packed.
  enum class Form { kWhole, kRows };

  // Valid until it is packed.
  absl::StatusOr<HostMatrix> Matrix(const ExpectedTensor& tensor, Form form) {
    weights_->num_parameters += tensor.shape[0] * tensor.shape[1];
    weights_->size_bytes += checkpoint_.StoredBytes(tensor.name);
    return Read(tensor, form);
  }

  // The same, not counted again.
  absl::StatusOr<HostMatrix> Read(const ExpectedTensor& tensor, Form form) {
    const int rows = static_cast<int>(tensor.shape[0]);
    const int cols = static_cast<int>(tensor.shape[1]);
    if (form == Form::kWhole ||
        backend_->location() != kernels::Location::kHost) {
      return checkpoint_.Matrix(tensor.name, rows, cols);
    }
    NACRE_ASSIGN_OR_RETURN(MatrixRows matrix,
                           checkpoint_.Rows(tensor.name, rows, cols));
    sources_.push_back(std::move(matrix.source));
    return matrix.matrix;
  }

  // The weights of products, which may be quantized.
  absl::StatusOr<HostMatrix> Factor(const ExpectedTensor& tensor,
                                    Form form = Form::kRows) {
    if (quantized_ == nullptr) return Matrix(tensor, form);
    NACRE_ASSIGN_OR_RETURN(const bool is_quantized,
                           quantized_->Has(tensor.name));
    if (!is_quantized) return Matrix(tensor, form);
    const int rows = static_cast<int>(tensor.shape[0]);
    const int cols = static_cast<int>(tensor.shape[1]);
    NACRE_ASSIGN_OR_RETURN(QuantizedWeights::Values values,
                           quantized_->Read(tensor.name, rows, cols));
    weights_->num_parameters += tensor.shape[0] * tensor.shape[1];
    weights_->size_bytes += values.stored_bytes;
    dequantized_.push_back(std::move(values.bytes));
    return HostMatrix{values.dtype, dequantized_.back().data(), rows, cols};
  }

  // Of one tensor, or of several that share their inputs. This and what follows
  // end all matrices.
  // `has_gate`: one half of the rows are gates of the other half.
  absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> Packed(
      const ExpectedTensors& tensors, absl::Span<const TensorRole> roles,
      bool has_gate = false) {
    std::vector<HostMatrix> parts;
    int rows = 0;
    for (const TensorRole role : roles) {
      NACRE_ASSIGN_OR_RETURN(const HostMatrix whole, Factor(tensors[role]));
      parts.push_back(SplitRows(role, whole));
      rows += parts.back().rows;
    }
    return Stacked(tensors[roles.front()].name, parts, has_gate ? rows / 2 : 0);
  }

  // Of a product whose inputs are split among ranks.
  absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> PackedInputs(
      const ExpectedTensors& tensors, TensorRole role) {
    const std::string& name = tensors[role].name;
    NACRE_ASSIGN_OR_RETURN(const HostMatrix whole, Factor(tensors[role]));
    if (shard_ == nullptr) return Stacked(name, {whole});
    const int cols = whole.cols / kernels::kInputShards;
    const int first = shard_->Begin(kernels::kInputShards);
    const int end = first + shard_->Size(kernels::kInputShards);
    std::vector<HostMatrix> shards;
    for (int i = first; i < end; ++i) {
      shards.push_back(Slice(whole, {0, whole.rows, i * cols, cols}));
    }
    return Finished(name, shard_->backend->PackInputs(shards));
  }

  // Of the vocabulary head, all of it as the checkpoint has it.
  absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> PackedHead(
      const std::string& name, const HostMatrix& whole) {
    if (shard_ == nullptr) return Stacked(name, {whole});
    return Finished(name, shard_->backend->PackOutputs(ShareOfRows(whole)));
  }

  // `name` is for errors, `pairs_apart` as in PackHints.
  absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> Stacked(
      const std::string& name, absl::Span<const HostMatrix> parts,
      int pairs_apart = 0) {
    kernels::PackHints hints;
    hints.pairs_apart = pairs_apart;
    return Finished(name, backend_->PackFor(parts, hints));
  }

  absl::StatusOr<std::unique_ptr<kernels::PackedTable>> Table(
      const std::string& name, const HostMatrix& matrix) {
    return Finished(name, backend_->PackTable(matrix));
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
      weights_->num_parameters += tensor.shape[0];
      weights_->size_bytes +=
          tensor.shape[0] * static_cast<int64_t>(sizeof(float));
      const auto [begin, end] = SplitValues(role, part);
      values.insert(values.end(), begin, end);
    }
    const size_t bytes = values.size() * sizeof(float);
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
      if (is_of_heads) HeadOrder(config).Apply(config.head_dim, values);
      if (config.norms.offset == 0) return;
      for (float& value : *values) {
        value += static_cast<float>(config.norms.offset);
      }
    });
  }

  absl::StatusOr<LayerWeights> Layer(const ModelConfig& config, int index) {
    using Role = TensorRole;
    const ExpectedTensors tensors = ExpectedTensors::OfLayer(config, index);
    NACRE_RETURN_IF_ERROR(CheckNothingFurther(tensors));
    LayerWeights layer;
    NACRE_RETURN_IF_ERROR(BlockNorm(config, tensors, Role::kInputNorm,
                                    Role::kInputNormBias, &layer.input_norm));
    NACRE_RETURN_IF_ERROR(QueryKeyValue(config, tensors, &layer));
    NACRE_ASSIGN_OR_RETURN(layer.o,
                           PackedInputs(tensors, Role::kAttentionOutput));
    if (config.attention_output_bias) {
      NACRE_ASSIGN_OR_RETURN(layer.o_bias,
                             Vector(tensors, {Role::kAttentionOutputBias}));
    }
    NACRE_RETURN_IF_ERROR(BlockNorm(config, tensors, Role::kMlpNorm,
                                    Role::kMlpNormBias, &layer.mlp_norm));
    if (config.norms.after_both) {
      NACRE_ASSIGN_OR_RETURN(layer.attention_post_norm,
                             Norm(config, tensors, Role::kAttentionPostNorm));
      NACRE_ASSIGN_OR_RETURN(layer.mlp_post_norm,
                             Norm(config, tensors, Role::kMlpPostNorm));
    }
    if (config.has_experts(index)) {
      NACRE_RETURN_IF_ERROR(Experts(config, tensors, &layer));
    } else {
      NACRE_RETURN_IF_ERROR(FeedForward(config, tensors, &layer));
    }
    return layer;
  }

  // Beside quantized weights: who wrote them would compute with what is not in
  // the config.
  absl::Status CheckNothingFurther(const ExpectedTensors& tensors) const {
    if (quantized_ == nullptr) return absl::OkStatus();
    absl::flat_hash_set<std::string> known;
    for (const ExpectedTensor& tensor : tensors) known.insert(tensor.name);
    for (const ExpectedTensor& tensor : tensors) {
      if (tensor.shape.size() != 2) continue;
      NACRE_RETURN_IF_ERROR(quantized_->CheckNoActivationScales(tensor.name));
      const absl::string_view product =
          absl::StripSuffix(tensor.name, ".weight");
      if (known.contains(absl::StrCat(product, ".bias"))) continue;
      NACRE_RETURN_IF_ERROR(quantized_->CheckNoBiases(
          tensor.name, static_cast<int>(tensor.shape[0])));
    }
    return absl::OkStatus();
  }

  // Of what a block, or the head, starts from.
  absl::Status BlockNorm(const ModelConfig& config,
                         const ExpectedTensors& tensors, TensorRole weight,
                         TensorRole bias, NormWeights* norm) {
    NACRE_ASSIGN_OR_RETURN(norm->weight, Norm(config, tensors, weight));
    if (config.norms.is_layer_norm) {
      NACRE_ASSIGN_OR_RETURN(norm->bias, Vector(tensors, {bias}));
    }
    return absl::OkStatus();
  }

 private:
  // A matrix, or a table, that was packed, and the end of what it was packed
  // from. `name` is for errors.
  template <class T>
  absl::StatusOr<T> Finished(const std::string& name,
                             absl::StatusOr<T> packed) {
    EndMatrices();
    if (packed.ok()) return packed;
    return absl::Status(packed.status().code(),
                        absl::StrCat(name, ": ", packed.status().message()));
  }

  // Valid until it is packed, as what it is of.
  HostMatrix Slice(const HostMatrix& whole, const MatrixRange& range) {
    auto slice = std::make_unique<MatrixSlice>(whole, range);
    const HostMatrix matrix = slice->matrix();
    sources_.push_back(std::move(slice));
    return matrix;
  }
  HostMatrix ShareOfRows(const HostMatrix& whole) {
    return Slice(whole, {shard_->Begin(whole.rows), shard_->Size(whole.rows), 0,
                         whole.cols});
  }
  HostMatrix SplitRows(TensorRole role, const HostMatrix& whole) {
    const bool is_split = shard_ != nullptr && HasSplitRows(role);
    return is_split ? ShareOfRows(whole) : whole;
  }

  using Values = std::vector<float>::const_iterator;
  std::pair<Values, Values> SplitValues(TensorRole role,
                                        const std::vector<float>& values) {
    if (shard_ == nullptr || !HasSplitRows(role)) {
      return {values.begin(), values.end()};
    }
    const int size = static_cast<int>(values.size());
    const Values begin = values.begin() + shard_->Begin(size);
    return {begin, begin + shard_->Size(size)};
  }

  // Gives their memory back.
  void EndMatrices() {
    dequantized_.clear();
    sources_.clear();
    checkpoint_.GiveBack();
  }

  absl::Status FeedForward(const ModelConfig& config,
                           const ExpectedTensors& tensors,
                           LayerWeights* layer) {
    using Role = TensorRole;
    std::vector<Role> inputs = {Role::kUp};
    std::vector<Role> biases = {Role::kUpBias};
    if (tensors.Has(Role::kGateUp)) {
      inputs = {Role::kGateUp};
    } else if (config.blocks.has_gate) {
      inputs = {Role::kGate, Role::kUp};
      biases = {Role::kGateBias, Role::kUpBias};
    }
    NACRE_ASSIGN_OR_RETURN(layer->gate_up,
                           Packed(tensors, inputs, config.blocks.has_gate));
    NACRE_ASSIGN_OR_RETURN(layer->down, PackedInputs(tensors, Role::kDown));
    if (config.mlp_bias) {
      NACRE_ASSIGN_OR_RETURN(layer->gate_up_bias, Vector(tensors, biases));
      NACRE_ASSIGN_OR_RETURN(layer->down_bias,
                             Vector(tensors, {Role::kDownBias}));
    }
    return absl::OkStatus();
  }

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
                                 Factor(tensors.OfExpert(role, i)));
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

  absl::Status QueryKeyValueBias(const ModelConfig& config,
                                 const ExpectedTensors& tensors,
                                 LayerWeights* layer) {
    using Role = TensorRole;
    std::vector<Role> roles = {Role::kQueryBias, Role::kKeyBias,
                               Role::kValueBias};
    if (tensors.Has(Role::kQueryKeyValue)) roles = {Role::kQueryKeyValueBias};
    const auto edit = [&](Role role, std::vector<float>* values) {
      const HeadOrder order(config);
      if (role == Role::kQueryKeyValueBias) {
        SeparateQkv(config, values);
        order.Apply(config.q_size() + config.kv_size(), values);
      } else if (role != Role::kValueBias) {
        order.Apply(static_cast<int>(values->size()), values);
      }
    };
    NACRE_ASSIGN_OR_RETURN(layer->qkv_bias, Vector(tensors, roles, edit));
    return absl::OkStatus();
  }

  // The rows of queries, keys and values.
  absl::Status QueryKeyValue(const ModelConfig& config,
                             const ExpectedTensors& tensors,
                             LayerWeights* layer) {
    using Role = TensorRole;
    const HeadOrder order(config);
    std::vector<HostMatrix> parts;
    std::string separated[3];
    const bool is_fused = tensors.Has(Role::kQueryKeyValue);
    if (is_fused) {
      NACRE_ASSIGN_OR_RETURN(
          const HostMatrix all,
          Factor(tensors[Role::kQueryKeyValue], Form::kWhole));
      parts = SeparateQkv(config, all, separated);
    } else {
      // Only what is reordered must be at hand.
      const Form form = order.is_same() ? Form::kRows : Form::kWhole;
      for (const Role role : {Role::kQuery, Role::kKey, Role::kValue}) {
        NACRE_ASSIGN_OR_RETURN(parts.emplace_back(),
                               Factor(tensors[role], form));
      }
    }
    std::string reordered[2];
    for (size_t i = 0; i < 2; ++i) order.Apply(&parts[i], &reordered[i]);
    if (shard_ != nullptr) {
      for (HostMatrix& part : parts) part = ShareOfRows(part);
    }
    const Role first = is_fused ? Role::kQueryKeyValue : Role::kQuery;
    NACRE_ASSIGN_OR_RETURN(
        layer->qkv, Stacked(tensors[first].name, parts, config.head_dim / 2));
    if (config.qkv_bias) {
      NACRE_RETURN_IF_ERROR(QueryKeyValueBias(config, tensors, layer));
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
  const QuantizedWeights* quantized_;
  kernels::Backend* backend_;
  const TensorShard* shard_;
  Weights* weights_;
  // Of the parts of the next matrix.
  std::deque<std::string> dequantized_;
  std::vector<std::unique_ptr<kernels::RowSource>> sources_;
};

// RESOURCE_EXHAUSTED where the device has too little memory for all weights:
// better said now than after minutes.
absl::Status CheckRoom(const Checkpoint& checkpoint, const ModelConfig& config,
                       kernels::Backend* backend, const TensorShard* shard) {
  const absl::optional<kernels::DeviceMemory> memory = backend->Memory();
  if (!memory.has_value()) return absl::OkStatus();
  MemoryNeeds needs = MemoryNeeds::Of(checkpoint, config, *backend);
  if (shard != nullptr) {
    needs.weights /= shard->ranks();
    if (shard->rank() > 0) needs.tables = 0;
  }
  needs.weights += PromptWeightBytes(config, backend);
  if (needs.loaded() <= memory->available()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the weights need ", needs.loaded(),
                   " bytes on the device, ", memory->ToString()));
}

// A config with fewer layers than the checkpoint would load and talk nonsense.
absl::Status CheckNoFurtherLayer(const Checkpoint& checkpoint,
                                 const ModelConfig& config) {
  const std::string prefix = LayerPrefix(config, config.num_hidden_layers);
  for (const std::string& name : checkpoint.Names()) {
    if (absl::StartsWith(name, prefix)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the checkpoint holds ", name, ", but ",
                       FindFamily(config.architecture)->fields.num_layers,
                       " is ", config.num_hidden_layers));
    }
  }
  return absl::OkStatus();
}

// A GliDe draft whose config lacks what says so would load as a Llama.
absl::Status CheckCross(const Checkpoint& checkpoint,
                        const ModelConfig& config) {
  if (config.cross.has_value()) return absl::OkStatus();
  for (const std::string& name : checkpoint.Names()) {
    if (!IsCrossTensor(name)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the checkpoint holds ", name,
        ", of a GliDe draft, but large_num_attention_heads of its config is "
        "missing"));
  }
  return absl::OkStatus();
}

absl::Status LoadEmbedding(const ModelConfig& config,
                           const ExpectedTensors& outside, Loader* loader,
                           Weights* weights) {
  const ExpectedTensor& table = outside[TensorRole::kEmbedding];
  NACRE_ASSIGN_OR_RETURN(const HostMatrix embedding,
                         loader->Matrix(table, Loader::Form::kRows));
  NACRE_ASSIGN_OR_RETURN(weights->embedding,
                         loader->Table(table.name, embedding));
  if (config.embedding.is_scaled) {
    weights->embedding_scale = EmbeddingScale(config, embedding.dtype);
  }
  return absl::OkStatus();
}

absl::Status LoadHead(const ModelConfig& config, const ExpectedTensors& outside,
                      Loader* loader, Weights* weights) {
  if (config.tie_word_embeddings) {
    const ExpectedTensor& table = outside[TensorRole::kEmbedding];
    NACRE_ASSIGN_OR_RETURN(const HostMatrix tied,
                           loader->Read(table, Loader::Form::kRows));
    NACRE_ASSIGN_OR_RETURN(weights->head, loader->PackedHead(table.name, tied));
    return absl::OkStatus();
  }
  const ExpectedTensor& head = outside[TensorRole::kHead];
  NACRE_RETURN_IF_ERROR(loader->CheckNothingFurther(outside));
  NACRE_ASSIGN_OR_RETURN(const HostMatrix whole, loader->Factor(head));
  NACRE_ASSIGN_OR_RETURN(weights->head, loader->PackedHead(head.name, whole));
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
                                    const ProgressCallback& progress,
                                    const TensorShard* shard) {
  // Steps: embedding, each layer, norm and head.
  const double num_steps = config.num_hidden_layers + 2;
  const auto report = [&](int step) {
    if (progress) progress("weights", step / num_steps);
  };
  NACRE_RETURN_IF_ERROR(CheckNoFurtherLayer(checkpoint, config));
  NACRE_RETURN_IF_ERROR(CheckCross(checkpoint, config));
  std::optional<QuantizedWeights> quantized;
  if (checkpoint.quantization().has_value()) {
    quantized.emplace(checkpoint, *checkpoint.quantization());
  }
  const QuantizedWeights* const source = quantized ? &*quantized : nullptr;
  NACRE_RETURN_IF_ERROR(CheckRoom(checkpoint, config, backend, shard));
  if (shard != nullptr && backend->Memory().has_value()) {
    // Without it the others would read for minutes, and then hear of it.
    NACRE_RETURN_IF_ERROR(shard->least_of_ranks(0).status());
  }
  Weights weights;
  Loader loader(checkpoint, source, backend, shard, &weights);
  const ExpectedTensors outside = ExpectedTensors::OutsideLayers(config);
  report(0);
  if (config.tie_word_embeddings) {  // before all that takes long
    NACRE_RETURN_IF_ERROR(CheckTiedHead(checkpoint, config));
  }
  NACRE_RETURN_IF_ERROR(LoadEmbedding(config, outside, &loader, &weights));
  if (config.embedding.has_positions) {
    const ExpectedTensor& positions = outside[TensorRole::kPositions];
    NACRE_ASSIGN_OR_RETURN(const HostMatrix matrix,
                           loader.Matrix(positions, Loader::Form::kRows));
    NACRE_ASSIGN_OR_RETURN(weights.positions,
                           loader.Table(positions.name, matrix));
  }
  report(1);
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    NACRE_ASSIGN_OR_RETURN(LayerWeights layer, loader.Layer(config, i));
    weights.layers.push_back(std::move(layer));
    report(i + 2);
  }
  NACRE_RETURN_IF_ERROR(
      loader.BlockNorm(config, outside, TensorRole::kFinalNorm,
                       TensorRole::kFinalNormBias, &weights.final_norm));
  NACRE_RETURN_IF_ERROR(LoadHead(config, outside, &loader, &weights));
  report(config.num_hidden_layers + 2);
  return weights;
}

absl::StatusOr<Weights> LoadVocabulary(const Checkpoint& checkpoint,
                                       const ModelConfig& config,
                                       WantedTables wanted,
                                       kernels::Backend* backend) {
  std::optional<QuantizedWeights> quantized;
  if (checkpoint.quantization().has_value()) {
    quantized.emplace(checkpoint, *checkpoint.quantization());
  }
  Weights weights;
  Loader loader(checkpoint, quantized ? &*quantized : nullptr, backend,
                /*shard=*/nullptr, &weights);
  const ExpectedTensors outside = ExpectedTensors::OutsideLayers(config);
  if (wanted.embedding) {
    NACRE_RETURN_IF_ERROR(LoadEmbedding(config, outside, &loader, &weights));
  }
  if (wanted.head) {
    if (config.tie_word_embeddings) {
      NACRE_RETURN_IF_ERROR(CheckTiedHead(checkpoint, config));
    }
    NACRE_RETURN_IF_ERROR(LoadHead(config, outside, &loader, &weights));
  }
  return weights;
}

}  // namespace nacre::model
