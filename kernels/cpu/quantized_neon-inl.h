// How the quantized products of 64-bit Arm walk through cells, with dot
// products of bytes and without. A file that includes this does so once, inside
// the attributes of its instructions and after <arm_neon.h>, and brings
//   struct Products {
//     // Sums of 4 outputs in a group, zero at first.
//     template <class Cells> using Sum = ...;
//     // Vectors of 4 outputs that pass at a time: 32 registers hold all sums.
//     static constexpr int Count(int rows);
//     // Adds what a block reads. Fetches kLines lines each step.
//     template <class Cells, int kNibble, int kLines, int kRows, int kCount>
//     static void AddBlock(const Block& block,
//                          Sum<Cells> (&sums)[kRows][kCount]);
//     static int32x4_t Total(sum);
//   };

#ifndef KERNELS_CPU_QUANTIZED_NEON_INL_H_
#define KERNELS_CPU_QUANTIZED_NEON_INL_H_

#include <atomic>

#include "hwy/base.h"
#include "kernels/cpu/gemm_loop.h"
#include "kernels/cpu/quantized_cells-inl.h"
#include "kernels/cpu/quantized_gemm.h"
#include "kernels/cpu/quantized_runs.h"

namespace nacre::kernels {
namespace {

constexpr int kBlockSteps = 4;  // whose activations fill one vector a row

// Some steps of some outputs.
struct Block {
  const char* weights;  // of the first step and output
  const char* x;        // [step][row] of 4 activations
  const char* ahead;    // to fetch, ahead_step bytes further each step
  size_t ahead_step;
};

template <int kLines>
HWY_INLINE void Fetch(const char* ahead) {
  for (int line = 0; line < kLines; ++line) {
    __builtin_prefetch(ahead + line * 64);
  }
}

// Keeps the compiler from moving all loads and fetches of a cell to its front;
// no code. (HWY_FENCE does nothing on Arm.)
HWY_INLINE void KeepOrder() {
  std::atomic_signal_fence(std::memory_order_acq_rel);
}

// 4 weights of each of 4 outputs as signed bytes. A sign bit turned over takes
// int8's offset away; int4 keeps its own.
template <int kNibble>
HWY_INLINE int8x16_t LoadWeights(Int8Cells, const char* from) {
  const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const uint8_t*>(from));
  return vreinterpretq_s8_u8(veorq_u8(bytes, vdupq_n_u8(128)));
}

template <int kNibble>
HWY_INLINE int8x16_t LoadWeights(Int4Cells, const char* from) {
  const uint8x16_t pairs = vld1q_u8(reinterpret_cast<const uint8_t*>(from));
  return vreinterpretq_s8_u8(kNibble == 0 ? vandq_u8(pairs, vdupq_n_u8(15))
                                          : vshrq_n_u8(pairs, 4));
}

HWY_INLINE int32x4_t Correct(Int8Cells, int32x4_t total, const char*) {
  return total;
}

HWY_INLINE int32x4_t Correct(Int4Cells, int32x4_t total,
                             const char* correction) {
  return vaddq_s32(total, vdupq_n_s32(LoadAs<int32_t>(correction)));
}

HWY_INLINE float32x4_t LoadScales(const char* from) {
  const uint16x4_t bf16 = vld1_u16(reinterpret_cast<const uint16_t*>(from));
  return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(bf16), 16));
}

template <class Products>
struct NeonOutputs {
  static constexpr int kVectors = 8;  // of 4 outputs

  static constexpr int Count(int rows) { return Products::Count(rows); }

  template <class Cells, int kRows, int kCount, int kLines>
  static HWY_INLINE void Add(const GemmSegment& s, const char* cell,
                             const char* x, const char* ahead, int first) {
    using Sum = typename Products::template Sum<Cells>;
    Sum sums[kRows][kCount];
    for (int row = 0; row < kRows; ++row) {
      for (int v = 0; v < kCount; ++v) sums[row][v] = Sum();
    }
    Block block = {cell + first * 16, x, ahead, s.ahead_step};
    for (int begin = 0; begin < Cells::kSteps; begin += kBlockSteps) {
      Products::template AddBlock<Cells, 0, kLines>(block, sums);
      if constexpr (Cells::kQuadsPerStep == 2) {
        Block high = block;
        high.x += 4 * Cells::kSteps * kRows;
        Products::template AddBlock<Cells, 1, 0>(high, sums);
      }
      block.weights += kBlockSteps * Cells::kStepBytes;
      block.x += 4 * kBlockSteps * kRows;
      block.ahead += kBlockSteps * s.ahead_step;
    }
    const char* const scales_w = cell + Cells::kSteps * Cells::kStepBytes;
    const char* const scales = x + kRows * Cells::kGroup;
    const char* const corrections = scales + kRows * sizeof(float);
    for (int v = 0; v < kCount; ++v) {
      const float32x4_t scale_w = LoadScales(scales_w + (first + v) * 8);
      for (int row = 0; row < kRows; ++row) {
        float* const sum = s.sums + row * Cells::kUnitOutputs + (first + v) * 4;
        const float32x4_t scale =
            vmulq_n_f32(scale_w, LoadAs<float>(scales + 4 * row));
        const int32x4_t group = Correct(Cells(), Products::Total(sums[row][v]),
                                        corrections + 4 * row);
        vst1q_f32(sum, vfmaq_f32(vld1q_f32(sum), vcvtq_f32_s32(group), scale));
      }
    }
  }
};

template <class Products>
using CodeOf = CellWalk<NeonOutputs<Products>>;

}  // namespace
}  // namespace nacre::kernels

#endif  // KERNELS_CPU_QUANTIZED_NEON_INL_H_
