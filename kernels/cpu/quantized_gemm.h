// Matrix product with weights in 8 or 4 bits (kernels/quantization.h). A unit
// is 32 outputs, a cell one group of inputs (kernels/cpu/gemm_loop.h):
//   weights      int8  [4 inputs of 16][output 32][input 4] integer + 128,
//                      unsigned
//                int4  [4][output 32][4] byte: integer + 8 of input 4 * s + i
//                      low, of input 16 + 4 * s + i high
//                and after them [output 32] bf16 scales
//   activations  [4 inputs of the group][row of the tile][input 4] int8,
//                [row] float scales and [row] int32 corrections: -offset times
//                the sum of the row's integers, which makes the weights' offset
//                of 128 or 8 good
// What is multiplied at a time lies together: loads from one offset of several
// cache lines wait for each other on some CPUs.
//
// A lane of a vector is an output, so the exact integer sum of a group needs no
// sum across lanes. It is added to the output's float32 sum with one fused
// multiply-add by the product of the two scales.

#ifndef KERNELS_CPU_QUANTIZED_GEMM_H_
#define KERNELS_CPU_QUANTIZED_GEMM_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/gemm_loop.h"

namespace nacre::kernels {

inline constexpr int kQuantizedTileRows = 6;

struct QuantizedCells : CellDefaults {
  static constexpr int kUnitOutputs = 32;
  static constexpr int kTileRows = kQuantizedTileRows;
  static constexpr int kTilesTogether = 8;
  static constexpr size_t kStepBytes = size_t{4} * kUnitOutputs;
  static constexpr size_t kTailBytes = kUnitOutputs * sizeof(uint16_t);
};

struct Int8Cells : QuantizedCells {
  static constexpr int kGroup = 64;
  static constexpr int kOffset = 128;
  static constexpr int kQuadsPerStep = 1;
  static constexpr int kSteps = 16;
  static constexpr size_t kBytes = kSteps * kStepBytes + kTailBytes;
  static constexpr size_t kRowBytes = kGroup + 8;
};

struct Int4Cells : QuantizedCells {
  static constexpr int kGroup = 32;
  static constexpr int kOffset = 8;
  static constexpr int kQuadsPerStep = 2;
  static constexpr int kSteps = 4;
  static constexpr size_t kBytes = kSteps * kStepBytes + kTailBytes;
  static constexpr size_t kRowBytes = kGroup + 8;
};

struct QuantizedGemmKernels {
  // Quantizes one group of activations as QuantizeActivations does.
  //                                                             out [count]
  float (*quantize)(const float* values, int count, int8_t* out);
  // Quantize one group of weights as QuantizeWeights does; NaN when one of them
  // is not finite.                                          values, out [group]
  float (*weights_int8)(const float* values, int8_t* out);
  float (*weights_int4)(const float* values, int8_t* out);
  void (*multiply_int8)(const GemmArgs& args, int unit_begin, int unit_end);
  void (*multiply_int4)(const GemmArgs& args, int unit_begin, int unit_end);
  // Packs tiles [tile_begin, tile_end) of x [rows, cols], quantized; null where
  // `quantize` does it.                         out [rows, cells * kRowBytes]
  PackActivationTiles pack_int8 = nullptr;
  PackActivationTiles pack_int4 = nullptr;
};

// The table of the best target that this CPU supports.
QuantizedGemmKernels ChooseQuantizedGemmKernels();
// The same without what is written for one kind of CPU.
QuantizedGemmKernels PortableQuantizedGemmKernels();

// The products with AVX-512 VNNI; false, and `kernels` as it was, on a CPU
// without it.
bool UseVnniKernels(QuantizedGemmKernels* kernels);
// Their activations; only where the CPU has it.
void UseVnniPacking(QuantizedGemmKernels* kernels);
// The same with AVX2.
bool UseAvx2Kernels(QuantizedGemmKernels* kernels);
// The same with the dot products of Armv8.2.
bool UseDotProductKernels(QuantizedGemmKernels* kernels);
// The same with NEON, which every 64-bit Arm CPU has.
bool UseNeonKernels(QuantizedGemmKernels* kernels);

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_QUANTIZED_GEMM_H_
