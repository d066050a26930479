#include "tests/benchmarks/random_gguf.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/expected_tensors.h"
#include "model/quantized/dequantize.h"
#include "tests/benchmarks/random_llama.h"
#include "tests/testing/gguf_checkpoint.h"
#include "tests/testing/gguf_writer.h"

namespace nacre::model {
namespace {

// Blocks, and what their scales are where values are in [-1, 1].
struct BlockType {
  absl::string_view name;
  uint32_t id;
  size_t values;
  size_t bytes;
  size_t scale_at;
  float scale;
  size_t offset_scale_at;
  float offset_scale;  // 0: there are none
};
constexpr BlockType kBlockTypes[] = {
    {"q8_0", 8, 32, 34, 0, 1 / 128.0f, 0, 0},
    {"q4_k", 12, 256, 144, 0, 2 / (63 * 15.0f), 2, 1 / 63.0f},
    {"q6_k", 14, 256, 210, 208, 1 / (128 * 32.0f), 0, 0},
};

// Random but for scales, of values in [-largest, largest].
std::string RandomBlocks(const BlockType& type, size_t values, float largest,
                         uint32_t seed) {
  std::string bytes(values / type.values * type.bytes, '\0');
  for (char& byte : bytes) {
    seed = seed * 1664525u + 1013904223u;
    byte = static_cast<char>(seed >> 24);
  }
  const auto store = [&](float value, size_t at) {
    const uint16_t bits = RoundToF16(value);
    std::memcpy(&bytes[at], &bits, sizeof(bits));
  };
  for (size_t at = 0; at < bytes.size(); at += type.bytes) {
    store(largest * type.scale, at + type.scale_at);
    if (type.offset_scale == 0) continue;
    store(largest * type.offset_scale, at + type.offset_scale_at);
  }
  return bytes;
}

std::string RandomBytes(const ModelConfig& config, const BlockType& type,
                        const ExpectedTensor& tensor, uint32_t seed) {
  if (tensor.shape.size() == 1) {
    const std::vector<float> ones(static_cast<size_t>(tensor.shape[0]), 1.0f);
    return std::string(reinterpret_cast<const char*>(ones.data()),
                       ones.size() * sizeof(float));
  }
  const auto values = static_cast<size_t>(tensor.shape[0] * tensor.shape[1]);
  return RandomBlocks(type, values,
                      std::sqrt(3.0f / static_cast<float>(config.hidden_size)),
                      seed);
}

}  // namespace

absl::Status WriteRandomGguf(const ModelConfig& config, absl::string_view type,
                             const std::string& path) {
  const BlockType* found = nullptr;
  for (const BlockType& known : kBlockTypes) {
    if (known.name == type) found = &known;
  }
  if (found == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("type ", type, ", expected q8_0, q4_k or q6_k"));
  }
  gguf::GgufWriter header = testing::GgufMetadata(config);
  const auto aligned = [&](size_t bytes) {
    return (bytes + header.alignment - 1) / header.alignment * header.alignment;
  };
  const std::vector<ExpectedTensor> tensors = AllTensors(config);
  size_t offset = 0;
  for (const ExpectedTensor& tensor : tensors) {
    const bool is_matrix = tensor.shape.size() == 2;
    if (is_matrix && static_cast<size_t>(tensor.shape[1]) % found->values > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(tensor.name, " has rows of ", tensor.shape[1],
                       " values, expected a multiple of ", found->values));
    }
    header.Info(testing::GgufName(tensor.name), is_matrix ? found->id : 0,
                tensor.shape, offset);
    offset += aligned(
        is_matrix ? static_cast<size_t>(tensor.shape[0] * tensor.shape[1]) /
                        found->values * found->bytes
                  : static_cast<size_t>(tensor.shape[0]) * sizeof(float));
  }
  std::ofstream file(path, std::ios::binary);
  file << header.Bytes();
  uint32_t seed = 0;
  for (const ExpectedTensor& tensor : tensors) {
    std::string bytes = RandomBytes(config, *found, tensor, ++seed);
    bytes.resize(aligned(bytes.size()));
    file << bytes;
  }
  file.close();
  return file
             ? absl::OkStatus()
             : absl::PermissionDeniedError(absl::StrCat(path, ": not written"));
}

}  // namespace nacre::model
