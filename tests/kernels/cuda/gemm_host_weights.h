// Random weights for the tests of the matrix product, in every format.

#ifndef TESTS_KERNELS_CUDA_GEMM_HOST_WEIGHTS_H_
#define TESTS_KERNELS_CUDA_GEMM_HOST_WEIGHTS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cuda/fp8.h"
#include "kernels/cuda/gemm_layout.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace nacre::kernels::cuda {

constexpr GemmFormat kFormats[] = {GemmFormat::kBf16, GemmFormat::kInt8,
                                   GemmFormat::kFp8, GemmFormat::kInt4};

inline const char* NameOf(GemmFormat format) {
  switch (format) {
    case GemmFormat::kBf16:
      return "bf16";
    case GemmFormat::kInt8:
      return "int8";
    case GemmFormat::kFp8:
      return "fp8";
    case GemmFormat::kInt4:
      return "int4";
  }
  return "";
}

struct Shape {
  int outputs;
  int inputs;
};

// Random weights of a format: as the device wants them, and as they count.
struct HostWeights {
  std::vector<unsigned char> device;
  std::vector<float> scales;  // kFp8
  std::vector<double> values;
};

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

inline HostWeights MakeBf16(const Shape& shape, uint64_t seed) {
  HostWeights made;
  const size_t count = size_t{1} * shape.outputs * shape.inputs;
  std::vector<uint16_t> bits(count);
  for (size_t i = 0; i < count; ++i) {
    bits[i] = RandomBf16(seed, i);
    made.values.push_back(Bf16ToFloat(bits[i]));
  }
  made.device = PackTiles(
      GemmFormat::kBf16, shape, [&](int first, int outputs, void* packed) {
        PackBf16Tile(bits.data() + size_t{1} * first * shape.inputs, outputs,
                     shape.inputs, packed);
      });
  return made;
}

// Integers from `least` to `most`, with a scale for `group` inputs.
inline HostWeights MakeIntegers(GemmFormat format, const Shape& shape,
                                uint64_t seed, int least, int most, int group) {
  HostWeights made;
  const auto [outputs, inputs] = shape;
  const int groups = GemmBlocks(inputs) * (kBlockInputs / group);
  std::vector<int8_t> integers(size_t{1} * outputs * inputs);
  std::vector<uint16_t> scales(size_t{1} * outputs * groups);
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = RandomBf16(seed + 100, i);
  }
  for (size_t i = 0; i < integers.size(); ++i) {
    const auto count = static_cast<uint64_t>(most - least + 1);
    integers[i] = static_cast<int8_t>(
        static_cast<int>(RandomWord(seed, i) % count) + least);
    const size_t scale = i / inputs * groups + i % inputs / group;
    made.values.push_back(double{Bf16ToFloat(scales[scale])} * integers[i]);
  }
  const auto pack = format == GemmFormat::kInt4 ? &PackInt4Tile : &PackInt8Tile;
  made.device =
      PackTiles(format, shape, [&](int first, int count, void* packed) {
        pack(integers.data() + size_t{1} * first * inputs,
             scales.data() + size_t{1} * first * groups, count, inputs, packed);
      });
  return made;
}

inline HostWeights MakeInt8(const Shape& shape, uint64_t seed) {
  return MakeIntegers(GemmFormat::kInt8, shape, seed, -127, 127, kBlockInputs);
}

inline HostWeights MakeInt4(const Shape& shape, uint64_t seed) {
  return MakeIntegers(GemmFormat::kInt4, shape, seed, -8, 7, kBlockInputs / 2);
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
    case GemmFormat::kInt4:
      return MakeInt4(shape, seed);
  }
  return {};
}

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_GEMM_HOST_WEIGHTS_H_
