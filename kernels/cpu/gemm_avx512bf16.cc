// The product of bf16 weights with rounded inputs by AVX-512's products of
// pairs, twice as many multiplications an instruction as with float32.

#include "hwy/base.h"
#include "kernels/cpu/gemm.h"

#if HWY_ARCH_X86

// GCC's own intrinsics, inlined: https://gcc.gnu.org/PR105593.
#if HWY_COMPILER_GCC && !HWY_COMPILER_CLANG
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace nacre::kernels {
namespace {

constexpr int kLanes = 16;
constexpr size_t kPairs = kDenseCellInputs / 2;  // of a cell

struct PairCells {
  static constexpr size_t kUnitOutputs = size_t{kUnitVectors} * kLanes;
  static constexpr size_t kStepBytes = kUnitOutputs * sizeof(uint32_t);
  static constexpr size_t kTailBytes = 0;
  static constexpr size_t kBytes = kPairs * kStepBytes;
  static constexpr size_t kRowBytes = kPairs * sizeof(uint32_t);
  static constexpr int kTileRows = 6;
  static constexpr int kTilesTogether = 4;
};

// x [kRows, cols] to out [cells][4][kRows].
template <int kRows>
void PackTile(const float* x, size_t cols, uint32_t* out) {
  const size_t pairs =
      (cols + kDenseCellInputs - 1) / kDenseCellInputs * kPairs;
  for (int row = 0; row < kRows; ++row, x += cols) {
    for (size_t pair = 0; pair < pairs; pair += kLanes / 2) {
      const size_t left = cols - std::min(cols, 2 * pair);
      const auto mask =
          static_cast<__mmask16>(left >= kLanes ? 0xFFFF : (1u << left) - 1);
      alignas(32) uint32_t words[kLanes / 2];
      _mm256_store_si256(reinterpret_cast<__m256i*>(words),
                         (__m256i)_mm512_cvtneps_pbh(
                             _mm512_maskz_loadu_ps(mask, x + 2 * pair)));
      uint32_t* to = out + pair * kRows + row;
      const size_t count = std::min<size_t>(kLanes / 2, pairs - pair);
      for (size_t i = 0; i < count; ++i, to += kRows) *to = words[i];
    }
  }
}

void PackActivations(const float* x, const RowTiling& tiling, int tile_begin,
                     int tile_end, int cols, void* packed) {
  static constexpr decltype(&PackTile<1>) kPack[] = {PackTile<1>, PackTile<2>,
                                                     PackTile<3>, PackTile<4>,
                                                     PackTile<5>, PackTile<6>};
  const size_t inputs = static_cast<size_t>(cols);
  const size_t pairs =
      (inputs + kDenseCellInputs - 1) / kDenseCellInputs * kPairs;
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    const size_t row = static_cast<size_t>(tiling.begin(tile));
    kPack[tiling.size(tile) - 1](x + row * inputs, inputs,
                                 static_cast<uint32_t*>(packed) + row * pairs);
  }
}

// kLines lines of weights to come are fetched each step.
template <int kRows, int kLines>
void RunSegment(const GemmSegment& s) {
  __m512 sums[kRows][kUnitVectors];
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kUnitVectors; ++i) {
      sums[row][i] =
          _mm512_load_ps(s.sums + size_t{kLanes} * (row * kUnitVectors + i));
    }
  }
  const char* w = s.weights;
  const char* ahead = s.ahead;
  const char* x = s.x;
  for (size_t step = 0; step < s.cells * kPairs; ++step) {
    for (int line = 0; line < kLines; ++line) {
      _mm_prefetch(ahead + size_t{64} * line, _MM_HINT_T0);
    }
    ahead += s.ahead_step;
    __m512i weights[kUnitVectors];
    for (int i = 0; i < kUnitVectors; ++i) {
      weights[i] = _mm512_load_si512(w + size_t{64} * i);
    }
    for (int row = 0; row < kRows; ++row) {
      int32_t pair;
      std::memcpy(&pair, x + size_t{4} * row, sizeof(pair));
      const auto v = (__m512bh)_mm512_set1_epi32(pair);
      for (int i = 0; i < kUnitVectors; ++i) {
        sums[row][i] = _mm512_dpbf16_ps(sums[row][i], (__m512bh)weights[i], v);
      }
    }
    w += PairCells::kStepBytes;
    x += size_t{4} * kRows;
  }
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kUnitVectors; ++i) {
      _mm512_store_ps(s.sums + size_t{kLanes} * (row * kUnitVectors + i),
                      sums[row][i]);
    }
  }
}

template <int kLines>
constexpr RunGemmSegment kRuns[PairCells::kTileRows] = {
    RunSegment<1, kLines>, RunSegment<2, kLines>, RunSegment<3, kLines>,
    RunSegment<4, kLines>, RunSegment<5, kLines>, RunSegment<6, kLines>};

void Multiply(const GemmArgs& args, int unit_begin, int unit_end) {
  MultiplyUnits<PairCells>(args, unit_begin, unit_end,
                           {kRuns<4>, kRuns<2>, kRuns<1>});
}

}  // namespace
}  // namespace nacre::kernels
HWY_POP_ATTRIBUTES

namespace nacre::kernels {

bool UsePairProducts(GemmKernels* kernels) {
  if (kernels->lanes != kLanes ||
      kernels->tile_rows_bf16 != PairCells::kTileRows ||
      !__builtin_cpu_supports("avx512bf16") ||
      !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return false;
  }
  kernels->pack_rounded = PackActivations;
  kernels->multiply_rounded = Multiply;
  kernels->has_pair_products = true;
  return true;
}

}  // namespace nacre::kernels

#else  // HWY_ARCH_X86

namespace nacre::kernels {

bool UsePairProducts(GemmKernels*) { return false; }

}  // namespace nacre::kernels

#endif  // HWY_ARCH_X86
