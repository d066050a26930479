#include "tools/calibrate/policy_writer.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/safetensors_writer.h"
#include "tools/generate/generation_json.h"

namespace nacre::tools {
namespace {

namespace fs = std::filesystem;

// Tensors with their values, in the order of the file.
using Tensors = std::vector<std::pair<model::TensorSpec, std::vector<float>>>;

model::TensorSpec F32(std::string name, std::vector<int64_t> shape) {
  return {std::move(name), kernels::DType::kF32, std::move(shape)};
}

Tensors TensorsOf(const speculation::DiscoWeights& weights) {
  const auto width = static_cast<int64_t>(weights.hidden_bias.size());
  return {{F32("hidden.weight", {width, speculation::kDiscoInputs}),
           weights.hidden_weight},
          {F32("hidden.bias", {width}), weights.hidden_bias},
          {F32("output.weight", {1, width}), weights.output_weight},
          {F32("output.bias", {1}), {weights.output_bias}}};
}

Tensors TensorsOf(const speculation::AcceptanceHead& head) {
  const auto size = static_cast<int64_t>(head.size());
  // The layers share one block, which is written once.
  const std::string output = absl::StrCat("model.", head.num_layers);
  return {{F32("model.0.linear.weight", {size, size}), head.block},
          {F32("model.0.linear.bias", {size}), head.block_bias},
          {F32(output + ".weight", {2, size}), head.output},
          {F32(output + ".bias", {2}), head.output_bias}};
}

Tensors TensorsOf(const speculation::CaliTsModel& model) {
  const int64_t target = model.target_size;
  return {
      {F32("step_weights", {speculation::CaliTsModel::kSteps, target, target}),
       model.step_weights},
      {F32("mix", {2, target + model.draft_size}), model.mix}};
}

Tensors TensorsOf(std::monostate) { return {}; }

absl::Status WriteTensors(const std::string& path, const Tensors& tensors) {
  std::vector<model::TensorSpec> specs;
  for (const auto& [spec, values] : tensors) specs.push_back(spec);
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<model::SafetensorsWriter> file,
                         model::SafetensorsWriter::Create(path, specs));
  for (const auto& [spec, values] : tensors) {
    NACRE_RETURN_IF_ERROR(
        file->Append(values.data(), values.size() * sizeof(float)));
  }
  return file->Finish();
}

absl::Status WriteJson(const std::string& path,
                       const PolicyDescription& description,
                       const PolicyWeights& weights) {
  nlohmann::ordered_json json = {
      {"format", 1},
      {"policy", description.policy},
      {"draft_fingerprint", description.draft_fingerprint},
      {"target_fingerprint", description.target_fingerprint},
      {"parameters", description.parameters},
      {"calibration", description.calibration}};
  if (const auto* head = std::get_if<speculation::AcceptanceHead>(&weights)) {
    json["num_layers"] = head->num_layers;
  }
  const std::string partial = path + ".partial";
  NACRE_RETURN_IF_ERROR(WriteFile(partial, JsonText(json, 1)));
  if (std::rename(partial.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("rename to ", path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WritePolicyFolder(const std::string& dir,
                               const PolicyDescription& description,
                               const PolicyWeights& weights) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(),
                               absl::StrCat("create folder ", dir));
  }
  const std::string json = absl::StrCat(dir, "/policy.json");
  fs::remove(json, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("replace ", json));
  }
  const Tensors tensors =
      std::visit([](const auto& some) { return TensorsOf(some); }, weights);
  if (!tensors.empty()) {
    NACRE_RETURN_IF_ERROR(
        WriteTensors(absl::StrCat(dir, "/policy.safetensors"), tensors));
  }
  return WriteJson(json, description, weights);
}

absl::StatusOr<std::string> FingerprintOf(const std::string& model_dir) {
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<model::Checkpoint> checkpoint,
                         model::Checkpoint::Open(model_dir));
  NACRE_ASSIGN_OR_RETURN(const std::string config,
                         model::ReadConfigText(model_dir));
  return checkpoint->Fingerprint(config);
}

}  // namespace nacre::tools
