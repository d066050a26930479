#include "tools/checkpoint/inflate.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_file.h"
#include "common/json.h"
#include "common/mapped_file.h"
#include "common/status_macros.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/expected_tensors.h"
#include "model/families.h"
#include "model/quantized/quantization.h"
#include "model/safetensors_writer.h"
#include "tools/checkpoint/inflate_tensor.h"

namespace nacre::tools {
namespace {

namespace fs = std::filesystem;
using model::Checkpoint;
using model::ExpectedTensor;
using model::ExpectedTensors;
using model::ModelConfig;
using model::TensorRole;

constexpr const char* kCopiedFiles[] = {
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "generation_config.json",
};

// What is added to a tensor. What reaches the residual stream is zero.
Fill FillOf(TensorRole role) {
  switch (role) {
    case TensorRole::kInputNorm:
    case TensorRole::kAttentionPostNorm:
    case TensorRole::kMlpNorm:
    case TensorRole::kMlpPostNorm:
    case TensorRole::kQueryNorm:
    case TensorRole::kKeyNorm:
      return Fill::kOne;
    case TensorRole::kInputNormBias:
    case TensorRole::kMlpNormBias:
    case TensorRole::kQueryKeyValue:
    case TensorRole::kQueryKeyValueBias:
    case TensorRole::kQuery:
    case TensorRole::kQueryBias:
    case TensorRole::kKey:
    case TensorRole::kKeyBias:
    case TensorRole::kValue:
    case TensorRole::kValueBias:
    case TensorRole::kGateUp:
    case TensorRole::kGate:
    case TensorRole::kGateBias:
    case TensorRole::kUp:
    case TensorRole::kUpBias:
    case TensorRole::kRouter:
    case TensorRole::kExpertGate:
    case TensorRole::kExpertUp:
      return Fill::kRandom;
    case TensorRole::kAttentionOutput:
    case TensorRole::kAttentionOutputBias:
    case TensorRole::kDown:
    case TensorRole::kDownBias:
    case TensorRole::kExpertDown:
      return Fill::kZero;
    case TensorRole::kEmbedding:
    case TensorRole::kPositions:
    case TensorRole::kFinalNorm:
    case TensorRole::kFinalNormBias:
    case TensorRole::kHead:
      break;  // nothing is added
  }
  return Fill::kZero;
}

// The tensors of the inflated model, in the order they are written.
class TensorPlan {
 public:
  TensorPlan(const Checkpoint& checkpoint, const ModelConfig& from,
             const ModelConfig& to)
      : checkpoint_(checkpoint), from_(from), to_(to) {}

  absl::StatusOr<std::vector<InflatedTensor>> Make() {
    const auto outside = ExpectedTensors::OutsideLayers(to_);
    for (const ExpectedTensor& tensor : outside) {
      NACRE_RETURN_IF_ERROR(Add(tensor, tensor, true));
    }
    for (int i = 0; i < to_.num_hidden_layers; ++i) {
      NACRE_RETURN_IF_ERROR(AddLayer(i));
    }
    return std::move(tensors_);
  }

 private:
  // `tensor`, with the dtype of the input's `source`, whose values it keeps if
  // `keep_values`.
  absl::Status Add(const ExpectedTensor& tensor, const ExpectedTensor& source,
                   bool keep_values) {
    NACRE_ASSIGN_OR_RETURN(model::Tensor found, checkpoint_.Find(source.name));
    if (found.shape != source.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", source.name, " has shape ",
                       model::ShapeString(found.shape), ", the config implies ",
                       model::ShapeString(source.shape)));
    }
    InflatedTensor inflated;
    inflated.spec = {tensor.name, found.dtype, tensor.shape};
    if (keep_values) inflated.source = std::move(found);
    inflated.fill = FillOf(tensor.role);
    tensors_.push_back(std::move(inflated));
    return absl::OkStatus();
  }

  // The input's layer whose types layer `index` has: of an added one, the last
  // with experts as it has them; the last, if there is no such layer.
  int SourceOf(int index) const {
    const int last = from_.num_hidden_layers - 1;
    if (index <= last) return index;
    for (int i = last; i >= 0; --i) {
      if (from_.has_experts(i) == to_.has_experts(index)) return i;
    }
    return last;
  }

  absl::Status AddLayer(int index) {
    const bool is_added = index >= from_.num_hidden_layers;
    const auto from = ExpectedTensors::OfLayer(from_, SourceOf(index));
    const auto layer = ExpectedTensors::OfLayer(to_, index);
    for (const ExpectedTensor& tensor : layer) {
      // What no layer of the input has is of the type of a matrix that all
      // have.
      const ExpectedTensor& source =
          from.Has(tensor.role) ? from.OfExpert(tensor.role, tensor.expert)
                                : from[TensorRole::kAttentionOutput];
      NACRE_RETURN_IF_ERROR(Add(tensor, source, !is_added));
    }
    return absl::OkStatus();
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& from_;
  const ModelConfig& to_;
  std::vector<InflatedTensor> tensors_;
};

absl::Status CheckSizes(const InflateOptions& options,
                        const ModelConfig& config) {
  if (options.num_layers < config.num_hidden_layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_layers is ", options.num_layers, ", fewer than the ",
                     config.num_hidden_layers, " of ", options.in_dir));
  }
  if (!options.intermediate_size.has_value()) return absl::OkStatus();
  const int64_t added =
      int64_t{*options.intermediate_size} - config.intermediate_size;
  if (added != 0 &&
      ExpectedTensors::OfLayer(config, 0).Has(TensorRole::kGateUp)) {
    return absl::UnimplementedError(absl::StrCat(
        "intermediate_size is ", *options.intermediate_size, ", but ",
        config.architecture, " keeps gate and up in one tensor: expected ",
        config.intermediate_size));
  }
  if (added < 0 || added % kInflateColumnGroup != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "intermediate_size is ", *options.intermediate_size, ", expected ",
        config.intermediate_size, " plus a multiple of ", kInflateColumnGroup));
  }
  return absl::OkStatus();
}

absl::Status WriteTensors(const InflateOptions& options,
                          const std::vector<InflatedTensor>& tensors) {
  std::vector<model::TensorSpec> specs;
  double total = 0;
  const auto size_of = [](const model::TensorSpec& spec) {
    double size = 1;
    for (const int64_t dim : spec.shape) size *= static_cast<double>(dim);
    return size;
  };
  for (const InflatedTensor& tensor : tensors) {
    specs.push_back(tensor.spec);
    total += size_of(tensor.spec);
  }
  NACRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<model::SafetensorsWriter> file,
      model::SafetensorsWriter::Create(
          absl::StrCat(options.out_dir, "/model.safetensors"), specs));
  InflatedTensorWriter writer(file.get(), options.seed);
  double written = 0;
  for (const InflatedTensor& tensor : tensors) {
    if (options.progress) options.progress("inflate", written / total);
    NACRE_RETURN_IF_ERROR(writer.Write(tensor));
    written += size_of(tensor.spec);
  }
  NACRE_RETURN_IF_ERROR(file->Finish());
  if (options.progress) options.progress("inflate", 1.0);
  return absl::OkStatus();
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("create ", path));
  }
  const bool is_written =
      std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !is_written) {
    return absl::ErrnoToStatus(errno, absl::StrCat("write ", path));
  }
  return absl::OkStatus();
}

absl::Status CopyFiles(const InflateOptions& options) {
  for (const char* name : kCopiedFiles) {
    const fs::path from = fs::path(options.in_dir) / name;
    std::error_code error;
    if (!fs::exists(from, error)) continue;
    fs::copy_file(from, fs::path(options.out_dir) / name,
                  fs::copy_options::overwrite_existing, error);
    if (error) {
      return absl::ErrnoToStatus(
          error.value(),
          absl::StrCat("copy ", from.string(), " to ", options.out_dir));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InflateCheckpoint(const InflateOptions& options) {
  if (gguf::File::Is(options.in_dir)) {
    return absl::UnimplementedError(
        absl::StrCat(options.in_dir, " is a file: inflate reads folders only"));
  }
  NACRE_ASSIGN_OR_RETURN(const ModelConfig from,
                         model::ReadConfig(options.in_dir));
  NACRE_RETURN_IF_ERROR(CheckSizes(options, from));
  std::error_code error;
  if (fs::equivalent(options.in_dir, options.out_dir, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the output folder ", options.out_dir, " is the input folder"));
  }

  // The input's config with the numbers changed, checked like any other.
  NACRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<MappedFile> config_file,
      MappedFile::Open(absl::StrCat(options.in_dir, "/config.json")));
  const absl::string_view text = config_file->bytes();
  NACRE_ASSIGN_OR_RETURN(const auto quantization,
                         model::ReadQuantization(text));
  if (quantization.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat(options.in_dir,
                     "/config.json: quantization_config is set, expected "
                     "weights in bf16, f16 or f32"));
  }
  NACRE_ASSIGN_OR_RETURN(auto json, ParseOrderedObject(text));
  const model::FieldNames& fields =
      model::FindFamily(from.architecture)->fields;
  // Inflated before, it keeps what it says. The name is our own: others write
  // the same without the prefix of what they cut or doubled.
  auto& original = json["nacre_original_num_hidden_layers"];
  if (original.is_null()) original = from.num_hidden_layers;
  json[fields.num_layers] = options.num_layers;
  json[fields.intermediate_size] =
      options.intermediate_size.value_or(from.intermediate_size);
  // One for each layer, where they are given.
  const auto types = json.find("layer_types");
  if (types != json.end() && types->is_array() && !types->empty()) {
    const auto last = types->back();
    while (types->size() < static_cast<size_t>(options.num_layers)) {
      types->push_back(last);
    }
  }
  const std::string to_text = json.dump(1) + "\n";
  NACRE_ASSIGN_OR_RETURN(const ModelConfig to, model::ParseConfig(to_text));

  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                         Checkpoint::Open(options.in_dir));
  NACRE_ASSIGN_OR_RETURN(const std::vector<InflatedTensor> tensors,
                         TensorPlan(*checkpoint, from, to).Make());
  fs::create_directories(options.out_dir, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(),
                               absl::StrCat("create folder ", options.out_dir));
  }
  const std::string config_path = absl::StrCat(options.out_dir, "/config.json");
  fs::remove(config_path, error);  // until the rest is whole
  NACRE_RETURN_IF_ERROR(WriteTensors(options, tensors));
  NACRE_RETURN_IF_ERROR(CopyFiles(options));
  return WriteText(config_path, to_text);
}

}  // namespace nacre::tools
