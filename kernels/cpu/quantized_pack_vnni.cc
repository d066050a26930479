// Activations of the quantized product, quantized and packed with AVX-512: what
// one row at a time takes as long as a product of few outputs.

#include "hwy/base.h"
#include "kernels/cpu/quantized_gemm.h"

#if HWY_ARCH_X86

// GCC's own intrinsics, inlined: https://gcc.gnu.org/PR105593.
#if HWY_COMPILER_GCC && !HWY_COMPILER_CLANG
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cpu/row_tiling.h"
#include "kernels/quantization.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
#include "kernels/cpu/interleave_rows-inl.h"

namespace nacre::kernels {
namespace {

// A group of activations as QuantizeActivations makes it.
template <class Cells>
struct QuantizedGroup {
  static constexpr int kVectors = Cells::kGroup / 16;

  // The first `count` of the group are there, the rest are zeros.
  HWY_INLINE void Set(const float* values, size_t count) {
    __m512 v[kVectors];
    __m512i largest_bits = _mm512_setzero_si512();
    HWY_UNROLL(4)
    for (int i = 0; i < kVectors; ++i) {
      const size_t first = size_t{16} * i;
      v[i] = _mm512_maskz_loadu_ps(FirstLanes(count - std::min(count, first)),
                                   values + first);
      // Of magnitudes the order of floats is that of their bits, and what is
      // not finite is above all others.
      largest_bits = _mm512_max_epu32(
          largest_bits, _mm512_and_si512(_mm512_castps_si512(v[i]),
                                         _mm512_set1_epi32(0x7FFFFFFF)));
    }
    const float largest = _mm_cvtss_f32(_mm_castsi128_ps(
        _mm_cvtsi32_si128(_mm512_reduce_max_epu32(largest_bits))));
    const bool is_finite = largest <= std::numeric_limits<float>::max();
    const bool is_zero = !is_finite || largest < kSmallestActivation;
    const __m512 inverse = _mm512_set1_ps(is_zero ? 0.0f : 127.0f / largest);
    // What is not finite is not multiplied.
    const __mmask16 keep = is_zero ? 0 : 0xFFFF;
    __m512i sums = _mm512_setzero_si512();
    __m128i bytes[kVectors];
    HWY_UNROLL(4)
    for (int i = 0; i < kVectors; ++i) {
      const __m512i integers =
          _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(v[i], inverse));
      sums = _mm512_add_epi32(sums, integers);
      bytes[i] = _mm512_cvtsepi32_epi8(integers);
    }
    HWY_UNROLL(2)
    for (int i = 0; i < kVectors / 2; ++i) {
      words[i] = _mm256_set_m128i(bytes[2 * i + 1], bytes[2 * i]);
    }
    scale = !is_finite ? std::numeric_limits<float>::quiet_NaN()
            : is_zero  ? 0.0f
                       : largest / 127.0f;
    correction = -Cells::kOffset * _mm512_reduce_add_epi32(sums);
  }

  __m256i words[kVectors / 2];
  float scale;
  int32_t correction;
};

// x [kRows, cols] to out, cells of kRows rows.
template <class Cells, int kRows>
void PackTile(const float* x, size_t cols, char* out) {
  constexpr size_t kGroup = static_cast<size_t>(Cells::kGroup);
  for (size_t k = 0; k < cols; k += kGroup, out += kRows * Cells::kRowBytes) {
    QuantizedGroup<Cells> groups[kRows];
    HWY_UNROLL(6)
    for (int row = 0; row < kRows; ++row) {
      groups[row].Set(x + row * cols + k, std::min(kGroup, cols - k));
    }
    auto* quads = reinterpret_cast<uint32_t*>(out);
    HWY_UNROLL(2)
    for (int i = 0; i < Cells::kGroup / 32; ++i, quads += kRows * kRowWords) {
      StoreInterleaved<kRows>([&](int row) { return groups[row].words[i]; },
                              kRowWords, quads);
    }
    auto* const scales = reinterpret_cast<float*>(out + kRows * kGroup);
    auto* const corrections = reinterpret_cast<int32_t*>(scales + kRows);
    HWY_UNROLL(6)
    for (int row = 0; row < kRows; ++row) {
      scales[row] = groups[row].scale;
      corrections[row] = groups[row].correction;
    }
  }
}

template <class Cells>
void PackTiles(const float* x, const RowTiling& tiling, int tile_begin,
               int tile_end, int cols, void* packed) {
  static constexpr decltype(&PackTile<Cells, 1>) kPack[kQuantizedTileRows] = {
      PackTile<Cells, 1>, PackTile<Cells, 2>, PackTile<Cells, 3>,
      PackTile<Cells, 4>, PackTile<Cells, 5>, PackTile<Cells, 6>};
  const size_t inputs = static_cast<size_t>(cols);
  const size_t row_bytes =
      (inputs + Cells::kGroup - 1) / Cells::kGroup * Cells::kRowBytes;
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    const size_t row = static_cast<size_t>(tiling.begin(tile));
    kPack[tiling.size(tile) - 1](x + row * inputs, inputs,
                                 static_cast<char*>(packed) + row * row_bytes);
  }
}

}  // namespace
}  // namespace nacre::kernels
HWY_POP_ATTRIBUTES

namespace nacre::kernels {

void UseVnniPacking(QuantizedGemmKernels* kernels) {
  kernels->pack_int8 = PackTiles<Int8Cells>;
  kernels->pack_int4 = PackTiles<Int4Cells>;
}

}  // namespace nacre::kernels

#else  // HWY_ARCH_X86

namespace nacre::kernels {

void UseVnniPacking(QuantizedGemmKernels*) {}

}  // namespace nacre::kernels

#endif  // HWY_ARCH_X86
