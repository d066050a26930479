#include "worker/tensors/tensor_chunks.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace nacre::worker {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are sent as they lie in memory");

constexpr size_t kMaxRank = 4;

}  // namespace

absl::optional<size_t> NumValues(const std::vector<int>& shape, size_t limit) {
  if (shape.empty() || shape.size() > kMaxRank) return absl::nullopt;
  size_t count = 1;
  for (const int size : shape) {
    if (size < 1 || static_cast<size_t>(size) > limit / count) {
      return absl::nullopt;
    }
    count *= static_cast<size_t>(size);
  }
  return count;
}

TensorChunk ChunkAt(const Tensor& tensor, size_t offset, size_t max_bytes) {
  NACRE_CHECK(offset < tensor.num_bytes(), "a chunk past the end");
  TensorChunk chunk;
  chunk.tag = tensor.tag;
  chunk.shape = tensor.shape;
  chunk.offset = offset;
  chunk.data = absl::string_view(
      reinterpret_cast<const char*>(tensor.values.host().data()) + offset,
      std::min(max_bytes, tensor.num_bytes() - offset));
  return chunk;
}

TensorAssembler::Outcome TensorAssembler::Drop(Outcome outcome) {
  open_ = false;
  return outcome;
}

TensorAssembler::Outcome TensorAssembler::Add(const TensorChunk& chunk,
                                              size_t num_values) {
  const size_t num_bytes = num_values * sizeof(float);
  if (chunk.offset == 0) {
    // More than is expected is as wrong as less: no memory is given to it.
    if (NumValues(chunk.shape, num_values) != num_values) {
      return Drop(Outcome::kWrongSize);
    }
    open_ = true;
    received_ = 0;
    tensor_.tag = chunk.tag;
    tensor_.shape = chunk.shape;
    values_.resize(num_values);
  }
  if (!open_ || chunk.offset != received_ || chunk.tag != tensor_.tag ||
      chunk.shape != tensor_.shape || values_.size() != num_values ||
      chunk.data.empty() || chunk.data.size() > num_bytes - received_) {
    return Drop(Outcome::kMalformed);
  }
  std::memcpy(reinterpret_cast<char*>(values_.data()) + received_,
              chunk.data.data(), chunk.data.size());
  received_ += chunk.data.size();
  if (received_ < num_bytes) return Outcome::kPart;
  return Drop(Outcome::kWhole);
}

Tensor TensorAssembler::TakeTensor() {
  tensor_.Own(std::exchange(values_, {}));
  return std::exchange(tensor_, Tensor());
}

}  // namespace nacre::worker
