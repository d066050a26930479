#include "model/model_backend.h"

#include <optional>
#include <utility>

#include "common/status_macros.h"
#include "kernels/weight_type.h"
#include "model/expected_tensors.h"
#include "model/quantized/quantized_weights.h"

namespace nacre::model {

namespace {

bool MayChooseWeights(const kernels::BackendOptions& options) {
  return options.kind == "cpu" && options.weights == kernels::kAutoWeights &&
         kernels::CpuMultipliesPairs();
}

bool MayChooseKvType(const kernels::BackendOptions& options) {
  return options.kind == "cuda" && options.kv_type == kernels::kAutoKvType;
}

bool AllBf16(const Checkpoint& checkpoint, const ExpectedTensors& tensors) {
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
  for (const ExpectedTensor& tensor : tensors) {
    if (tensor.shape.size() == 2 && !is_bf16(tensor.name)) return false;
  }
  return true;
}

}  // namespace

bool HasBf16Matrices(const Checkpoint& checkpoint, const ModelConfig& config) {
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    if (!AllBf16(checkpoint, ExpectedTensors::OfLayer(config, i))) return false;
  }
  return true;
}

kernels::BackendOptions WithAutoChosen(const Checkpoint& checkpoint,
                                       const ModelConfig& config,
                                       kernels::BackendOptions options) {
  if (MayChooseWeights(options) && HasBf16Matrices(checkpoint, config) &&
      AllBf16(checkpoint, ExpectedTensors::OutsideLayers(config))) {
    options.weights = "bf16a16";
  }
  if (MayChooseKvType(options)) {
    options.bf16_checkpoint = HasBf16Matrices(checkpoint, config);
  }
  return options;
}

absl::StatusOr<std::unique_ptr<kernels::Backend>> CreateBackendFor(
    const std::string& dir, kernels::BackendOptions options) {
  if (MayChooseWeights(options)) {
    // Says first what is wrong with what was asked.
    NACRE_RETURN_IF_ERROR(kernels::CreateBackend(options).status());
  }
  // Elsewhere nothing depends on it.
  if (MayChooseWeights(options) || MayChooseKvType(options)) {
    NACRE_ASSIGN_OR_RETURN(const ModelConfig config, ReadConfig(dir));
    NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                           Checkpoint::Open(dir));
    options = WithAutoChosen(*checkpoint, config, std::move(options));
  }
  return kernels::CreateBackend(options);
}

}  // namespace nacre::model
