#include "model/checkpoint.h"

#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/gguf/gguf_file.h"
#include "common/json_fields.h"
#include "common/status_macros.h"
#include "model/config_fields.h"
#include "model/gguf/gguf_config.h"
#include "model/gguf/gguf_tensors.h"
#include "model/pickle/torch_tensors.h"
#include "model/safetensors_writer.h"

namespace nacre::model {
namespace {

// In this order.
constexpr const char* kFiles[] = {"model.safetensors", "pytorch_model.bin"};

// A shard must lie in the folder itself: an index from elsewhere must not make
// us read other files.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

absl::StatusOr<kernels::DType> ParseDType(absl::string_view name) {
  if (name == "F32") return kernels::DType::kF32;
  if (name == "BF16") return kernels::DType::kBF16;
  if (name == "F16") return kernels::DType::kF16;
  return absl::UnimplementedError(absl::StrCat(
      "dtype ", name, " is not supported; supported: BF16, F16, F32"));
}

absl::Status CheckShape(absl::string_view name,
                        const std::vector<int64_t>& shape,
                        const std::vector<int64_t>& expected) {
  if (shape == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", name, " has shape ", ShapeString(shape),
                   ", the config implies ", ShapeString(expected)));
}

// Of a folder's config.json, if it has one.
absl::StatusOr<std::optional<Quantization>> QuantizationOf(
    const std::string& dir) {
  const std::string path = absl::StrCat(dir, "/config.json");
  const absl::StatusOr<std::unique_ptr<MappedFile>> file =
      MappedFile::Open(path);
  if (absl::IsNotFound(file.status())) return std::optional<Quantization>();
  NACRE_RETURN_IF_ERROR(file.status());
  auto quantization = ReadQuantization((*file)->bytes());
  if (quantization.ok()) return quantization;
  return absl::Status(
      quantization.status().code(),
      absl::StrCat(path, ": ", quantization.status().message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(
    const std::string& dir) {
  if (gguf::File::Is(dir)) return OpenGguf(dir);
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error)) {
    return absl::NotFoundError(
        absl::StrCat("model folder ", dir, " does not exist"));
  }
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->dir_ = dir;
  NACRE_ASSIGN_OR_RETURN(checkpoint->quantization_, QuantizationOf(dir));
  for (const char* name : kFiles) {
    const std::string single = absl::StrCat(dir, "/", name);
    if (std::filesystem::exists(single, error)) {
      NACRE_RETURN_IF_ERROR(checkpoint->AddFile(single));
      return checkpoint;
    }
    const std::string index_path = absl::StrCat(single, ".index.json");
    absl::StatusOr<std::unique_ptr<MappedFile>> index =
        MappedFile::Open(index_path);
    if (absl::IsNotFound(index.status())) continue;
    NACRE_RETURN_IF_ERROR(index.status());
    absl::Status status = checkpoint->OpenShards(dir, (*index)->bytes());
    if (status.ok()) return checkpoint;
    return absl::Status(status.code(),
                        absl::StrCat(index_path, ": ", status.message()));
  }
  return absl::NotFoundError(
      absl::StrCat("model folder ", dir, " has neither model.safetensors nor ",
                   "pytorch_model.bin, nor an index of their shards (",
                   kFiles[0], ".index.json)"));
}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::OpenFile(
    const std::string& path) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->dir_ = path;
  NACRE_RETURN_IF_ERROR(checkpoint->AddFile(path));
  return checkpoint;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::OpenGguf(
    const std::string& path) {
  NACRE_ASSIGN_OR_RETURN(std::shared_ptr<gguf::File> file,
                         gguf::File::Open(path));
  const auto read =
      [&]() -> absl::StatusOr<std::map<std::string, StoredTensor>> {
    NACRE_ASSIGN_OR_RETURN(const std::string config_json,
                           GgufConfigJson(file->contents()));
    NACRE_ASSIGN_OR_RETURN(const ModelConfig config, ParseConfig(config_json));
    return GgufTensors(file->contents(), config);
  };
  absl::StatusOr<std::map<std::string, StoredTensor>> tensors = read();
  if (!tensors.ok()) {
    return absl::Status(tensors.status().code(),
                        absl::StrCat(path, ": ", tensors.status().message()));
  }
  return OfStored(path, *std::move(tensors), std::move(file));
}

absl::StatusOr<const Checkpoint::TensorFile*> Checkpoint::Keep(
    const std::string& path) {
  TensorFile opened;
  NACRE_ASSIGN_OR_RETURN(opened.file, MappedFile::Open(path));
  absl::StatusOr<TensorTable> tensors =
      IsTorchFile(path) ? ParseTorchFile(opened.file->bytes())
                        : ParseSafetensors(opened.file->bytes());
  if (!tensors.ok()) {
    return absl::Status(tensors.status().code(),
                        absl::StrCat(path, ": ", tensors.status().message()));
  }
  opened.tensors = *std::move(tensors);
  files_.push_back(std::move(opened));
  return &files_.back();
}

absl::Status Checkpoint::AddFile(const std::string& path) {
  NACRE_ASSIGN_OR_RETURN(const TensorFile* const file, Keep(path));
  for (const auto& [name, entry] : file->tensors) {
    tensors_[name] = {&entry, file->Bytes(entry), file->file.get(), nullptr};
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::OpenShards(const std::string& dir,
                                    absl::string_view index_json) {
  NACRE_ASSIGN_OR_RETURN(const Json index, ParseJsonObject(index_json));
  if (!index.contains("weight_map") || !index["weight_map"].is_object()) {
    return absl::InvalidArgumentError(
        "not a JSON object with an object weight_map");
  }
  std::map<std::string, const TensorFile*> shards;
  for (const auto& [name, shard] : index["weight_map"].items()) {
    if (!shard.is_string() || !IsPlainFileName(shard.get<std::string>())) {
      return absl::InvalidArgumentError(
          absl::StrCat("the shard of tensor ", name, " is ", ShownJson(shard),
                       ", expected a plain file name"));
    }
    const TensorFile*& file = shards[shard.get<std::string>()];
    if (file == nullptr) {
      NACRE_ASSIGN_OR_RETURN(
          file, Keep(absl::StrCat(dir, "/", shard.get<std::string>())));
    }
    const auto it = file->tensors.find(name);
    if (it == file->tensors.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", name, " is not in its shard ", shard.get<std::string>()));
    }
    tensors_[name] = {&it->second, file->Bytes(it->second), file->file.get(),
                      nullptr};
  }
  return absl::OkStatus();
}

std::unique_ptr<Checkpoint> Checkpoint::OfStored(
    std::string path, std::map<std::string, StoredTensor> tensors,
    std::shared_ptr<const void> owner) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->dir_ = std::move(path);
  checkpoint->stored_ = std::move(tensors);
  checkpoint->stored_owner_ = std::move(owner);
  for (const auto& [name, stored] : checkpoint->stored_) {
    checkpoint->tensors_[name] = {&stored.entry, stored.bytes, stored.file,
                                  &stored};
  }
  return checkpoint;
}

std::unique_ptr<Checkpoint> Checkpoint::OfTensors(
    const std::map<std::string, Tensor>& tensors) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->dir_ = "of tensors in memory";
  for (const auto& [name, tensor] : tensors) {
    size_t count = 1;
    for (const int64_t size : tensor.shape) count *= static_cast<size_t>(size);
    NACRE_CHECK(tensor.bytes.size() == count * kernels::SizeOf(tensor.dtype),
                "a tensor with other bytes than its shape");
    TensorEntry entry;
    entry.dtype = DTypeName(tensor.dtype);
    entry.shape = tensor.shape;
    entry.size_bytes = tensor.bytes.size();
    checkpoint->entries_.push_back(std::move(entry));
    checkpoint->tensors_[name] = {&checkpoint->entries_.back(), tensor.bytes,
                                  nullptr, nullptr};
  }
  return checkpoint;
}

const Checkpoint::Location* Checkpoint::Locate(absl::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

void Checkpoint::NoteFound(const Location& location) const {
  if (location.file == nullptr) return;
  const absl::MutexLock lock(&found_mutex_);
  found_.push_back(&location);
}

bool Checkpoint::Contains(absl::string_view name) const {
  return Locate(name) != nullptr;
}

std::vector<std::string> Checkpoint::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, location] : tensors_) names.push_back(name);
  return names;
}

absl::Status Checkpoint::NotThere(absl::string_view name) const {
  return absl::NotFoundError(
      absl::StrCat("tensor ", name, " is not in the checkpoint ", dir_));
}

absl::StatusOr<RawTensor> Checkpoint::FindRaw(absl::string_view name) const {
  const Location* const location = Locate(name);
  if (location == nullptr) return NotThere(name);
  NoteFound(*location);
  return RawTensor{location->entry->dtype, location->entry->shape,
                   location->bytes};
}

absl::StatusOr<Tensor> Checkpoint::Describe(absl::string_view name) const {
  const Location* const location = Locate(name);
  if (location == nullptr) return NotThere(name);
  if (location->stored != nullptr) {
    return Tensor{location->stored->dtype,
                  location->entry->shape,
                  {},
                  location->stored->groups};
  }
  absl::StatusOr<kernels::DType> dtype = ParseDType(location->entry->dtype);
  if (!dtype.ok()) {
    return absl::Status(
        dtype.status().code(),
        absl::StrCat("tensor ", name, ": ", dtype.status().message()));
  }
  return Tensor{*dtype, location->entry->shape, {}};
}

absl::StatusOr<Tensor> Checkpoint::Find(absl::string_view name) const {
  NACRE_ASSIGN_OR_RETURN(Tensor tensor, Describe(name));
  const Location& location = *Locate(name);
  NoteFound(location);
  tensor.bytes = location.bytes;
  if (location.decode() == nullptr) return tensor;
  size_t size = kernels::SizeOf(tensor.dtype);
  for (const int64_t dimension : tensor.shape) {
    size *= static_cast<size_t>(dimension);
  }
  const absl::MutexLock lock(&found_mutex_);
  std::unique_ptr<char[]>& values = decoded_[location.stored];
  if (values == nullptr) {
    values = std::make_unique_for_overwrite<char[]>(size);
    location.stored->decode(0, location.stored->decoded_rows, values.get());
  }
  tensor.bytes = {values.get(), size};
  return tensor;
}

int64_t Checkpoint::StoredBytes(absl::string_view name) const {
  const Location* const location = Locate(name);
  return location == nullptr ? 0 : static_cast<int64_t>(location->bytes.size());
}

void Checkpoint::GiveBack() const {
  const absl::MutexLock lock(&found_mutex_);
  decoded_.clear();
  for (const Location* const location : found_) {
    location->file->GiveBack(location->bytes);
  }
  found_.clear();
}

absl::StatusOr<kernels::HostMatrix> Checkpoint::Matrix(absl::string_view name,
                                                       int rows,
                                                       int cols) const {
  NACRE_ASSIGN_OR_RETURN(const Tensor tensor, Find(name));
  NACRE_RETURN_IF_ERROR(CheckShape(name, tensor.shape, {rows, cols}));
  return kernels::HostMatrix{tensor.dtype, tensor.bytes.data(), rows, cols};
}

absl::StatusOr<MatrixRows> Checkpoint::Rows(absl::string_view name, int rows,
                                            int cols) const {
  NACRE_ASSIGN_OR_RETURN(const Tensor tensor, Describe(name));
  NACRE_RETURN_IF_ERROR(CheckShape(name, tensor.shape, {rows, cols}));
  const Location& location = *Locate(name);
  NoteFound(location);
  MatrixRows result;
  result.source = std::make_unique<TensorRows>(
      location.bytes, location.file, location.decode(),
      tensor.groups == nullptr ? nullptr : &location.stored->find_row,
      static_cast<size_t>(rows),
      static_cast<size_t>(cols) * kernels::SizeOf(tensor.dtype));
  result.matrix = {tensor.dtype,        nullptr,      rows, cols,
                   result.source.get(), tensor.groups};
  return result;
}

absl::StatusOr<std::vector<float>> Checkpoint::Vector(absl::string_view name,
                                                      int size) const {
  NACRE_ASSIGN_OR_RETURN(const Tensor tensor, Find(name));
  NACRE_RETURN_IF_ERROR(CheckShape(name, tensor.shape, {size}));
  std::vector<float> values(static_cast<size_t>(size));
  if (tensor.dtype == kernels::DType::kF32) {
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, tensor.bytes.data() + i * sizeof(bits), sizeof(bits));
    values[i] = tensor.dtype == kernels::DType::kBF16 ? kernels::FromBF16(bits)
                                                      : kernels::FromF16(bits);
  }
  return values;
}

absl::StatusOr<std::vector<int64_t>> Checkpoint::Integers(
    absl::string_view name) const {
  NACRE_ASSIGN_OR_RETURN(const RawTensor raw, FindRaw(name));
  const bool is_long = raw.dtype == "I64";
  if (!is_long && raw.dtype != "I32") {
    return absl::UnimplementedError(
        absl::StrCat("tensor ", name, ": dtype ", raw.dtype,
                     " is not supported; supported: I64, I32"));
  }
  if (raw.shape.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", name, " has shape ", ShapeString(raw.shape),
                     ", expected one dimension"));
  }
  std::vector<int64_t> values(static_cast<size_t>(raw.shape[0]));
  const char* bytes = raw.bytes.data();
  for (int64_t& value : values) {
    if (is_long) {
      std::memcpy(&value, bytes, sizeof(value));
      bytes += sizeof(value);
    } else {
      int32_t narrow;
      std::memcpy(&narrow, bytes, sizeof(narrow));
      bytes += sizeof(narrow);
      value = narrow;
    }
  }
  return values;
}

std::unique_ptr<FingerprintJob> Checkpoint::StartFingerprint(
    absl::string_view config_json) const {
  std::vector<FingerprintJob::Part> parts;
  for (const auto& [name, location] : tensors_) {
    parts.push_back({name, location.entry->dtype,
                     ShapeString(location.entry->shape), location.bytes,
                     location.file});
  }
  return std::make_unique<FingerprintJob>(config_json, std::move(parts),
                                          FingerprintJob::DefaultThreads());
}

std::string Checkpoint::Fingerprint(absl::string_view config_json) const {
  return StartFingerprint(config_json)->Finish();
}

}  // namespace nacre::model
