// The products of pairs of AVX-512 (gemm_avx512bf16.cc) of weights in 12 bits,
// which are decoded between memory and registers: VBMI looks up 64 codes in an
// instruction.

#include "hwy/base.h"
#include "kernels/cpu/coded_weights.h"
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
#include <vector>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")
#include "kernels/cpu/pair_products-inl.h"

namespace nacre::kernels {
namespace {

struct CodedCells : PairCells {
  static constexpr size_t kStepBytes = kCodedStepBytes;
  static constexpr size_t kBytes = kCellPairs * kStepBytes;
  static constexpr size_t kChunkBytes = 16 << 10;
};
static_assert(kCodedStepWeights * sizeof(uint16_t) == PairCells::kStepBytes);

// A unit's high bytes, in a register. A look-up takes the last 6 bits of a
// byte: 16 entries four times, and what lies above a code does not matter.
inline __m512i LoadHighBytes(const CodedUnit& unit) {
  return _mm512_broadcast_i32x4(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(unit.high)));
}

// 64 weights: their low bytes, and what their codes stand for. (These
// instructions compete with the products for units of the CPU. Measured on Zen
// 4: 7 in a step of 16 products cost a hundredth, 13 a seventh.)
inline void Join(__m512i low, __m512i codes, __m512i high_bytes, __m512i* out) {
  const __m512i high = _mm512_permutexvar_epi8(codes, high_bytes);
  out[0] = _mm512_unpacklo_epi8(low, high);
  out[1] = _mm512_unpackhi_epi8(low, high);
}

// The weights of a step in 16 bits.
inline void Decode(const char* from, __m512i high_bytes,
                   __m512i (&weights)[kUnitVectors]) {
  const __m512i codes = _mm512_load_si512(from + 128);
  Join(_mm512_load_si512(from), codes, high_bytes, weights);
  Join(_mm512_load_si512(from + 64), _mm512_srli_epi16(codes, 4), high_bytes,
       weights + 2);
}

// The first patch of a step that is not before `step`.
const WeightPatch* FindPatch(const CodedUnit& unit, size_t step) {
  return std::lower_bound(
      unit.patches, unit.patches_end, step,
      [](const WeightPatch& patch, size_t s) { return patch.step < s; });
}

// Puts a step's patches where they belong; returns the first of a later step.
inline const WeightPatch* Apply(const WeightPatch* patch,
                                const WeightPatch* end,
                                __m512i (&weights)[kUnitVectors]) {
  const uint32_t step = patch->step;
  for (; patch != end && patch->step == step; ++patch) {
    const __m512i value = _mm512_set1_epi16(static_cast<int16_t>(patch->value));
    for (int i = 0; i < kUnitVectors; ++i) {
      const __mmask32 mask =
          patch->place / 32 == i ? __mmask32{1} << patch->place % 32 : 0;
      weights[i] = _mm512_mask_blend_epi16(mask, weights[i], value);
    }
  }
  return patch;
}

// Fetches kLines lines each step.
template <int kRows, int kLines>
void RunCoded(const GemmSegment& s) {
  PairSums<kRows> sums;
  LoadSums(s.sums, sums);
  const CodedUnit& unit = s.coded[s.unit];
  const __m512i high_bytes = LoadHighBytes(unit);
  const char* w = s.weights;
  const char* ahead = s.ahead;
  const char* x = s.x;
  size_t step = s.first_cell * kCellPairs;
  const size_t end = step + s.cells * kCellPairs;
  const WeightPatch* patch = FindPatch(unit, step);
  const WeightPatch* const patches_end = unit.patches_end;
  size_t next_patch = patch == patches_end ? end : patch->step;
  for (; step < end; ++step) {
    FetchAhead<kLines>(ahead, s.is_far);
    ahead += s.ahead_step;
    __m512i weights[kUnitVectors];
    Decode(w, high_bytes, weights);
    if (step == next_patch) {
      patch = Apply(patch, patches_end, weights);
      next_patch = patch == patches_end ? end : patch->step;
    }
    AddPairs(weights, x, sums);
    w += CodedCells::kStepBytes;
    x += sizeof(uint32_t) * kRows;
  }
  StoreSums(sums, s.sums);
}

template <int kLines>
constexpr RunGemmSegment kCodedRuns[PairCells::kTileRows] = {
    RunCoded<1, kLines>, RunCoded<2, kLines>, RunCoded<3, kLines>,
    RunCoded<4, kLines>, RunCoded<5, kLines>, RunCoded<6, kLines>};

// Measured on Zen 4: one tile has too little arithmetic for its bytes, but for
// five rows and six.
bool CodedFetchesFar(int rows, int tiles) { return rows > 4 || tiles > 1; }

void Multiply(const GemmArgs& args, int unit_begin, int unit_end) {
  MultiplyUnits<CodedCells>(
      args, unit_begin, unit_end,
      {kCodedRuns<3>, kCodedRuns<2>, kCodedRuns<1>, CodedFetchesFar});
}

// The code of each high byte, and 0 of those without.
struct Codes {
  explicit Codes(const CodedUnit& unit) {
    alignas(64) uint8_t codes[256] = {};
    for (int code = kHighBytes - 1; code >= 0; --code) {
      codes[unit.high[code]] = static_cast<uint8_t>(code);
    }
    for (int i = 0; i < 4; ++i) {
      tables[i] = _mm512_load_si512(codes + size_t{64} * i);
    }
  }
  __m512i Of(__m512i high) const {
    return _mm512_mask_blend_epi8(
        _mm512_movepi8_mask(high),
        _mm512_permutex2var_epi8(tables[0], high, tables[1]),
        _mm512_permutex2var_epi8(tables[2], high, tables[3]));
  }

  __m512i tables[4];
};

// 64 weights: Join's inputs, and which of them have no code.
struct Split {
  Split(const uint16_t* from, const Codes& table, __m512i high_bytes) {
    const __m512i byte = _mm512_set1_epi16(0xFF);
    const __m512i a = _mm512_load_si512(from);
    const __m512i b = _mm512_load_si512(from + 32);
    low = _mm512_packus_epi16(_mm512_and_si512(a, byte),
                              _mm512_and_si512(b, byte));
    codes = table.Of(
        _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8)));
    __m512i again[2];
    Join(low, codes, high_bytes, again);
    lost = ~(_mm512_cmpeq_epi16_mask(again[0], a) |
             uint64_t{_mm512_cmpeq_epi16_mask(again[1], b)} << 32);
  }

  __m512i low;
  __m512i codes;
  uint64_t lost;  // by place
};

void Encode(const uint16_t* weights, size_t steps, const CodedUnit& unit,
            uint8_t* coded, std::vector<WeightPatch>* patches) {
  const Codes table(unit);
  const __m512i high_bytes = LoadHighBytes(unit);
  for (size_t step = 0; step < steps; ++step) {
    __m512i codes[2];
    for (int half = 0; half < 2; ++half) {
      const Split split(weights + size_t{64} * half, table, high_bytes);
      _mm512_store_si512(coded + size_t{64} * half, split.low);
      codes[half] = split.codes;
      for (uint64_t lost = split.lost; lost != 0; lost &= lost - 1) {
        const int place = 64 * half + __builtin_ctzll(lost);
        patches->push_back({static_cast<uint32_t>(step),
                            static_cast<uint16_t>(place), weights[place]});
      }
    }
    _mm512_store_si512(
        coded + 128, _mm512_or_si512(codes[0], _mm512_slli_epi16(codes[1], 4)));
    weights += kCodedStepWeights;
    coded += kCodedStepBytes;
  }
}

}  // namespace
}  // namespace nacre::kernels
HWY_POP_ATTRIBUTES

namespace nacre::kernels {

const CodedKernels* FindCodedKernels() {
  static constexpr CodedKernels kKernels = {Encode, Multiply};
  const bool has_all = __builtin_cpu_supports("avx512bf16") &&
                       __builtin_cpu_supports("avx512vbmi") &&
                       __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") &&
                       __builtin_cpu_supports("avx512vl");
  return has_all ? &kKernels : nullptr;
}

}  // namespace nacre::kernels

#else  // HWY_ARCH_X86

namespace nacre::kernels {

const CodedKernels* FindCodedKernels() { return nullptr; }

}  // namespace nacre::kernels

#endif  // HWY_ARCH_X86
