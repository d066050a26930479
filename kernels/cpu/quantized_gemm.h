// Skinny matrix product over weights in 8 or 4 bits (kernels/quantization.h).
//
// Weights lie in the order in which the kernel reads them: 32 outputs, a unit,
// go through the inputs group by group. A lane of a vector is an output, so the
// exact integer sum of a group needs no sum across lanes, and one conversion to
// float32 a group.
//   weights      [unit][group] of cells; a cell is
//     int8  [4 inputs of 16][output 32][input 4] integer + 128, unsigned
//     int4  [pair of 4][output 32][input 4] byte: integer + 8 of input
//           4 * pair + i low, of input 16 + 4 * pair + i high
//     and behind them [output 32] bf16 scales
//   activations  [row tile][group][4 inputs of the group][row of the tile]
//                [input 4] int8: what is multiplied at a time lies together,
//                for loads from one offset of several cache lines wait for each
//                other on some CPUs
//   scales       [row tile][group][row of the tile] float
//   corrections  likewise, int32: -offset times the sum of the row's group,
//                which makes the weights' offset of 128 or 8 good
//
// float32 sums of a row and output are added group by group, in order, with a
// fused multiply-add of the group's sum and the product of the two scales.
// Tiles, chunks and threads only decide when that happens, so they change no
// bit.

#ifndef KERNELS_CPU_QUANTIZED_GEMM_H_
#define KERNELS_CPU_QUANTIZED_GEMM_H_

#include <cstddef>
#include <cstdint>

namespace nacre::kernels {

inline constexpr int kUnitOutputs = 32;
inline constexpr int kQuantizedTileRows = 6;

// What differs between the two types.
struct Int8Cells {
  static constexpr int kGroup = 64;
  static constexpr int kOffset = 128;
  static constexpr size_t kSteps = 16;  // of 128 bytes of weights
  static constexpr int kQuadsPerStep = 1;
};
struct Int4Cells {
  static constexpr int kGroup = 32;
  static constexpr int kOffset = 8;
  static constexpr size_t kSteps = 4;
  static constexpr int kQuadsPerStep = 2;
};
inline constexpr size_t kStepBytes = 4 * kUnitOutputs;
template <class Cells>
inline constexpr size_t kCellBytes = Cells::kSteps* kStepBytes +
                                     kUnitOutputs * sizeof(uint16_t);

// Weights are fetched this far ahead; a packed matrix has as much room behind
// it.
inline constexpr size_t kQuantizedPrefetchBytes = 8192;

// One product over packed operands.
struct QuantizedGemmArgs {
  const uint8_t* weights = nullptr;     // 64-byte aligned
  const int8_t* activations = nullptr;  // 64-byte aligned
  const float* scales = nullptr;
  const int32_t* corrections = nullptr;
  int rows = 0;     // of activations, > 0
  int outputs = 0;  // rows of the weights
  size_t groups = 0;
  float* y = nullptr;  // [rows, outputs]
};

struct QuantizedGemmKernels {
  // Quantizes one group of activations as QuantizeActivations does.
  //                                                             out [count]
  float (*quantize)(const float* values, int count, int8_t* out);
  void (*multiply_int8)(const QuantizedGemmArgs& args, int unit_begin,
                        int unit_end);
  void (*multiply_int4)(const QuantizedGemmArgs& args, int unit_begin,
                        int unit_end);
};

// The table of the best target that this CPU supports.
QuantizedGemmKernels ChooseQuantizedGemmKernels();

// The products with AVX-512 VNNI; false, and `kernels` as it was, on a CPU
// without it.
bool UseVnniKernels(QuantizedGemmKernels* kernels);

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_QUANTIZED_GEMM_H_
