// Tensors in pieces that fit a message, and back. The pieces that come in are a
// peer's: nothing about them is taken for granted.
//
// Thread-compatible.

#ifndef WORKER_TENSORS_TENSOR_CHUNKS_H_
#define WORKER_TENSORS_TENSOR_CHUNKS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "worker/tensors/tensor.h"

namespace nacre::worker {

inline constexpr size_t kMaxChunkBytes = size_t{1} << 20;

struct TensorChunk {
  TensorTag tag;
  std::vector<int> shape;
  bool in_bf16 = false;    // else float32
  uint64_t offset = 0;     // in bytes of that type
  absl::string_view data;  // of that type, little endian; not owned
};

// A tensor as a stream has it. Copies share the bytes.
struct WireTensor {
  TensorTag tag;
  std::vector<int> shape;
  bool in_bf16 = false;               // else float32
  absl::string_view bytes;            // its values, little endian
  std::shared_ptr<const void> owner;  // of the bytes
};

// Shares float32 values that the tensor owns on the host; makes others.
WireTensor Encode(const Tensor& tensor);

// Bytes of one number.
inline size_t ElementBytes(bool in_bf16) {
  return in_bf16 ? sizeof(uint16_t) : sizeof(float);
}

// Of such bytes, which are whole numbers at any address, into float32.
void DecodeValues(absl::string_view bytes, bool in_bf16, float* out);

// Runs of rows, [rows, row_size], in runs of as many rows as `max_bytes` hold,
// which share the bytes. As it is if that is none.
std::vector<std::shared_ptr<const WireTensor>> CutRows(
    std::shared_ptr<const WireTensor> rows, size_t max_bytes);

// Of a tensor. nullopt: it is no shape, or one of more values than `limit`.
absl::optional<size_t> NumValues(const std::vector<int>& shape, size_t limit);

// The piece from `offset` on, with at most `max_bytes` (a multiple of 4). Its
// data is the tensor's.
TensorChunk ChunkAt(const WireTensor& tensor, size_t offset,
                    size_t max_bytes = kMaxChunkBytes);

// Puts the tensors of one stream together, one at a time.
class TensorAssembler {
 public:
  enum class Outcome {
    kPart,
    kWhole,      // TakeTensor() has it
    kMalformed,  // dropped, and what there was of its tensor
    kWrongSize,  // likewise: the tensor has another number of values
  };

  // `num_values`: what a tensor of the chunk's channel must have.
  Outcome Add(const TensorChunk& chunk, size_t num_values);

  // After kWhole.
  Tensor TakeTensor();

 private:
  Outcome Drop(Outcome outcome);

  bool open_ = false;
  Tensor tensor_;              // without values
  std::vector<float> values_;  // its
  size_t received_ = 0;        // bytes of tensor_
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_TENSOR_CHUNKS_H_
