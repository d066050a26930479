// The quantized products with NEON, for 64-bit Arm CPUs without dot products of
// bytes. Same cells, same sums: the bits of every other target with fused
// multiply-adds.
//
// Products of two bytes are added as 16-bit integers, which must not overflow:
//   int8  2 inputs are at most 2 * 128 * 127 = 32512. Widened at once.
//   int4  weights of 0 to 15: the 8 inputs of a group that one lane adds are at
//         most 8 * 15 * 127 = 15240. Widened once a group.

#include "hwy/base.h"
#include "kernels/cpu/quantized_gemm.h"

#if HWY_ARCH_ARM_A64

#include <arm_neon.h>

#include "kernels/cpu/quantized_neon-inl.h"
#include "kernels/cpu/quantized_runs.h"

namespace nacre::kernels {
namespace {

// Of every output, inputs 0 + 1 and 2 + 3 of its quads.
struct SumOfPairs {
  int32x4_t low;  // outputs 0 and 1
  int32x4_t high;
};

// Of every output, each input of its quads.
struct SumOfInputs {
  int16x8_t low;  // outputs 0 and 1
  int16x8_t high;
};

template <class Cells>
struct SumFor;
template <>
struct SumFor<Int8Cells> {
  using Type = SumOfPairs;
};
template <>
struct SumFor<Int4Cells> {
  using Type = SumOfInputs;
};

// 4 activations in every output's place.
HWY_INLINE int8x16_t Quad(const char* from) {
  return vreinterpretq_s8_s32(vdupq_n_s32(LoadAs<int32_t>(from)));
}

// Two quads of inputs.
HWY_INLINE void AddQuads(int8x16_t w0, int8x16_t w1, int8x16_t x0, int8x16_t x1,
                         SumOfPairs* sum) {
  const int16x8_t low = vmlal_s8(vmull_s8(vget_low_s8(w0), vget_low_s8(x0)),
                                 vget_low_s8(w1), vget_low_s8(x1));
  const int16x8_t high = vmlal_high_s8(vmull_high_s8(w0, x0), w1, x1);
  sum->low = vpadalq_s16(sum->low, low);
  sum->high = vpadalq_s16(sum->high, high);
}

HWY_INLINE void AddQuads(int8x16_t w0, int8x16_t w1, int8x16_t x0, int8x16_t x1,
                         SumOfInputs* sum) {
  sum->low = vmlal_s8(sum->low, vget_low_s8(w0), vget_low_s8(x0));
  sum->high = vmlal_high_s8(sum->high, w0, x0);
  sum->low = vmlal_s8(sum->low, vget_low_s8(w1), vget_low_s8(x1));
  sum->high = vmlal_high_s8(sum->high, w1, x1);
}

struct WideningProducts {
  template <class Cells>
  using Sum = typename SumFor<Cells>::Type;

  static constexpr int Count(int rows) {
    return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
  }

  template <class Cells, int kNibble, int kLines, class Sum, int kRows,
            int kCount>
  static HWY_INLINE void AddBlock(const Block& block,
                                  Sum (&sums)[kRows][kCount]) {
    const char* w = block.weights;
    const char* x = block.x;
    for (int step = 0; step < kBlockSteps; step += 2) {
      Fetch<kLines>(block.ahead + step * block.ahead_step);
      Fetch<kLines>(block.ahead + (step + 1) * block.ahead_step);
      for (int v = 0; v < kCount; ++v) {
        const int8x16_t w0 = LoadWeights<kNibble>(Cells(), w + v * 16);
        const int8x16_t w1 =
            LoadWeights<kNibble>(Cells(), w + Cells::kStepBytes + v * 16);
        for (int row = 0; row < kRows; ++row) {
          AddQuads(w0, w1, Quad(x + 4 * row), Quad(x + 4 * (kRows + row)),
                   &sums[row][v]);
        }
      }
      w += 2 * Cells::kStepBytes;
      x += 2 * 4 * kRows;
      KeepOrder();
    }
  }

  static HWY_INLINE int32x4_t Total(const SumOfPairs& sum) {
    return vpaddq_s32(sum.low, sum.high);
  }

  static HWY_INLINE int32x4_t Total(const SumOfInputs& sum) {
    return vpaddq_s32(vpaddlq_s16(sum.low), vpaddlq_s16(sum.high));
  }
};

}  // namespace

bool UseNeonKernels(QuantizedGemmKernels* kernels) {
  UseProductsOf<CodeOf<WideningProducts>>(kernels);
  return true;
}

}  // namespace nacre::kernels

#else  // HWY_ARCH_ARM_A64

namespace nacre::kernels {

bool UseNeonKernels(QuantizedGemmKernels*) { return false; }

}  // namespace nacre::kernels

#endif  // HWY_ARCH_ARM_A64
