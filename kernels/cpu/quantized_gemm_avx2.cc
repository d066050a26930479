// The quantized products with AVX2, for CPUs without dot products of bytes.
// Same cells, same sums: the bits of every other target with fused
// multiply-adds.
//
// AVX2 multiplies unsigned by signed bytes and adds pairs of products as 16-bit
// integers, which must not overflow:
//   int8  the magnitude of a weight times the activation with the weight's
//         sign: a pair is at most 2 * 128 * 127 = 32512. Widened at once.
//   int4  weights of 0 to 15 times activations: a pair is at most
//         2 * 15 * 127 = 3810, the 8 pairs of a group 30480. Widened once a
//         group.

#include "hwy/base.h"
#include "kernels/cpu/quantized_gemm.h"

#if HWY_ARCH_X86

// GCC's own intrinsics, inlined: https://gcc.gnu.org/PR105593.
#if HWY_COMPILER_GCC && !HWY_COMPILER_CLANG
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "kernels/cpu/gemm_loop.h"
#include "kernels/cpu/quantized_runs.h"

HWY_PUSH_ATTRIBUTES("avx2,fma")
#include "kernels/cpu/quantized_cells-inl.h"

namespace nacre::kernels {
namespace {

constexpr int kStepUnit = 4;  // steps that are one piece of code

HWY_INLINE __m256i Load(const char* from) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
}

// 4 activations in every output's place.
HWY_INLINE __m256i Quad(const char* from) {
  return _mm256_set1_epi32(LoadAs<int32_t>(from));
}

template <int kLines>
HWY_INLINE void Fetch(const char* ahead) {
  for (int line = 0; line < kLines; ++line) {
    _mm_prefetch(ahead + size_t{64} * line, _MM_HINT_T0);
  }
}

// Adds the products of one step with kCount vectors of outputs. x: the first
// quad of the first row.
template <int kRows, int kCount>
HWY_INLINE void AddStep(Int8Cells, const char* w, const char* x,
                        __m256i (&integers)[kRows][kCount]) {
  const __m256i offset = _mm256_set1_epi8(-128);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int v = 0; v < kCount; ++v) {
    const __m256i weights = _mm256_xor_si256(Load(w + size_t{32} * v), offset);
    const __m256i magnitudes = _mm256_abs_epi8(weights);
    for (int row = 0; row < kRows; ++row) {
      const __m256i pairs = _mm256_maddubs_epi16(
          magnitudes, _mm256_sign_epi8(Quad(x + size_t{4} * row), weights));
      integers[row][v] =
          _mm256_add_epi32(integers[row][v], _mm256_madd_epi16(pairs, ones));
    }
  }
}

template <int kRows, int kCount>
HWY_INLINE void AddStep(Int4Cells, const char* w, const char* x,
                        __m256i (&integers)[kRows][kCount]) {
  const __m256i mask = _mm256_set1_epi8(15);
  for (int v = 0; v < kCount; ++v) {
    const __m256i both = Load(w + size_t{32} * v);
    const __m256i low = _mm256_and_si256(both, mask);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
    for (int row = 0; row < kRows; ++row) {
      const __m256i first =
          _mm256_maddubs_epi16(low, Quad(x + size_t{4} * row));
      const __m256i second = _mm256_maddubs_epi16(
          high, Quad(x + size_t{4} * (Int4Cells::kSteps * kRows + row)));
      integers[row][v] =
          _mm256_add_epi16(integers[row][v], _mm256_add_epi16(first, second));
    }
  }
}

// The 32-bit sums of a group.
HWY_INLINE __m256i GroupSum(Int8Cells, __m256i integers, const char*) {
  return integers;  // of signed weights: nothing to correct
}

HWY_INLINE __m256i GroupSum(Int4Cells, __m256i integers,
                            const char* correction) {
  return _mm256_add_epi32(_mm256_madd_epi16(integers, _mm256_set1_epi16(1)),
                          Quad(correction));
}

HWY_INLINE __m256 LoadScales(const char* from) {
  const __m128i bf16 = _mm_load_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}

struct Avx2Outputs {
  static constexpr int kVectors = 4;  // of 8 outputs

  // 16 registers hold all sums.
  static constexpr int Count(int rows) {
    return rows <= 2 ? kVectors : rows <= 4 ? 2 : 1;
  }

  template <class Cells, int kRows, int kCount, int kLines>
  static HWY_INLINE void Add(const GemmSegment& s, const char* cell,
                             const char* x, const char* ahead, int first) {
    __m256i integers[kRows][kCount];
    for (int row = 0; row < kRows; ++row) {
      for (int v = 0; v < kCount; ++v) {
        integers[row][v] = _mm256_setzero_si256();
      }
    }
    const char* w = cell + size_t{32} * first;
    const char* quads = x;
    for (int begin = 0; begin < Cells::kSteps; begin += kStepUnit) {
      for (int i = 0; i < kStepUnit; ++i) {
        Fetch<kLines>(ahead);
        AddStep(Cells(), w, quads, integers);
        w += Cells::kStepBytes;
        quads += size_t{4} * kRows;
        ahead += s.ahead_step;
        // Keeps the compiler from moving all fetches of a cell to its front.
        HWY_FENCE;
      }
    }
    const char* const scales_w = cell + Cells::kSteps * Cells::kStepBytes;
    const char* const scales = x + kRows * Cells::kGroup;
    const char* const corrections = scales + kRows * sizeof(float);
    for (int v = 0; v < kCount; ++v) {
      const __m256 scale_w = LoadScales(scales_w + size_t{16} * (first + v));
      for (int row = 0; row < kRows; ++row) {
        float* const sum = s.sums + row * Cells::kUnitOutputs + (first + v) * 8;
        const __m256 scale = _mm256_mul_ps(
            scale_w, _mm256_set1_ps(LoadAs<float>(scales + size_t{4} * row)));
        const __m256i group =
            GroupSum(Cells(), integers[row][v], corrections + size_t{4} * row);
        _mm256_store_ps(sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(group), scale,
                                             _mm256_load_ps(sum)));
      }
    }
  }
};

HWY_POP_ATTRIBUTES
}  // namespace

bool UseAvx2Kernels(QuantizedGemmKernels* kernels) {
  const bool supported =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (supported) UseProductsOf<CellWalk<Avx2Outputs>>(kernels);
  return supported;
}

}  // namespace nacre::kernels

#else  // HWY_ARCH_X86

namespace nacre::kernels {

bool UseAvx2Kernels(QuantizedGemmKernels*) { return false; }

}  // namespace nacre::kernels

#endif  // HWY_ARCH_X86
