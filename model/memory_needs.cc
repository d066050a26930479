#include "model/memory_needs.h"

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/types/optional.h"
#include "model/expected_tensors.h"
#include "model/quantized/quantized_weights.h"

namespace nacre::model {
namespace {

constexpr char kNoData = 0;

// Whether Pack stacks the weights of `role` on those of the role before.
bool IsStackedOn(TensorRole before, TensorRole role) {
  using Role = TensorRole;
  return (before == Role::kQuery && role == Role::kKey) ||
         (before == Role::kKey && role == Role::kValue) ||
         (before == Role::kGate && role == Role::kUp) ||
         (before == Role::kExpertGate && role == Role::kExpertUp);
}

// Adds tensors up, in the order of ExpectedTensors.
class NeedsCounter {
 public:
  NeedsCounter(const Checkpoint& checkpoint, const ModelConfig& config,
               const kernels::Backend& backend)
      : checkpoint_(checkpoint), config_(config), backend_(backend) {
    if (checkpoint.quantization().has_value()) {
      quantized_.emplace(checkpoint, *checkpoint.quantization());
    }
  }

  void Add(const ExpectedTensor& tensor) {
    const absl::optional<kernels::DType> dtype = TypeOf(tensor.name);
    if (!dtype.has_value()) return;
    int64_t values = 1;
    for (const int64_t dimension : tensor.shape) values *= dimension;
    if (tensor.shape.size() != 2) {
      needs_.weights += values * static_cast<int64_t>(sizeof(float));
      return;
    }
    const bool is_positions = tensor.role == TensorRole::kPositions;
    if (is_positions || tensor.role == TensorRole::kEmbedding) {
      needs_.tables += values * static_cast<int64_t>(kernels::SizeOf(*dtype));
      if (is_positions || !config_.tie_word_embeddings) return;
    }
    if (!stack_.empty() && !IsStackedOn(last_, tensor.role)) EndStack();
    last_ = tensor.role;
    // Of its data, which is not read, only that there is some.
    stack_.push_back({*dtype, &kNoData, static_cast<int>(tensor.shape[0]),
                      static_cast<int>(tensor.shape[1])});
  }

  MemoryNeeds Finish() {
    EndStack();
    return needs_;
  }

 private:
  // Of the tensor's values; none: what is wrong with it is said when it is
  // loaded.
  absl::optional<kernels::DType> TypeOf(const std::string& name) const {
    const absl::StatusOr<Tensor> tensor = checkpoint_.Describe(name);
    if (tensor.ok()) return tensor->dtype;
    if (!quantized_.has_value()) return absl::nullopt;
    const absl::StatusOr<kernels::DType> dtype = quantized_->TypeOf(name);
    if (dtype.ok()) return *dtype;
    return absl::nullopt;
  }

  void EndStack() {
    if (!stack_.empty()) needs_.weights += backend_.PackedBytes(stack_);
    stack_.clear();
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const kernels::Backend& backend_;
  std::optional<QuantizedWeights> quantized_;
  MemoryNeeds needs_;
  std::vector<kernels::HostMatrix> stack_;  // parts of one matrix
  TensorRole last_ = TensorRole::kEmbedding;
};

}  // namespace

std::string MemoryNeeds::ToString() const {
  const auto gigabytes = [](int64_t bytes) {
    return static_cast<double>(bytes) * 1e-9;
  };
  return absl::StrFormat(
      "%.3f GB: weights %.3f, embedding %.3f, KV cache %.3f, a step up to %.3f",
      gigabytes(total()), gigabytes(weights), gigabytes(tables),
      gigabytes(kv_cache), gigabytes(scratch));
}

MemoryNeeds MemoryNeeds::Of(const Checkpoint& checkpoint,
                            const ModelConfig& config,
                            const kernels::Backend& backend) {
  NeedsCounter counter(checkpoint, config, backend);
  for (const ExpectedTensor& tensor : ExpectedTensors::OutsideLayers(config)) {
    counter.Add(tensor);
  }
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    for (const ExpectedTensor& tensor : ExpectedTensors::OfLayer(config, i)) {
      counter.Add(tensor);
    }
  }
  return counter.Finish();
}

}  // namespace nacre::model
