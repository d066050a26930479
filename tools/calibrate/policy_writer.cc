#include "tools/calibrate/policy_writer.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "model/checkpoint.h"
#include "model/mapped_file.h"
#include "model/safetensors_writer.h"
#include "tools/generation_json.h"
#include "tools/trace_writer.h"

namespace nacre::tools {
namespace {

namespace fs = std::filesystem;

absl::Status WriteWeights(const std::string& path,
                          const speculation::DiscoWeights& weights) {
  const auto width = static_cast<int64_t>(weights.hidden_bias.size());
  const std::vector<float> output_bias = {weights.output_bias};
  const std::pair<model::TensorSpec, absl::Span<const float>> tensors[] = {
      {{"hidden.weight",
        kernels::DType::kF32,
        {width, speculation::kDiscoInputs}},
       weights.hidden_weight},
      {{"hidden.bias", kernels::DType::kF32, {width}}, weights.hidden_bias},
      {{"output.weight", kernels::DType::kF32, {1, width}},
       weights.output_weight},
      {{"output.bias", kernels::DType::kF32, {1}}, output_bias}};
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
                       const PolicyDescription& description) {
  const nlohmann::ordered_json json = {
      {"format", 1},
      {"policy", description.policy},
      {"draft_fingerprint", description.draft_fingerprint},
      {"target_fingerprint", description.target_fingerprint},
      {"parameters", description.parameters},
      {"calibration", description.calibration}};
  const std::string partial = path + ".partial";
  NACRE_RETURN_IF_ERROR(WriteFile(partial, JsonText(json, 1)));
  if (std::rename(partial.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("rename to ", path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WritePolicyFolder(
    const std::string& dir, const PolicyDescription& description,
    const std::optional<speculation::DiscoWeights>& weights) {
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
  if (weights.has_value()) {
    NACRE_RETURN_IF_ERROR(
        WriteWeights(absl::StrCat(dir, "/policy.safetensors"), *weights));
  }
  return WriteJson(json, description);
}

absl::StatusOr<std::string> FingerprintOf(const std::string& model_dir) {
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<model::Checkpoint> checkpoint,
                         model::Checkpoint::Open(model_dir));
  NACRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<model::MappedFile> config,
      model::MappedFile::Open(absl::StrCat(model_dir, "/config.json")));
  return checkpoint->Fingerprint(config->bytes());
}

}  // namespace nacre::tools
