#include "tools/inflate.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/mapped_file.h"
#include "model/safetensors_writer.h"
#include "nlohmann/json.hpp"
#include "tools/inflate_tensor.h"

namespace nacre::tools {
namespace {

namespace fs = std::filesystem;
using model::Checkpoint;
using model::ModelConfig;

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

// The tensors of the inflated model, in the order they are written.
class TensorPlan {
 public:
  TensorPlan(const Checkpoint& checkpoint, const ModelConfig& from,
             const ModelConfig& to)
      : checkpoint_(checkpoint), from_(from), to_(to) {}

  absl::StatusOr<std::vector<InflatedTensor>> Make() {
    const int64_t vocab = from_.vocab_size;
    const int64_t hidden = from_.hidden_size;
    NACRE_RETURN_IF_ERROR(Copy("model.embed_tokens.weight", {vocab, hidden}));
    NACRE_RETURN_IF_ERROR(Copy("model.norm.weight", {hidden}));
    if (!from_.tie_word_embeddings) {
      NACRE_RETURN_IF_ERROR(Copy("lm_head.weight", {vocab, hidden}));
    }
    for (int i = 0; i < to_.num_hidden_layers; ++i) {
      NACRE_RETURN_IF_ERROR(AddLayer(i));
    }
    return std::move(tensors_);
  }

 private:
  absl::Status Copy(const std::string& name, std::vector<int64_t> shape) {
    return Add(name, name, shape, shape, Fill::kZero, true);
  }

  // A tensor `name` of shape `to`, with the dtype of the input's `source_name`,
  // which must have the shape `from` and whose values it keeps if
  // `keep_values`.
  absl::Status Add(const std::string& name, const std::string& source_name,
                   const std::vector<int64_t>& from,
                   const std::vector<int64_t>& to, Fill fill,
                   bool keep_values) {
    NACRE_ASSIGN_OR_RETURN(model::Tensor source, checkpoint_.Find(source_name));
    if (source.shape != from) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", source_name, " has shape ",
                       model::ShapeString(source.shape),
                       ", the config implies ", model::ShapeString(from)));
    }
    InflatedTensor tensor;
    tensor.spec = {name, source.dtype, to};
    if (keep_values) tensor.source = std::move(source);
    tensor.fill = fill;
    tensors_.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  absl::Status AddLayer(int index) {
    const int64_t hidden = from_.hidden_size;
    const int64_t q = from_.q_size();
    const int64_t kv = from_.kv_size();
    const int64_t inter = from_.intermediate_size;
    const int64_t to_inter = to_.intermediate_size;
    struct Part {
      const char* name;
      std::vector<int64_t> from;
      std::vector<int64_t> to;
      Fill fill;  // of what is added
    };
    const Part parts[] = {
        {"input_layernorm.weight", {hidden}, {hidden}, Fill::kOne},
        {"self_attn.q_proj.weight", {q, hidden}, {q, hidden}, Fill::kRandom},
        {"self_attn.k_proj.weight", {kv, hidden}, {kv, hidden}, Fill::kRandom},
        {"self_attn.v_proj.weight", {kv, hidden}, {kv, hidden}, Fill::kRandom},
        {"self_attn.o_proj.weight", {hidden, q}, {hidden, q}, Fill::kZero},
        {"post_attention_layernorm.weight", {hidden}, {hidden}, Fill::kOne},
        {"mlp.gate_proj.weight",
         {inter, hidden},
         {to_inter, hidden},
         Fill::kRandom},
        {"mlp.up_proj.weight",
         {inter, hidden},
         {to_inter, hidden},
         Fill::kRandom},
        {"mlp.down_proj.weight",
         {hidden, inter},
         {hidden, to_inter},
         Fill::kZero},
    };
    // An added layer takes its types from the input's last.
    const bool is_added = index >= from_.num_hidden_layers;
    const int source_index = is_added ? from_.num_hidden_layers - 1 : index;
    for (const Part& part : parts) {
      NACRE_RETURN_IF_ERROR(
          Add(absl::StrCat("model.layers.", index, ".", part.name),
              absl::StrCat("model.layers.", source_index, ".", part.name),
              part.from, part.to, part.fill, !is_added));
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
  NACRE_ASSIGN_OR_RETURN(const ModelConfig from,
                         model::ReadConfig(options.in_dir));
  NACRE_RETURN_IF_ERROR(CheckSizes(options, from));
  std::error_code error;
  if (fs::equivalent(options.in_dir, options.out_dir, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the output folder ", options.out_dir, " is the input folder"));
  }

  // The input's config with the two numbers changed, checked like any other.
  NACRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<model::MappedFile> config_file,
      model::MappedFile::Open(absl::StrCat(options.in_dir, "/config.json")));
  const absl::string_view text = config_file->bytes();
  auto json = nlohmann::ordered_json::parse(text.begin(), text.end(), nullptr,
                                            /*allow_exceptions=*/false);
  json["num_hidden_layers"] = options.num_layers;
  json["intermediate_size"] =
      options.intermediate_size.value_or(from.intermediate_size);
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
