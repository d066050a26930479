// The quantized products with the dot products of bytes of Armv8.2 (SDOT), of
// which Highway 1.0 has none. Same cells, same sums: the bits of every other
// target with fused multiply-adds.

#include "hwy/base.h"
#include "kernels/cpu/quantized_gemm.h"

// Clang before 16 has these intrinsics only where all code may use them.
#if HWY_ARCH_ARM_A64 && \
    (HWY_COMPILER_GCC_ACTUAL || defined(__ARM_FEATURE_DOTPROD))

#include <arm_neon.h>
#include <sys/auxv.h>

#include <atomic>
#include <cstring>

#include "kernels/cpu/gemm_loop.h"
#include "kernels/cpu/quantized_runs.h"

#if HWY_COMPILER_GCC_ACTUAL
HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod")
#endif
#include "kernels/cpu/quantized_neon-inl.h"

namespace nacre::kernels {
namespace {

struct DotProducts {
  template <class Cells>
  using Sum = int32x4_t;

  static constexpr int Count(int rows) { return rows <= 2 ? 8 : 4; }

  template <class Cells, int kNibble, int kLines, int kRows, int kCount>
  static HWY_INLINE void AddBlock(const Block& block,
                                  int32x4_t (&sums)[kRows][kCount]) {
    AddStep<Cells, kNibble, kLines, 0>(block, sums);
    AddStep<Cells, kNibble, kLines, 1>(block, sums);
    AddStep<Cells, kNibble, kLines, 2>(block, sums);
    AddStep<Cells, kNibble, kLines, 3>(block, sums);
  }

  static HWY_INLINE int32x4_t Total(int32x4_t sum) { return sum; }

 private:
  template <class Cells, int kNibble, int kLines, int kStep, int kRows,
            int kCount>
  static HWY_INLINE void AddStep(const Block& block,
                                 int32x4_t (&sums)[kRows][kCount]) {
    Fetch<kLines>(block.ahead + kStep * block.ahead_step);
    const char* const from = block.weights + kStep * Cells::kStepBytes;
    for (int v = 0; v < kCount; ++v) {
      AddRows<kStep * kRows>(LoadWeights<kNibble>(Cells(), from + v * 16),
                             block.x, v, sums);
    }
    KeepOrder();
  }

  // The activations of the first row are quad kQuad of the block. Recursion
  // makes the lane a constant.
  template <int kQuad, int kRow = 0, int kRows, int kCount>
  static HWY_INLINE void AddRows(int8x16_t weights, const char* x, int v,
                                 int32x4_t (&sums)[kRows][kCount]) {
    if constexpr (kRow < kRows) {
      const int8x16_t quads =
          vld1q_s8(reinterpret_cast<const int8_t*>(x) + kQuad / 4 * 16);
      sums[kRow][v] = vdotq_laneq_s32(sums[kRow][v], weights, quads, kQuad % 4);
      AddRows<kQuad + 1, kRow + 1>(weights, x, v, sums);
    }
  }
};

}  // namespace
}  // namespace nacre::kernels
#if HWY_COMPILER_GCC_ACTUAL
HWY_POP_ATTRIBUTES
#endif

namespace nacre::kernels {

bool UseDotProductKernels(QuantizedGemmKernels* kernels) {
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) == 0) return false;
  UseProductsOf<CodeOf<DotProducts>>(kernels);
  return true;
}

}  // namespace nacre::kernels

#else

namespace nacre::kernels {

bool UseDotProductKernels(QuantizedGemmKernels*) { return false; }

}  // namespace nacre::kernels

#endif
