#include "model/memory_needs.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "kernels/host_memory.h"
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

int64_t BytesOf(const ExpectedTensor& tensor, kernels::DType dtype) {
  auto bytes = static_cast<int64_t>(kernels::SizeOf(dtype));
  for (const int64_t dimension : tensor.shape) bytes *= dimension;
  return bytes;
}

// Adds tensors up, in the order of ExpectedTensors.
class NeedsCounter {
 public:
  NeedsCounter(const Checkpoint& checkpoint, const ModelConfig& config,
               const kernels::Backend& backend, int input_shards)
      : checkpoint_(checkpoint),
        config_(config),
        backend_(backend),
        input_shards_(input_shards) {
    if (checkpoint.quantization().has_value()) {
      quantized_.emplace(checkpoint, *checkpoint.quantization());
    }
  }

  // False: the checkpoint has no such tensor. One of another type or shape than
  // it must have counts as none.
  bool Add(const ExpectedTensor& tensor) {
    const absl::StatusOr<Tensor> stored = checkpoint_.Describe(tensor.name);
    if (stored.ok()) {
      if (stored->shape == tensor.shape) {
        Count(tensor, stored->dtype, stored->groups);
      }
      return true;
    }
    if (quantized_.has_value()) {
      const absl::StatusOr<kernels::DType> dtype =
          quantized_->TypeOf(tensor.name);
      if (dtype.ok()) {
        Count(tensor, *dtype);
        converted_ += BytesOf(tensor, *dtype);
        return true;
      }
    }
    return !absl::IsNotFound(stored.status());
  }

  MemoryNeeds Finish() {
    EndStack();
    return needs_;
  }

 private:
  void Count(const ExpectedTensor& tensor, kernels::DType dtype,
             const kernels::WeightGroups* groups = nullptr) {
    if (tensor.shape.size() != 2) {
      needs_.weights += BytesOf(tensor, kernels::DType::kF32);
      return;
    }
    // Of its data, which is not read, only that there is some.
    const kernels::HostMatrix matrix = {dtype,
                                        &kNoData,
                                        static_cast<int>(tensor.shape[0]),
                                        static_cast<int>(tensor.shape[1]),
                                        nullptr,
                                        groups};
    const bool is_positions = tensor.role == TensorRole::kPositions;
    if (is_positions || tensor.role == TensorRole::kEmbedding) {
      needs_.tables += backend_.location() == kernels::Location::kHost
                           ? kernels::HostTable::Bytes(matrix)
                           : BytesOf(tensor, dtype);
      if (is_positions || !config_.tie_word_embeddings) return;
    }
    if (!stack_.empty() && !IsStackedOn(last_, tensor.role)) EndStack();
    last_ = tensor.role;
    has_groups_ |= groups != nullptr;
    stack_.push_back(matrix);
    if (!IsSharedInBlocks(tensor.role, matrix)) stack_.back().groups = nullptr;
  }

  // Whether no shard of its inputs is a part of a block.
  bool IsSharedInBlocks(TensorRole role,
                        const kernels::HostMatrix& matrix) const {
    const bool has_shards =
        role == TensorRole::kAttentionOutput || role == TensorRole::kDown;
    return !has_shards || matrix.groups == nullptr ||
           matrix.cols % (input_shards_ * matrix.groups->block) == 0;
  }

  void EndStack() {
    if (!stack_.empty()) {
      const int64_t bytes = backend_.PackedBytes(stack_);
      needs_.weights += bytes;
      needs_.may_be_saved += backend_.MayBeSaved(stack_);
      CountFactors(bytes);
    }
    stack_.clear();
    has_groups_ = false;
    needs_.converted = std::max(needs_.converted, converted_);
    converted_ = 0;
  }

  // Of a stack that is not empty and takes so many bytes.
  void CountFactors(int64_t bytes) {
    int64_t factors = 0;
    std::vector<kernels::HostMatrix> floats = stack_;
    for (kernels::HostMatrix& matrix : floats) {
      factors += int64_t{matrix.rows} * matrix.cols;
      matrix.groups = nullptr;
    }
    needs_.num_factors += factors;
    constexpr int64_t kFewestBytes = 2;  // of a float
    needs_.has_widened |= has_groups_ && bytes >= kFewestBytes * factors &&
                          bytes == backend_.PackedBytes(floats);
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const kernels::Backend& backend_;
  std::optional<QuantizedWeights> quantized_;
  MemoryNeeds needs_;
  const int input_shards_;
  std::vector<kernels::HostMatrix> stack_;  // parts of one matrix
  bool has_groups_ = false;                 // some of them, in the file
  int64_t converted_ = 0;                   // bytes of those that are quantized
  TensorRole last_ = TensorRole::kEmbedding;
};

}  // namespace

std::string MemoryNeeds::ToString() const {
  const auto gigabytes = [](int64_t bytes) {
    return static_cast<double>(bytes) * 1e-9;
  };
  std::string text = absl::StrFormat("%.3f GB: weights %.3f",
                                     gigabytes(total()), gigabytes(weights));
  if (num_factors > 0) {
    absl::StrAppendFormat(
        &text, " (%.1f bits each)",
        static_cast<double>(weights) * 8 / static_cast<double>(num_factors));
  }
  absl::StrAppendFormat(
      &text, ", embedding %.3f, KV cache %.3f, a step up to %.3f",
      gigabytes(tables), gigabytes(kv_cache), gigabytes(scratch));
  if (prefix_store > 0) {
    absl::StrAppendFormat(&text, ", prefix cache %.3f",
                          gigabytes(prefix_store));
  }
  if (may_be_saved > 0) {
    absl::StrAppendFormat(&text, "; weights may take %.3f less",
                          gigabytes(may_be_saved));
  }
  if (converted > 0) {
    absl::StrAppendFormat(&text, ", while it loads up to %.3f",
                          gigabytes(converted));
  }
  if (has_widened) {
    absl::StrAppend(&text,
                    "; integers of the file are floats here: other "
                    "--weights may take less (docs/gguf.md)");
  }
  return text;
}

MemoryNeeds MemoryNeeds::Of(const Checkpoint& checkpoint,
                            const ModelConfig& config,
                            const kernels::Backend& backend, int input_shards) {
  NeedsCounter counter(checkpoint, config, backend, input_shards);
  for (const ExpectedTensor& tensor : ExpectedTensors::OutsideLayers(config)) {
    counter.Add(tensor);
  }
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    for (const ExpectedTensor& tensor : ExpectedTensors::OfLayer(config, i)) {
      // A config may tell of far more than there is.
      if (!counter.Add(tensor)) return counter.Finish();
    }
  }
  return counter.Finish();
}

}  // namespace nacre::model
