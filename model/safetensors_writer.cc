#include "model/safetensors_writer.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/json.h"
#include "common/status_macros.h"

namespace nacre::model {
namespace {

// Data begins at a multiple of this, as the format's own writer does it.
constexpr size_t kHeaderAlignment = 8;

std::string Partial(const std::string& path) { return path + ".partial"; }

}  // namespace

const char* DTypeName(kernels::DType dtype) {
  switch (dtype) {
    case kernels::DType::kF32:
      return "F32";
    case kernels::DType::kBF16:
      return "BF16";
    case kernels::DType::kF16:
      return "F16";
    case kernels::DType::kInt8:
      return "I8";
  }
  return "unknown";
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, const std::vector<TensorSpec>& tensors) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    if (header.contains(tensor.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", tensor.name, " is declared twice"));
    }
    uint64_t size = kernels::SizeOf(tensor.dtype);
    for (const int64_t dimension : tensor.shape) {
      size *= static_cast<uint64_t>(dimension);
    }
    header[tensor.name] = {{"dtype", DTypeName(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + size}}};
    offset += size;
  }
  std::string text = header.dump();
  text.append(
      (kHeaderAlignment - text.size() % kHeaderAlignment) % kHeaderAlignment,
      ' ');
  std::FILE* file = std::fopen(Partial(path).c_str(), "wb");
  if (file == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("create ", Partial(path)));
  }
  const uint64_t header_bytes = text.size();
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter(
      path, file, sizeof(header_bytes) + header_bytes + offset));
  NACRE_RETURN_IF_ERROR(writer->Append(&header_bytes, sizeof(header_bytes)));
  NACRE_RETURN_IF_ERROR(writer->Append(text.data(), text.size()));
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::remove(Partial(path_).c_str());
}

absl::Status SafetensorsWriter::Append(const void* bytes, size_t size_bytes) {
  NACRE_CHECK(size_bytes <= remaining_bytes_, "more data than declared");
  if (size_bytes == 0) return absl::OkStatus();
  if (std::fwrite(bytes, 1, size_bytes, file_) != size_bytes) {
    return absl::ErrnoToStatus(errno, absl::StrCat("write ", Partial(path_)));
  }
  remaining_bytes_ -= size_bytes;
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Finish() {
  NACRE_CHECK(remaining_bytes_ == 0, "less data than declared");
  if (std::fflush(file_) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("write ", Partial(path_)));
  }
  if (std::rename(Partial(path_).c_str(), path_.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("rename to ", path_));
  }
  std::fclose(file_);
  file_ = nullptr;
  return absl::OkStatus();
}

}  // namespace nacre::model
