// Writer of one .safetensors file, as a stream: declare all tensors, then
// append their bytes in the declared order. Nothing but the current piece is
// held.
//
// Thread-compatible.

#ifndef MODEL_SAFETENSORS_WRITER_H_
#define MODEL_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/dtype.h"

namespace nacre::model {

// "F32", "BF16", "F16": the format's names.
const char* DTypeName(kernels::DType dtype);

struct TensorSpec {
  std::string name;
  kernels::DType dtype = kernels::DType::kF32;
  std::vector<int64_t> shape;
};

class SafetensorsWriter {
 public:
  // Writes the header to `path`.partial; Finish renames it to `path`.
  // INVALID_ARGUMENT for a repeated name, errors of the disk with the file.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path, const std::vector<TensorSpec>& tensors);

  // Removes the partial file if Finish did not succeed.
  ~SafetensorsWriter();

  // The next `size_bytes` of the data of all tensors, in the declared order.
  // More than declared is our own bug: fatal.
  absl::Status Append(const void* bytes, size_t size_bytes);

  // All declared bytes must have been appended (our own bug otherwise).
  absl::Status Finish();

 private:
  SafetensorsWriter(std::string path, std::FILE* file, uint64_t data_bytes)
      : path_(std::move(path)), file_(file), remaining_bytes_(data_bytes) {}

  std::string path_;
  std::FILE* file_;  // owned; null once closed
  uint64_t remaining_bytes_;
};

}  // namespace nacre::model

#endif  // MODEL_SAFETENSORS_WRITER_H_
