// Reader of one .safetensors file: 8 bytes of header length, a JSON header that
// names each tensor's dtype, shape and byte range, then the bytes. The file is
// mapped, never copied. Format: github.com/huggingface/safetensors.
//
// A header is not believed. Lengths, ranges and products are checked, and
// ranges must tile the data exactly. So no tensor lies outside the file or over
// another.
//
// Thread-safe: immutable after Open.

#ifndef MODEL_SAFETENSORS_H_
#define MODEL_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/mapped_file.h"

namespace nacre::model {

// What the header says of one tensor.
struct TensorEntry {
  std::string dtype;  // as in the file: "BF16", "F32", ...
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // of its first byte, from the start of the file
  uint64_t size_bytes = 0;
};

using TensorTable = std::map<std::string, TensorEntry>;

// Parses the header of a whole file's `bytes`. INVALID_ARGUMENT with the tensor
// and the numbers for anything malformed; DATA_LOSS if the file ends before
// what its header promises.
absl::StatusOr<TensorTable> ParseSafetensors(absl::string_view bytes);

// One of the tensors of ParseSafetensors(file), converted; UNIMPLEMENTED if its
// dtype is not BF16, F16 or F32.
absl::StatusOr<std::vector<float>> ReadFloats(absl::string_view file,
                                              const TensorEntry& entry);

// "[3, 4]".
std::string ShapeString(const std::vector<int64_t>& shape);

class SafetensorsFile {
 public:
  // Errors of MappedFile::Open and ParseSafetensors, naming the file.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(
      const std::string& path);

  const std::string& path() const { return path_; }
  const TensorTable& tensors() const { return tensors_; }

  // The bytes of one of tensors(); valid as long as this object.
  absl::string_view Bytes(const TensorEntry& entry) const {
    return file_->bytes().substr(entry.offset, entry.size_bytes);
  }

 private:
  SafetensorsFile(std::string path, std::unique_ptr<MappedFile> file,
                  TensorTable tensors);

  std::string path_;
  std::unique_ptr<MappedFile> file_;
  TensorTable tensors_;
};

}  // namespace nacre::model

#endif  // MODEL_SAFETENSORS_H_
