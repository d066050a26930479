// Reader of GGUF files: a header, metadata, the names, types and places of
// tensors, then their bytes. A file is mapped, never copied. Format: "GGUF" of
// the ggml project (docs/gguf.md there). A model may lie in several, of which
// the first is named.
//
// A file is not believed. Counts, lengths and products are checked, and tensors
// must follow each other as ggml writes them. So none lies outside the file or
// over another.
//
// Thread-safe: immutable after Open.

#ifndef COMMON_GGUF_GGUF_FILE_H_
#define COMMON_GGUF_GGUF_FILE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/gguf/metadata.h"
#include "common/gguf/tensor_type.h"
#include "common/mapped_file.h"

namespace nacre::gguf {

struct Tensor {
  const TensorType* type = nullptr;
  // Rows first, as a model's shapes are written. In the file it is the other
  // way round.
  std::vector<int64_t> shape;
  absl::string_view bytes;
  const MappedFile* file = nullptr;  // that has them, if File opened it
};

// Borrows the bytes that it was parsed from.
struct Contents {
  Metadata metadata;
  absl::string_view metadata_bytes;
  std::map<std::string, Tensor, std::less<>> tensors;
};

// Parses a whole file's `bytes`. INVALID_ARGUMENT with the key or tensor and
// the numbers for anything malformed; DATA_LOSS if the file ends before what it
// promises; UNIMPLEMENTED: a version other than 2 and 3, the bytes of a
// big-endian machine, or a type of tensor that is not known.
absl::StatusOr<Contents> Parse(absl::string_view bytes);

class File {
 public:
  // Whether a model's path is read as a GGUF file: it is a file, not a folder.
  static bool Is(const std::string& path);

  // Of the first of several parts (parts.h), opens all. Errors of
  // MappedFile::Open and Parse, naming the file; NOT_FOUND: a part is missing;
  // INVALID_ARGUMENT: `path` is a later part, or a part belongs to others.
  static absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // Of all parts together. Valid as long as this object.
  const Contents& contents() const { return contents_; }

 private:
  explicit File(std::string path) : path_(std::move(path)) {}
  // Maps and parses one file.
  absl::StatusOr<Contents> Map(const std::string& path);
  absl::Status OpenParts();

  std::string path_;
  std::vector<std::unique_ptr<MappedFile>> files_;  // part by part
  Contents contents_;
};

}  // namespace nacre::gguf

#endif  // COMMON_GGUF_GGUF_FILE_H_
