#include "draft_worker/policy_file.h"

#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/json_fields.h"
#include "common/mapped_file.h"
#include "common/status_macros.h"
#include "model/safetensors.h"

namespace nacre::draft_worker {
namespace {

using speculation::AcceptanceHead;
using speculation::CaliTsModel;
using speculation::DiscoWeights;
using speculation::PolicyKind;

constexpr int kFormat = 1;
constexpr int kMaxLayers = 16;  // of a specdec++ head

// Reads tensors by name and remembers which.
class TensorReader {
 public:
  // Both outlive it.
  TensorReader(absl::string_view file, const model::TensorTable* tensors)
      : file_(file), tensors_(*tensors) {}

  bool Contains(const std::string& name) const {
    return tensors_.contains(name);
  }

  // Its values as floats. A dimension of -1 may have any size, which is
  // returned in `shape`.
  absl::StatusOr<std::vector<float>> Read(const std::string& name,
                                          std::vector<int64_t>* shape) {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no tensor ", name));
    }
    read_.insert(name);
    const model::TensorEntry& entry = it->second;
    bool fits = entry.shape.size() == shape->size();
    for (size_t i = 0; fits && i < shape->size(); ++i) {
      fits = (*shape)[i] == -1 || (*shape)[i] == entry.shape[i];
    }
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", name, " has shape ", model::ShapeString(entry.shape),
          ", expected ", model::ShapeString(*shape), " (-1: any)"));
    }
    *shape = entry.shape;
    absl::StatusOr<std::vector<float>> values = model::ReadFloats(file_, entry);
    if (values.ok()) return values;
    return absl::Status(
        values.status().code(),
        absl::StrCat("tensor ", name, ": ", values.status().message()));
  }
  absl::StatusOr<std::vector<float>> Read(const std::string& name,
                                          std::vector<int64_t> shape) {
    return Read(name, &shape);
  }

  // INVALID_ARGUMENT if the file holds more than was read.
  absl::Status CheckAllRead() const {
    for (const auto& [name, entry] : tensors_) {
      if (!read_.contains(name)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "tensor ", name,
            " is none of this policy's: ", absl::StrJoin(read_, " ")));
      }
    }
    return absl::OkStatus();
  }

 private:
  const absl::string_view file_;
  const model::TensorTable& tensors_;
  std::set<std::string> read_;
};

absl::StatusOr<DiscoWeights> ReadDisco(TensorReader& reader) {
  DiscoWeights weights;
  std::vector<int64_t> shape = {-1, speculation::kDiscoInputs};
  NACRE_ASSIGN_OR_RETURN(weights.hidden_weight,
                         reader.Read("hidden.weight", &shape));
  const int64_t width = shape[0];
  NACRE_ASSIGN_OR_RETURN(weights.hidden_bias,
                         reader.Read("hidden.bias", {width}));
  NACRE_ASSIGN_OR_RETURN(weights.output_weight,
                         reader.Read("output.weight", {1, width}));
  NACRE_ASSIGN_OR_RETURN(const std::vector<float> bias,
                         reader.Read("output.bias", {1}));
  weights.output_bias = bias[0];
  NACRE_RETURN_IF_ERROR(Validate(weights));
  return weights;
}

absl::StatusOr<speculation::CaliTsScorer> ReadCaliTs(TensorReader& reader,
                                                     int hidden_size) {
  CaliTsModel model;
  std::vector<int64_t> shape = {CaliTsModel::kSteps, -1, -1};
  NACRE_ASSIGN_OR_RETURN(model.step_weights,
                         reader.Read("step_weights", &shape));
  model.target_size = static_cast<int>(shape[1]);
  model.draft_size = hidden_size;
  NACRE_ASSIGN_OR_RETURN(model.mix,
                         reader.Read("mix", {2, shape[1] + hidden_size}));
  NACRE_RETURN_IF_ERROR(Validate(model));
  return speculation::CaliTsScorer(model);
}

// model.0 .. model.(N-1) are the same block; a file may hold all of them or the
// first alone. model.N is the output.
absl::StatusOr<AcceptanceHead> ReadHead(TensorReader& reader, int num_layers,
                                        int hidden_size) {
  AcceptanceHead head;
  head.num_layers = num_layers;
  const int64_t size = hidden_size;
  NACRE_ASSIGN_OR_RETURN(head.block,
                         reader.Read("model.0.linear.weight", {size, size}));
  NACRE_ASSIGN_OR_RETURN(head.block_bias,
                         reader.Read("model.0.linear.bias", {size}));
  for (int layer = 1; layer < num_layers; ++layer) {
    const std::string name = absl::StrCat("model.", layer, ".linear");
    if (!reader.Contains(absl::StrCat(name, ".weight")) &&
        !reader.Contains(absl::StrCat(name, ".bias"))) {
      continue;
    }
    NACRE_ASSIGN_OR_RETURN(
        const std::vector<float> block,
        reader.Read(absl::StrCat(name, ".weight"), {size, size}));
    NACRE_ASSIGN_OR_RETURN(const std::vector<float> bias,
                           reader.Read(absl::StrCat(name, ".bias"), {size}));
    // As bits: a NaN is refused below, by its name.
    if (std::memcmp(block.data(), head.block.data(),
                    block.size() * sizeof(float)) != 0 ||
        std::memcmp(bias.data(), head.block_bias.data(),
                    bias.size() * sizeof(float)) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name,
                       " is not equal to model.0.linear: the layers of "
                       "this head share their weights"));
    }
  }
  const std::string output = absl::StrCat("model.", num_layers);
  NACRE_ASSIGN_OR_RETURN(
      head.output, reader.Read(absl::StrCat(output, ".weight"), {2, size}));
  NACRE_ASSIGN_OR_RETURN(head.output_bias,
                         reader.Read(absl::StrCat(output, ".bias"), {2}));
  NACRE_RETURN_IF_ERROR(Validate(head));
  return head;
}

absl::StatusOr<std::string> TextField(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_string() || it->get<std::string>().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", key, "\" is not a text of 1 or more characters"));
  }
  return it->get<std::string>();
}

// The file's own defaults, checked like a request's.
absl::StatusOr<speculation::PolicySpec> ReadParameters(const char* name,
                                                       const Json& json) {
  std::vector<std::string> pairs;
  if (const auto it = json.find("parameters"); it != json.end()) {
    if (!it->is_object()) {
      return absl::InvalidArgumentError("\"parameters\" is not an object");
    }
    for (const auto& [key, value] : it->items()) {
      if (!value.is_string() && !value.is_number()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "parameter \"", key, "\" is neither a number nor a text"));
      }
      pairs.push_back(absl::StrCat(
          key, "=",
          value.is_string() ? value.get<std::string>() : value.dump()));
    }
  }
  return speculation::ParsePolicySpec(
      absl::StrCat(name, pairs.empty() ? "" : ":", absl::StrJoin(pairs, ",")));
}

absl::Status ReadWeights(absl::string_view file, PolicyKind kind,
                         const Json& json, const model::ModelInfo& draft,
                         speculation::PolicyCalibration* calibration) {
  NACRE_ASSIGN_OR_RETURN(const model::TensorTable tensors,
                         model::ParseSafetensors(file));
  TensorReader reader(file, &tensors);
  if (kind == PolicyKind::kDisco) {
    NACRE_ASSIGN_OR_RETURN(calibration->disco, ReadDisco(reader));
  } else if (kind == PolicyKind::kCaliTs) {
    NACRE_ASSIGN_OR_RETURN(calibration->cali_ts,
                           ReadCaliTs(reader, draft.hidden_size));
  } else {
    const Json layers = json.value("num_layers", Json(3));
    if (!layers.is_number_integer() || layers.get<int64_t>() < 1 ||
        layers.get<int64_t>() > kMaxLayers) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"num_layers\" is not a whole number in [1, ", kMaxLayers, "]"));
    }
    NACRE_ASSIGN_OR_RETURN(
        calibration->head,
        ReadHead(reader, layers.get<int>(), draft.hidden_size));
  }
  return reader.CheckAllRead();
}

}  // namespace

absl::StatusOr<PolicyFile> ParsePolicyFile(
    PolicyKind kind, const model::ModelInfo& draft, absl::string_view text,
    absl::FunctionRef<absl::StatusOr<absl::string_view>()> open_weights) {
  const absl::StatusOr<Json> parsed = ParseJsonObject(text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy.json: ", parsed.status().message()));
  }
  const Json& json = *parsed;
  if (json.value("format", Json()) != kFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy.json: \"format\" is not ", kFormat));
  }
  const char* name = speculation::InfoOf(kind).name;
  NACRE_ASSIGN_OR_RETURN(const std::string policy, TextField(json, "policy"));
  if (policy != name) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is of policy \"", policy, "\", not of ", name));
  }
  NACRE_ASSIGN_OR_RETURN(const std::string draft_fingerprint,
                         TextField(json, "draft_fingerprint"));
  if (draft_fingerprint != draft.fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrCat("it was made for the draft with fingerprint ",
                     draft_fingerprint, ", this one has ", draft.fingerprint));
  }
  PolicyFile file;
  NACRE_ASSIGN_OR_RETURN(file.target_fingerprint,
                         TextField(json, "target_fingerprint"));
  NACRE_ASSIGN_OR_RETURN(file.calibration.defaults, ReadParameters(name, json));
  // What these two have is in their parameters alone.
  if (kind == PolicyKind::kOptimalStatic || kind == PolicyKind::kSvip) {
    const char* key = kind == PolicyKind::kSvip ? "h" : "gamma";
    if (!file.calibration.defaults.Given(key).has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("policy.json: \"parameters\" has no ", key));
    }
    return file;
  }
  NACRE_ASSIGN_OR_RETURN(const absl::string_view weights, open_weights());
  if (absl::Status status =
          ReadWeights(weights, kind, json, draft, &file.calibration);
      !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("policy.safetensors: ", status.message()));
  }
  return file;
}

namespace {

absl::StatusOr<PolicyFile> Load(const std::string& dir, PolicyKind kind,
                                const model::ModelInfo& draft) {
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> json,
                         MappedFile::Open(absl::StrCat(dir, "/policy.json")));
  std::unique_ptr<MappedFile> weights;
  return ParsePolicyFile(
      kind, draft, json->bytes(), [&]() -> absl::StatusOr<absl::string_view> {
        NACRE_ASSIGN_OR_RETURN(weights, MappedFile::Open(absl::StrCat(
                                            dir, "/policy.safetensors")));
        return weights->bytes();
      });
}

}  // namespace

absl::StatusOr<PolicyFile> LoadPolicyFile(const std::string& dir,
                                          speculation::PolicyKind kind,
                                          const model::ModelInfo& draft) {
  absl::StatusOr<PolicyFile> file = Load(dir, kind, draft);
  if (file.ok()) return file;
  return absl::Status(
      file.status().code(),
      absl::StrCat("--policy-file ", speculation::InfoOf(kind).name, "=", dir,
                   ": ", file.status().message()));
}

}  // namespace nacre::draft_worker
