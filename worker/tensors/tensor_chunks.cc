#include "worker/tensors/tensor_chunks.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/types/span.h"
#include "common/check.h"
#include "kernels/dtype.h"

namespace nacre::worker {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are sent as they lie in memory");

constexpr size_t kMaxRank = 4;

template <typename T>
absl::string_view BytesOfValue(absl::Span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(T)};
}

}  // namespace

void DecodeValues(absl::string_view bytes, bool in_bf16, float* out) {
  if (!in_bf16) {
    // No values lie nowhere, and memcpy takes no null pointer for them.
    if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
    return;
  }
  const char* in = bytes.data();
  for (size_t i = 0; i < bytes.size() / sizeof(uint16_t); ++i) {
    uint16_t half;
    std::memcpy(&half, in + i * sizeof half, sizeof half);
    out[i] = kernels::FromBF16(half);
  }
}

std::vector<std::shared_ptr<const WireTensor>> CutRows(
    std::shared_ptr<const WireTensor> rows, size_t max_bytes) {
  const int num_rows = rows->shape[0];
  const size_t row_bytes = rows->bytes.size() / static_cast<size_t>(num_rows);
  std::vector<std::shared_ptr<const WireTensor>> runs;
  if (row_bytes > max_bytes || rows->bytes.size() <= max_bytes) {
    runs.push_back(std::move(rows));
    return runs;
  }
  const int most = static_cast<int>(max_bytes / row_bytes);
  for (int first = 0; first < num_rows; first += most) {
    WireTensor run = *rows;
    run.tag.position += first;
    run.shape[0] = std::min(most, num_rows - first);
    run.bytes =
        rows->bytes.substr(static_cast<size_t>(first) * row_bytes,
                           static_cast<size_t>(run.shape[0]) * row_bytes);
    runs.push_back(std::make_shared<const WireTensor>(std::move(run)));
  }
  return runs;
}

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

WireTensor Encode(const Tensor& tensor) {
  WireTensor wire;
  wire.tag = tensor.tag;
  wire.shape = tensor.shape;
  wire.in_bf16 = tensor.in_bf16;
  if (!tensor.in_bf16) {
    const Tensor on_host = tensor.OnHost();
    wire.bytes = BytesOfValue(on_host.values.host());
    wire.owner = on_host.owner;
    return wire;
  }
  std::vector<float> copy;
  const absl::Span<const float> values = tensor.values.OnHost(&copy);
  const auto halves = std::make_shared<std::vector<uint16_t>>(values.size());
  std::transform(values.begin(), values.end(), halves->begin(),
                 kernels::ToBF16);
  wire.bytes = BytesOfValue(absl::Span<const uint16_t>(*halves));
  wire.owner = halves;
  return wire;
}

TensorChunk ChunkAt(const WireTensor& tensor, size_t offset, size_t max_bytes) {
  NACRE_CHECK(offset < tensor.bytes.size(), "a chunk past the end");
  TensorChunk chunk;
  chunk.tag = tensor.tag;
  chunk.shape = tensor.shape;
  chunk.in_bf16 = tensor.in_bf16;
  chunk.offset = offset;
  chunk.data = tensor.bytes.substr(offset, max_bytes);
  return chunk;
}

TensorAssembler::Outcome TensorAssembler::Drop(Outcome outcome) {
  open_ = false;
  return outcome;
}

TensorAssembler::Outcome TensorAssembler::Add(const TensorChunk& chunk,
                                              size_t num_values) {
  const size_t element = ElementBytes(chunk.in_bf16);
  const size_t num_bytes = num_values * element;
  if (chunk.offset == 0) {
    // More than is expected is as wrong as less: no memory is given to it.
    if (NumValues(chunk.shape, num_values) != num_values) {
      return Drop(Outcome::kWrongSize);
    }
    open_ = true;
    received_ = 0;
    tensor_.tag = chunk.tag;
    tensor_.shape = chunk.shape;
    tensor_.in_bf16 = chunk.in_bf16;
    values_.resize(num_values);
  }
  if (!open_ || chunk.offset != received_ || chunk.tag != tensor_.tag ||
      chunk.shape != tensor_.shape || chunk.in_bf16 != tensor_.in_bf16 ||
      values_.size() != num_values || chunk.data.empty() ||
      chunk.data.size() % element != 0 ||
      chunk.data.size() > num_bytes - received_) {
    return Drop(Outcome::kMalformed);
  }
  DecodeValues(chunk.data, chunk.in_bf16, values_.data() + received_ / element);
  received_ += chunk.data.size();
  if (received_ < num_bytes) return Outcome::kPart;
  return Drop(Outcome::kWhole);
}

Tensor TensorAssembler::TakeTensor() {
  tensor_.Own(std::exchange(values_, {}));
  return std::exchange(tensor_, Tensor());
}

}  // namespace nacre::worker
