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
#include "kernels/cpu/interleave_rows-inl.h"
#include "kernels/cpu/pair_products-inl.h"

namespace nacre::kernels {
namespace {

// x [kRows, cols] to out [cells][4][kRows].
template <int kRows>
void PackTile(const float* x, size_t cols, uint32_t* out) {
  const size_t pairs =
      (cols + kDenseCellInputs - 1) / kDenseCellInputs * kCellPairs;
  for (size_t pair = 0; pair < pairs; pair += kRowWords) {
    const __mmask16 mask = FirstLanes(cols - std::min(cols, 2 * pair));
    const float* const from = x + 2 * pair;
    StoreInterleaved<kRows>(
        [&](int row) {
          return (__m256i)_mm512_cvtneps_pbh(
              _mm512_maskz_loadu_ps(mask, from + row * cols));
        },
        std::min(kRowWords, pairs - pair), out + pair * kRows);
  }
}

void PackActivations(const float* x, const RowTiling& tiling, int tile_begin,
                     int tile_end, int cols, void* packed) {
  static constexpr decltype(&PackTile<1>) kPack[] = {PackTile<1>, PackTile<2>,
                                                     PackTile<3>, PackTile<4>,
                                                     PackTile<5>, PackTile<6>};
  const size_t inputs = static_cast<size_t>(cols);
  const size_t pairs =
      (inputs + kDenseCellInputs - 1) / kDenseCellInputs * kCellPairs;
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    const size_t row = static_cast<size_t>(tiling.begin(tile));
    kPack[tiling.size(tile) - 1](x + row * inputs, inputs,
                                 static_cast<uint32_t*>(packed) + row * pairs);
  }
}

void Multiply(const GemmArgs& args, int unit_begin, int unit_end) {
  MultiplyUnits<PairCells>(
      args, unit_begin, unit_end,
      {kPairRuns<4>, kPairRuns<2>, kPairRuns<1>, FetchesFar});
}

}  // namespace
}  // namespace nacre::kernels
HWY_POP_ATTRIBUTES

namespace nacre::kernels {

bool UsePairProducts(GemmKernels* kernels) {
  if (kernels->lanes != kPairLanes ||
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
  kernels->coded = FindCodedKernels();
  return true;
}

}  // namespace nacre::kernels

#else  // HWY_ARCH_X86

namespace nacre::kernels {

bool UsePairProducts(GemmKernels*) { return false; }

}  // namespace nacre::kernels

#endif  // HWY_ARCH_X86
