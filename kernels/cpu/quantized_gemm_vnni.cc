// The quantized product with AVX-512 VNNI, whose dot products of 4 unsigned by
// 4 signed bytes Highway does not offer as one operation. Same cells, same
// sums: the bits of every other target with fused multiply-adds.

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

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

namespace nacre::kernels {
namespace {

// Steps that are one piece of code: in a loop around single steps GCC copies
// every accumulator every time. (Zen 5: a fifth of the time of 8 rows in int8.)
constexpr int kStepsUnrolled = 4;
constexpr int kPanels = 2;  // vectors of outputs in a unit

// The weights of one step as unsigned bytes: [quad][panel].
template <class Cells>
struct StepWeights {
  __m512i bytes[Cells::kQuadsPerStep][kPanels];
};

HWY_INLINE void LoadStep(const char* from, StepWeights<Int8Cells>* step) {
  for (int panel = 0; panel < kPanels; ++panel) {
    step->bytes[0][panel] = _mm512_load_si512(from + size_t{64} * panel);
  }
}

HWY_INLINE void LoadStep(const char* from, StepWeights<Int4Cells>* step) {
  const __m512i low = _mm512_set1_epi8(15);
  for (int panel = 0; panel < kPanels; ++panel) {
    const __m512i pairs = _mm512_load_si512(from + size_t{64} * panel);
    step->bytes[0][panel] = _mm512_and_si512(pairs, low);
    step->bytes[1][panel] = _mm512_and_si512(_mm512_srli_epi16(pairs, 4), low);
  }
}

HWY_INLINE __m512 LoadScales(const char* from) {
  const __m256i bf16 =
      _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
}

// Adds the products of one step to the sums of a group. x: the first quad of
// the first row. Fetches kLines lines.
template <class Cells, int kRows, int kLines>
HWY_INLINE void AddStep(const char* w, const char* x, const char* ahead,
                        bool is_far, __m512i (&integers)[kRows][kPanels]) {
  FetchAhead<kLines>(ahead, is_far);
  StepWeights<Cells> weights;
  LoadStep(w, &weights);
  for (int quad = 0; quad < Cells::kQuadsPerStep; ++quad) {
    HWY_UNROLL(6)
    for (int row = 0; row < kRows; ++row) {
      const __m512i v = _mm512_set1_epi32(
          LoadAs<int32_t>(x + 4 * (quad * Cells::kSteps * kRows + row)));
      HWY_UNROLL(2)
      for (int panel = 0; panel < kPanels; ++panel) {
        integers[row][panel] = _mm512_dpbusd_epi32(
            integers[row][panel], weights.bytes[quad][panel], v);
      }
    }
  }
}

struct VnniCode {
  // Measured on Zen 4, three tiles too: there the level-1 cache is better.
  template <class Cells>
  static bool FetchesFar(int rows, int tiles) {
    constexpr int kFewestRows = Cells::kQuadsPerStep == 1 ? 5 : 3;
    return tiles == 1 ? rows >= kFewestRows : tiles != 3;
  }
  template <class Cells>
  static constexpr auto kIsFar = FetchesFar<Cells>;

  template <class Cells, int kRows, int kLines>
  static void Run(const GemmSegment& s) {
    // A test in each step would cost int4 a tenth.
    if (s.is_far) {
      RunAs<Cells, kRows, kLines, true>(s);
    } else {
      RunAs<Cells, kRows, kLines, false>(s);
    }
  }

 private:
  template <class Cells, int kRows, int kLines, bool kFar>
  static void RunAs(const GemmSegment& s) {
    __m512 sums[kRows][kPanels];
    HWY_UNROLL(6)
    for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(2)
      for (int panel = 0; panel < kPanels; ++panel) {
        sums[row][panel] =
            _mm512_load_ps(s.sums + row * Cells::kUnitOutputs + panel * 16);
      }
    }
    const char* w = s.weights;
    const char* ahead = s.ahead;
    const char* x = s.x;
    for (size_t c = 0; c < s.cells; ++c, x += kRows * Cells::kRowBytes) {
      const char* const scales = x + kRows * Cells::kGroup;
      const char* const corrections = scales + kRows * sizeof(float);
      __m512i integers[kRows][kPanels];
      HWY_UNROLL(6)
      for (int row = 0; row < kRows; ++row) {
        const __m512i correction =
            _mm512_set1_epi32(LoadAs<int32_t>(corrections + size_t{4} * row));
        HWY_UNROLL(2)
        for (int panel = 0; panel < kPanels; ++panel) {
          integers[row][panel] = correction;
        }
      }
      for (int first = 0; first < Cells::kSteps; first += kStepsUnrolled) {
        HWY_UNROLL(4)
        for (int i = 0; i < kStepsUnrolled; ++i) {
          AddStep<Cells, kRows, kLines>(w, x + size_t{4} * (first + i) * kRows,
                                        ahead, kFar, integers);
          w += Cells::kStepBytes;
          ahead += s.ahead_step;
          // Keeps the compiler from moving all fetches of a cell to its front.
          HWY_FENCE;
        }
      }
      FetchAhead<1>(ahead, kFar);
      ahead += s.ahead_cell;
      HWY_UNROLL(2)
      for (int panel = 0; panel < kPanels; ++panel) {
        const __m512 scale_w = LoadScales(w + size_t{32} * panel);
        HWY_UNROLL(6)
        for (int row = 0; row < kRows; ++row) {
          const __m512 scale = _mm512_mul_ps(
              scale_w, _mm512_set1_ps(LoadAs<float>(scales + size_t{4} * row)));
          sums[row][panel] =
              _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers[row][panel]), scale,
                              sums[row][panel]);
        }
      }
      w += Cells::kTailBytes;
    }
    HWY_UNROLL(6)
    for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(2)
      for (int panel = 0; panel < kPanels; ++panel) {
        _mm512_store_ps(s.sums + row * Cells::kUnitOutputs + panel * 16,
                        sums[row][panel]);
      }
    }
  }
};

}  // namespace
}  // namespace nacre::kernels
HWY_POP_ATTRIBUTES

namespace nacre::kernels {

bool UseVnniKernels(QuantizedGemmKernels* kernels) {
  const bool supported = __builtin_cpu_supports("avx512vnni") &&
                         __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512dq") &&
                         __builtin_cpu_supports("avx512vl");
  if (!supported) return false;
  UseProductsOf<VnniCode>(kernels);
  UseVnniPacking(kernels);
  return true;
}

}  // namespace nacre::kernels

#else  // HWY_ARCH_X86

namespace nacre::kernels {

bool UseVnniKernels(QuantizedGemmKernels*) { return false; }

}  // namespace nacre::kernels

#endif  // HWY_ARCH_X86
