#include "kernels/cuda/gemm_quantization.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/fp8.h"
#include "kernels/cuda/gemm_layout.h"
#include "kernels/dtype.h"
#include "kernels/host_memory.h"
#include "kernels/quantization.h"
#include "kernels/weight_type.h"

namespace nacre::kernels::cuda {
namespace {

// Calls visit(output within the tile, row of float32, whole blocks).
template <typename Visit>
int ForRows(const HostMatrix& matrix, int tile, const Visit& visit) {
  const int first = tile * kTileOutputs;
  const int outputs = std::min(kTileOutputs, matrix.rows - first);
  std::vector<float> row(size_t{1} * GemmBlocks(matrix.cols) * kBlockInputs);
  for (int output = 0; output < outputs; ++output) {
    LoadRow(matrix, first + output, row.data());
    visit(output, row.data());
  }
  return outputs;
}

struct IntegerTile {
  std::vector<int8_t> integers;  // [outputs, inputs]
  std::vector<uint16_t> scales;  // [outputs, groups of whole blocks]
  int outputs = 0;
};

IntegerTile Quantize(const HostMatrix& matrix, int tile, WeightType type) {
  const int size = QuantizedGroupSize(type);
  const int groups = GemmBlocks(matrix.cols) * (kBlockInputs / size);
  IntegerTile made;
  made.integers.resize(size_t{1} * kTileOutputs * matrix.cols);
  made.scales.resize(size_t{1} * kTileOutputs * groups);
  made.outputs = ForRows(matrix, tile, [&](int output, const float* row) {
    int8_t* const to = made.integers.data() + size_t{1} * output * matrix.cols;
    for (int group = 0; group < groups; ++group) {
      int8_t integers[kMaxQuantizedGroup];
      const int first = group * size;
      made.scales[size_t{1} * output * groups + group] =
          ToBF16(QuantizeWeights(row + first, type, integers));
      const int inside = std::min(size, matrix.cols - first);
      if (inside > 0) std::copy_n(integers, inside, to + first);
    }
  });
  return made;
}

}  // namespace

void QuantizeInt8Tile(const HostMatrix& matrix, int tile, void* packed) {
  const IntegerTile made = Quantize(matrix, tile, WeightType::kInt8);
  PackInt8Tile(made.integers.data(), made.scales.data(), made.outputs,
               matrix.cols, packed);
}

void QuantizeInt4Tile(const HostMatrix& matrix, int tile, void* packed) {
  const IntegerTile made = Quantize(matrix, tile, WeightType::kInt4);
  PackInt4Tile(made.integers.data(), made.scales.data(), made.outputs,
               matrix.cols, packed);
}

void QuantizeFp8Tile(const HostMatrix& matrix, int tile, void* packed,
                     float* scales) {
  std::vector<uint8_t> codes(size_t{1} * kTileOutputs * matrix.cols);
  const int outputs = ForRows(matrix, tile, [&](int output, const float* row) {
    float largest = 0;
    for (int i = 0; i < matrix.cols; ++i) {
      largest = std::max(largest, std::fabs(row[i]));
    }
    const float scale = largest / kLargestE4m3;
    scales[tile * kTileOutputs + output] = scale;
    uint8_t* const to = codes.data() + size_t{1} * output * matrix.cols;
    for (int i = 0; i < matrix.cols; ++i) {
      to[i] = scale == 0 ? uint8_t{0} : ToE4m3(row[i] / scale);
    }
  });
  PackFp8Tile(codes.data(), outputs, matrix.cols, packed);
}

}  // namespace nacre::kernels::cuda
