// One matrix of random weights and many rows of activations, on the host and on
// a device, for the tests of the matrix product.

#ifndef TESTS_KERNELS_CUDA_GEMM_CASE_H_
#define TESTS_KERNELS_CUDA_GEMM_CASE_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "kernels/cuda/fp8.h"
#include "kernels/cuda/gemm.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace nacre::kernels::cuda {

inline int failures = 0;

// Where the expectation does not hold: says so and goes on.
#define EXPECT(condition, ...)                                      \
  do {                                                              \
    if (!(condition)) {                                             \
      if (++failures <= 20) {                                       \
        std::printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
        std::printf(__VA_ARGS__);                                   \
        std::printf("\n");                                          \
      }                                                             \
    }                                                               \
  } while (false)

constexpr unsigned char kPoison = 0xff;  // makes NaN
constexpr uint16_t kBf16Nan = 0x7fc0;
constexpr GemmFormat kFormats[] = {GemmFormat::kBf16, GemmFormat::kInt8,
                                   GemmFormat::kFp8};

inline const char* NameOf(GemmFormat format) {
  switch (format) {
    case GemmFormat::kBf16:
      return "bf16";
    case GemmFormat::kInt8:
      return "int8";
    case GemmFormat::kFp8:
      return "fp8";
  }
  return "";
}

struct Shape {
  int outputs;
  int inputs;
};

// Device memory with poison behind it.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t bytes) : buffer_(bytes + 4096) {
    Check(cudaMemset(buffer_.as(), kPoison, buffer_.bytes()), "guard");
  }
  void Set(const void* bytes, size_t count) {
    Check(cudaMemcpy(buffer_.as(), bytes, count, cudaMemcpyDefault), "upload");
  }
  template <typename T = void>
  T* as() const {
    return buffer_.as<T>();
  }

 private:
  DeviceBuffer buffer_;
};

// Random weights of a format: as the device wants them, and as they count.
struct HostWeights {
  std::vector<unsigned char> device;
  std::vector<float> scales;  // kFp8
  std::vector<double> values;
};

inline HostWeights MakeBf16(const Shape& shape, uint64_t seed) {
  HostWeights made;
  const size_t count = size_t{1} * shape.outputs * shape.inputs;
  std::vector<uint16_t> bits(count);
  for (size_t i = 0; i < count; ++i) {
    bits[i] = RandomBf16(seed, i);
    made.values.push_back(Bf16ToFloat(bits[i]));
  }
  made.device.resize(2 * count);
  std::memcpy(made.device.data(), bits.data(), made.device.size());
  return made;
}

// Packs tile by tile what `pack(first output, outputs, tile)` makes.
template <typename Pack>
std::vector<unsigned char> PackTiles(GemmFormat format, const Shape& shape,
                                     const Pack& pack) {
  std::vector<unsigned char> packed(
      GemmWeightBytes(format, shape.outputs, shape.inputs));
  for (int tile = 0; tile < GemmTiles(shape.outputs); ++tile) {
    const int first = tile * kTileOutputs;
    pack(first, std::min(kTileOutputs, shape.outputs - first),
         packed.data() + tile * PackedTileBytes(format, shape.inputs));
  }
  return packed;
}

inline HostWeights MakeInt8(const Shape& shape, uint64_t seed) {
  HostWeights made;
  const auto [outputs, inputs] = shape;
  const int blocks = GemmBlocks(inputs);
  std::vector<int8_t> integers(size_t{1} * outputs * inputs);
  std::vector<uint16_t> scales(size_t{1} * outputs * blocks);
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = RandomBf16(seed + 100, i);
  }
  for (size_t i = 0; i < integers.size(); ++i) {
    integers[i] = static_cast<int8_t>(RandomWord(seed, i) % 255 - 127);
    const size_t scale = i / inputs * blocks + i % inputs / kBlockInputs;
    made.values.push_back(double{Bf16ToFloat(scales[scale])} * integers[i]);
  }
  made.device = PackTiles(
      GemmFormat::kInt8, shape, [&](int first, int count, void* packed) {
        PackInt8Tile(integers.data() + size_t{1} * first * inputs,
                     scales.data() + size_t{1} * first * blocks, count, inputs,
                     packed);
      });
  return made;
}

inline HostWeights MakeFp8(const Shape& shape, uint64_t seed) {
  HostWeights made;
  const auto [outputs, inputs] = shape;
  std::vector<uint8_t> codes(size_t{1} * outputs * inputs);
  for (int output = 0; output < outputs; ++output) {
    made.scales.push_back(Bf16ToFloat(RandomBf16(seed + 100, output)) * 1.1f);
  }
  for (size_t i = 0; i < codes.size(); ++i) {
    // Every code but the two that are not numbers.
    const uint64_t word = RandomWord(seed, i) % 254;
    codes[i] = static_cast<uint8_t>(word < 127 ? word : word + 1);
    made.values.push_back(double{FromE4m3(codes[i])} * made.scales[i / inputs]);
  }
  made.device = PackTiles(
      GemmFormat::kFp8, shape, [&](int first, int count, void* packed) {
        PackFp8Tile(codes.data() + size_t{1} * first * inputs, count, inputs,
                    packed);
      });
  return made;
}

inline HostWeights MakeWeights(GemmFormat format, const Shape& shape,
                               uint64_t seed) {
  switch (format) {
    case GemmFormat::kBf16:
      return MakeBf16(shape, seed);
    case GemmFormat::kInt8:
      return MakeInt8(shape, seed);
    case GemmFormat::kFp8:
      return MakeFp8(shape, seed);
  }
  return {};
}

class Case {
 public:
  Case(GemmFormat format, const Shape& shape, int rows, uint64_t seed)
      : format_(format),
        shape_(shape),
        rows_(rows),
        weights_(MakeWeights(format, shape, seed)),
        activations_(size_t{1} * rows * shape.inputs),
        device_weights_(weights_.device.size()),
        device_scales_(sizeof(float) * weights_.scales.size()),
        device_activations_(2 * activations_.size()),
        results_(sizeof(float) * (rows + 1) * shape.outputs),
        workspace_(std::max<size_t>(
            16, GemmWorkspaceBytes(shape.outputs, shape.inputs, rows))) {
    for (size_t i = 0; i < activations_.size(); ++i) {
      activations_[i] = RandomBf16(seed + 1, i);
    }
    device_weights_.Set(weights_.device.data(), weights_.device.size());
    device_scales_.Set(weights_.scales.data(),
                       sizeof(float) * weights_.scales.size());
    SetActivations(activations_);
  }

  void SetActivations(const std::vector<uint16_t>& activations) {
    device_activations_.Set(activations.data(), 2 * activations.size());
  }

  GemmArgs Args(int first_row, int rows) const {
    GemmArgs args;
    args.format = format_;
    args.weights = device_weights_.as();
    if (!weights_.scales.empty()) args.scales = device_scales_.as<float>();
    args.activations = device_activations_.as<uint16_t>() +
                       size_t{1} * first_row * shape_.inputs;
    args.results = results_.as<float>();
    args.workspace = workspace_.as();
    args.outputs = shape_.outputs;
    args.inputs = shape_.inputs;
    args.rows = rows;
    return args;
  }

  // Rows [first_row, first_row + rows). Whatever is not written is poison.
  std::vector<float> Run(int first_row, int rows) {
    Check(cudaMemset(results_.as(), kPoison, results_.bytes()), "poison");
    Check(cudaMemset(workspace_.as(), kPoison, workspace_.bytes()), "poison");
    Check(Gemm(Args(first_row, rows), nullptr), "Gemm");
    std::vector<float> results(results_.bytes() / sizeof(float));
    Check(cudaMemcpy(results.data(), results_.as(), results_.bytes(),
                     cudaMemcpyDefault),
          "results");
    const auto* bytes = reinterpret_cast<const unsigned char*>(results.data());
    const size_t written = sizeof(float) * rows * shape_.outputs;
    EXPECT(std::all_of(bytes + written, bytes + results_.bytes(),
                       [](unsigned char byte) { return byte == kPoison; }),
           "%d x %d, %d rows: wrote behind its rows", shape_.outputs,
           shape_.inputs, rows);
    return results;
  }

  // Are `rows` rows of a, from row_a, those of b, from row_b, bit by bit?
  bool SameRows(const std::vector<float>& a, int row_a,
                const std::vector<float>& b, int row_b, int rows) const {
    const size_t row = shape_.outputs;
    return std::memcmp(a.data() + row_a * row, b.data() + row_b * row,
                       sizeof(float) * row * rows) == 0;
  }

  GemmFormat format() const { return format_; }
  const Shape& shape() const { return shape_; }
  int rows() const { return rows_; }
  const std::vector<double>& weights() const { return weights_.values; }
  const std::vector<uint16_t>& activations() const { return activations_; }

 private:
  GemmFormat format_;
  Shape shape_;
  int rows_;
  HostWeights weights_;
  std::vector<uint16_t> activations_;
  GuardedBuffer device_weights_, device_scales_, device_activations_;
  DeviceBuffer results_, workspace_;
};

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_GEMM_CASE_H_
