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

}  // namespace

void QuantizeInt8Tile(const HostMatrix& matrix, int tile, void* packed) {
  const int blocks = GemmBlocks(matrix.cols);
  std::vector<int8_t> integers(size_t{1} * kTileOutputs * matrix.cols);
  std::vector<uint16_t> scales(size_t{1} * kTileOutputs * blocks);
  const int outputs = ForRows(matrix, tile, [&](int output, const float* row) {
    for (int block = 0; block < blocks; ++block) {
      int8_t group[kBlockInputs];
      const float scale = QuantizeWeights(row + size_t{kBlockInputs} * block,
                                          WeightType::kInt8, group);
      scales[size_t{1} * output * blocks + block] = ToBF16(scale);
      const int first = block * kBlockInputs;
      std::copy_n(group, std::min(kBlockInputs, matrix.cols - first),
                  integers.begin() + size_t{1} * output * matrix.cols + first);
    }
  });
  PackInt8Tile(integers.data(), scales.data(), outputs, matrix.cols, packed);
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
