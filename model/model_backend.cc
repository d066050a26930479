#include "model/model_backend.h"

#include <optional>
#include <utility>

#include "common/status_macros.h"
#include "kernels/weight_type.h"
#include "model/expected_tensors.h"
#include "model/quantized/quantized_weights.h"

namespace nacre::model {

bool HasBf16Matrices(const Checkpoint& checkpoint, const ModelConfig& config) {
  std::optional<QuantizedWeights> quantized;
  if (checkpoint.quantization().has_value()) {
    quantized.emplace(checkpoint, *checkpoint.quantization());
  }
  const auto is_bf16 = [&](const std::string& name) {
    const absl::StatusOr<Tensor> floats = checkpoint.Describe(name);
    if (floats.ok()) return floats->dtype == kernels::DType::kBF16;
    if (!quantized.has_value()) return false;
    const absl::StatusOr<kernels::DType> type = quantized->TypeOf(name);
    return type.ok() && *type == kernels::DType::kBF16;
  };
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    for (const ExpectedTensor& tensor : ExpectedTensors::OfLayer(config, i)) {
      if (tensor.shape.size() == 2 && !is_bf16(tensor.name)) return false;
    }
  }
  return true;
}

absl::StatusOr<std::unique_ptr<kernels::Backend>> CreateBackendFor(
    const std::string& dir, kernels::BackendOptions options) {
  // Elsewhere nothing depends on it.
  if (options.kind == "cuda" && options.kv_type == kernels::kAutoKvType) {
    NACRE_ASSIGN_OR_RETURN(const ModelConfig config, ReadConfig(dir));
    NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                           Checkpoint::Open(dir));
    options.bf16_checkpoint = HasBf16Matrices(*checkpoint, config);
  }
  return kernels::CreateBackend(options);
}

}  // namespace nacre::model
