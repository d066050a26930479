// The weights of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json lists; where there is neither, the same of
// pytorch_model.bin. Or those of a GGUF file, under the names that they have in
// such a folder. Looks tensors up by name and refuses those that do not have
// the shape the config implies. Quantized ones are read by
// quantized/quantized_weights.h.
//
// Thread-safe: immutable after Open, but for what GiveBack says.

#ifndef MODEL_CHECKPOINT_H_
#define MODEL_CHECKPOINT_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/mapped_file.h"
#include "kernels/product_ops.h"
#include "model/fingerprint.h"
#include "model/quantized/quantization.h"
#include "model/safetensors.h"
#include "model/tensor_rows.h"

namespace nacre::model {

// One tensor of a floating-point type, in mapped memory (any alignment).
struct Tensor {
  kernels::DType dtype = kernels::DType::kF32;
  std::vector<int64_t> shape;
  absl::string_view bytes;
  // How its file says the values of a matrix; null: as they are.
  const kernels::WeightGroups* groups = nullptr;
};

// One of any type, under the file's name for it ("I32", ...).
struct RawTensor {
  absl::string_view dtype;
  std::vector<int64_t> shape;
  absl::string_view bytes;
};

// One tensor as its file has it: other bytes than its values, perhaps.
struct StoredTensor {
  TensorEntry entry;  // as the file says it; the offset means nothing
  absl::string_view bytes;
  const MappedFile* file = nullptr;             // that has them, if one does
  kernels::DType dtype = kernels::DType::kF32;  // of the values
  // Null: `bytes` are the values. Else of `decoded_rows` rows, those of a
  // matrix, perhaps fewer of a vector.
  DecodeRows decode;
  size_t decoded_rows = 1;
  // Of a matrix whose values are said in blocks: how, and where rows are.
  const kernels::WeightGroups* groups = nullptr;
  FindRow find_row;
};

// A matrix whose rows are read as they are asked for.
struct MatrixRows {
  std::unique_ptr<kernels::RowSource> source;
  kernels::HostMatrix matrix;
};

class Checkpoint {
 public:
  // Of a folder, or of a GGUF file or the first of several. NOT_FOUND names the
  // missing folder or file. INVALID_ARGUMENT or DATA_LOSS: a malformed one, an
  // index with a tensor that its shard lacks, or a shard's name that is no
  // plain file name.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(
      const std::string& dir);

  // The same of one file, of any name: what torch.save wrote if that ends in
  // .bin, .pt or .pth, else safetensors.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> OpenFile(
      const std::string& path);

  // Of tensors of files that `owner` keeps; `path` is for errors.
  static std::unique_ptr<Checkpoint> OfStored(
      std::string path, std::map<std::string, StoredTensor> tensors,
      std::shared_ptr<const void> owner);

  // Of tensors at hand: their bytes, each as many as dtype and shape say, must
  // outlive the result.
  static std::unique_ptr<Checkpoint> OfTensors(
      const std::map<std::string, Tensor>& tensors);

  // What config.json of its folder says; none: all weights are floats.
  const std::optional<Quantization>& quantization() const {
    return quantization_;
  }

  bool Contains(absl::string_view name) const;

  // All tensor names, sorted.
  std::vector<std::string> Names() const;

  // NOT_FOUND if there is none of this name, UNIMPLEMENTED if its dtype is not
  // BF16, F16 or F32. Valid as long as this object; what had to be computed,
  // until GiveBack.
  absl::StatusOr<Tensor> Find(absl::string_view name) const;

  // NOT_FOUND if there is none of this name.
  absl::StatusOr<RawTensor> FindRaw(absl::string_view name) const;
  // Find without the bytes, which costs nothing.
  absl::StatusOr<Tensor> Describe(absl::string_view name) const;

  // What it takes in its file; 0: there is none of this name.
  int64_t StoredBytes(absl::string_view name) const;

  // Gives back the memory of all that was found. Files come again when they are
  // read again; what was computed ends.
  void GiveBack() const ABSL_LOCKS_EXCLUDED(found_mutex_);

  // Find, and INVALID_ARGUMENT with both shapes if it is not [rows, cols].
  absl::StatusOr<kernels::HostMatrix> Matrix(absl::string_view name, int rows,
                                             int cols) const;
  // The same for a backend of the host, valid as long as this object. Memory is
  // needed for the rows that are read at a time only.
  absl::StatusOr<MatrixRows> Rows(absl::string_view name, int rows,
                                  int cols) const;

  // Find, converted; INVALID_ARGUMENT with both shapes if it is not [size].
  absl::StatusOr<std::vector<float>> Vector(absl::string_view name,
                                            int size) const;

  // Whole numbers of dtype I64 or I32. Errors as of Find; INVALID_ARGUMENT if
  // it has more than one dimension.
  absl::StatusOr<std::vector<int64_t>> Integers(absl::string_view name) const;

  // SHA-256 in hex over `config_json` and of every tensor the name, dtype,
  // shape and all bytes. Begins to hash; this object outlives the result.
  std::unique_ptr<FingerprintJob> StartFingerprint(
      absl::string_view config_json) const;
  // The same at once.
  std::string Fingerprint(absl::string_view config_json) const;

 private:
  struct TensorFile {
    std::unique_ptr<MappedFile> file;
    TensorTable tensors;

    absl::string_view Bytes(const TensorEntry& entry) const {
      return file->bytes().substr(entry.offset, entry.size_bytes);
    }
  };
  struct Location {
    const TensorEntry* entry = nullptr;
    absl::string_view bytes;
    const MappedFile* file = nullptr;      // that has them, if one does
    const StoredTensor* stored = nullptr;  // null: the entry says all

    // Null: the bytes are the values.
    const DecodeRows* decode() const {
      return stored != nullptr && stored->decode ? &stored->decode : nullptr;
    }
  };

  Checkpoint() = default;
  // Null: there is none of this name.
  const Location* Locate(absl::string_view name) const;
  absl::Status NotThere(absl::string_view name) const;
  // For GiveBack.
  void NoteFound(const Location& location) const
      ABSL_LOCKS_EXCLUDED(found_mutex_);
  // Opens and keeps a file.
  absl::StatusOr<const TensorFile*> Keep(const std::string& path);
  static absl::StatusOr<std::unique_ptr<Checkpoint>> OpenGguf(
      const std::string& path);
  absl::Status AddFile(const std::string& path);
  absl::Status OpenShards(const std::string& dir, absl::string_view index_json);

  std::string dir_;
  std::optional<Quantization> quantization_;
  std::deque<TensorFile> files_;
  std::deque<TensorEntry> entries_;  // of tensors that are in no file
  std::map<std::string, StoredTensor> stored_;
  std::shared_ptr<const void> stored_owner_;
  std::map<std::string, Location, std::less<>> tensors_;
  mutable absl::Mutex found_mutex_;
  // What may be in memory.
  mutable std::vector<const Location*> found_ ABSL_GUARDED_BY(found_mutex_);
  // What Find computed, by address of the tensor.
  mutable std::map<const StoredTensor*, std::unique_ptr<char[]>> decoded_
      ABSL_GUARDED_BY(found_mutex_);
};

}  // namespace nacre::model

#endif  // MODEL_CHECKPOINT_H_
