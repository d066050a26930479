#include "tests/testing/random_checkpoint.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "common/check.h"
#include "common/philox.h"
#include "model/config.h"
#include "model/expected_tensors.h"
#include "model/safetensors_writer.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::testing {
namespace {

using model::ExpectedTensor;
using model::ExpectedTensors;

uint32_t Fnv1a(const std::string& text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  }
  return hash;
}

std::vector<float> RandomValues(const ExpectedTensor& tensor) {
  size_t count = 1;
  for (const int64_t dim : tensor.shape) count *= static_cast<size_t>(dim);
  const bool is_norm = (absl::StrContains(tensor.name, "norm") ||
                        absl::StrContains(tensor.name, ".ln_")) &&
                       absl::EndsWith(tensor.name, ".weight");
  const float scale =
      is_norm ? 0.3f
      : tensor.shape.size() == 1
          ? 0.5f
          : std::sqrt(3.0f / static_cast<float>(tensor.shape.back()));
  const uint32_t key = Fnv1a(tensor.name);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits =
        Philox4x32({static_cast<uint32_t>(i), 0, 0, 0}, {key, 9})[0];
    const float uniform = static_cast<float>(bits >> 8) * 0x1p-23f - 1.0f;
    const float noise = scale * uniform;
    values[i] = is_norm ? 1.0f + noise : noise;
  }
  return values;
}

}  // namespace

void WriteRandomCheckpoint(const std::string& config_json,
                           const std::string& dir) {
  WriteFile(dir + "/config.json", config_json);
  const auto config = model::ParseConfig(config_json);
  NACRE_CHECK(config.ok(), "a test checkpoint that is not supported");
  const auto outside = ExpectedTensors::OutsideLayers(*config);
  std::vector<ExpectedTensor> tensors(outside.begin(), outside.end());
  for (int i = 0; i < config->num_hidden_layers; ++i) {
    const auto layer = ExpectedTensors::OfLayer(*config, i);
    tensors.insert(tensors.end(), layer.begin(), layer.end());
  }
  std::vector<model::TensorSpec> specs;
  for (const ExpectedTensor& tensor : tensors) {
    specs.push_back({tensor.name, kernels::DType::kF32, tensor.shape});
  }
  auto writer =
      model::SafetensorsWriter::Create(dir + "/model.safetensors", specs);
  NACRE_CHECK(writer.ok(), "a test checkpoint cannot be written");
  for (const ExpectedTensor& tensor : tensors) {
    const std::vector<float> values = RandomValues(tensor);
    const absl::Status status =
        (*writer)->Append(values.data(), values.size() * sizeof(float));
    NACRE_CHECK(status.ok(), "a test checkpoint cannot be written");
  }
  NACRE_CHECK((*writer)->Finish().ok(), "a test checkpoint cannot be written");
}

}  // namespace nacre::testing
