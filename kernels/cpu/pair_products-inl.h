// What the products of pairs of AVX-512 have in common, of weights in 16 bits
// and in 12: the shape of a cell, and a step of it. To be included once a file,
// within the attributes of its target, after <immintrin.h>.

#include <cstdint>
#include <cstring>

#include "kernels/cpu/gemm.h"

namespace nacre::kernels {
// Of each file its own: their instructions differ.
namespace {  // NOLINT(google-build-namespaces)

constexpr int kPairLanes = 16;
constexpr size_t kCellPairs = kDenseCellInputs / 2;

struct PairCells : CellDefaults {
  static constexpr size_t kUnitOutputs = size_t{kUnitVectors} * kPairLanes;
  static constexpr size_t kStepBytes = kUnitOutputs * sizeof(uint32_t);
  static constexpr size_t kTailBytes = 0;
  static constexpr size_t kBytes = kCellPairs * kStepBytes;
  static constexpr size_t kRowBytes = kCellPairs * sizeof(uint32_t);
  static constexpr int kTileRows = 6;
  static constexpr int kTilesTogether = 4;
  static constexpr bool kFetchesOutputs = true;
  // Whole vectors: the fewer stores, the sooner the next unit's have a place.
  static void StoreOutputs(const float* sums, size_t count, float* y) {
    for (size_t i = 0; i < kUnitOutputs; i += kPairLanes) {
      const size_t left = count - std::min(count, i);
      const auto mask = static_cast<__mmask16>(
          left >= kPairLanes ? 0xFFFF : (1u << left) - 1);
      _mm512_mask_storeu_ps(y + i, mask, _mm512_load_ps(sums + i));
    }
  }
};

// The sums of a tile. In registers, since all loops over them are unrolled
// where they are a local variable; else GCC keeps a copy of all of them in
// memory.
template <int kRows>
struct PairSums {
  __m512 of[kRows][kUnitVectors];
};

inline size_t PlaceOfSums(int row, int i) {
  return size_t{kPairLanes} * (row * kUnitVectors + i);
}

template <int kRows>
HWY_INLINE void LoadSums(const float* from, PairSums<kRows>& sums) {
  HWY_UNROLL(6)
  for (int row = 0; row < kRows; ++row) {
    HWY_UNROLL(4)
    for (int i = 0; i < kUnitVectors; ++i) {
      sums.of[row][i] = _mm512_load_ps(from + PlaceOfSums(row, i));
    }
  }
}

template <int kRows>
HWY_INLINE void StoreSums(const PairSums<kRows>& sums, float* to) {
  HWY_UNROLL(6)
  for (int row = 0; row < kRows; ++row) {
    HWY_UNROLL(4)
    for (int i = 0; i < kUnitVectors; ++i) {
      _mm512_store_ps(to + PlaceOfSums(row, i), sums.of[row][i]);
    }
  }
}

// Adds two inputs of every row and output.             x [kRows] pairs of bf16
template <int kRows>
HWY_INLINE void AddPairs(const __m512i (&weights)[kUnitVectors], const char* x,
                         PairSums<kRows>& sums) {
  HWY_UNROLL(6)
  for (int row = 0; row < kRows; ++row) {
    int32_t pair;
    std::memcpy(&pair, x + sizeof(pair) * row, sizeof(pair));
    const auto v = (__m512bh)_mm512_set1_epi32(pair);
    HWY_UNROLL(4)
    for (int i = 0; i < kUnitVectors; ++i) {
      sums.of[row][i] =
          _mm512_dpbf16_ps(sums.of[row][i], (__m512bh)weights[i], v);
    }
  }
}

// The weights of a step in 16 bits, as they lie there.
inline void LoadPairs(const char* from, __m512i (&weights)[kUnitVectors]) {
  for (int i = 0; i < kUnitVectors; ++i) {
    weights[i] = _mm512_load_si512(from + size_t{64} * i);
  }
}

// Measured on Zen 4: steps of one and two rows have too little arithmetic.
inline bool FetchesFar(int rows, int tiles) { return rows > 2 || tiles > 1; }

// Fetches kLines lines each step.
template <int kRows, int kLines>
void RunPairs(const GemmSegment& s) {
  PairSums<kRows> sums;
  LoadSums(s.sums, sums);
  const char* w = s.weights;
  const char* ahead = s.ahead;
  const char* x = s.x;
  for (size_t step = 0; step < s.cells * kCellPairs; ++step) {
    FetchAhead<kLines>(ahead, s.is_far);
    ahead += s.ahead_step;
    __m512i weights[kUnitVectors];
    LoadPairs(w, weights);
    AddPairs(weights, x, sums);
    w += PairCells::kStepBytes;
    x += sizeof(uint32_t) * kRows;
  }
  StoreSums(sums, s.sums);
}

template <int kLines>
constexpr RunGemmSegment kPairRuns[PairCells::kTileRows] = {
    RunPairs<1, kLines>, RunPairs<2, kLines>, RunPairs<3, kLines>,
    RunPairs<4, kLines>, RunPairs<5, kLines>, RunPairs<6, kLines>};

}  // namespace
}  // namespace nacre::kernels
