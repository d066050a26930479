// Words of the rows of a tile, brought from [row][word] to [word][row] with
// AVX-512. To be included once a file, within the attributes of its target,
// after <immintrin.h>.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace nacre::kernels {
// Of each file its own: their instructions differ.
namespace {  // NOLINT(google-build-namespaces)

constexpr size_t kWordLanes = 16;
constexpr size_t kRowWords = kWordLanes / 2;  // of a row, at a time

// Where the words of kRows rows come from, of vectors that have 8 of one row
// and 8 of the next.
template <int kRows>
struct InterleavedWords {
  static constexpr int kVectors = (kRows + 1) / 2;

  constexpr InterleavedWords() {
    for (size_t i = 0; i < kVectors * kWordLanes; ++i) {
      const size_t row = i % kRows;
      // Of two vectors, or of the third.
      from[i] = static_cast<int>(row % 4 * kRowWords + i / kRows % kRowWords);
      if (row >= 4) third[i / kWordLanes] |= uint16_t{1} << i % kWordLanes;
    }
  }

  alignas(64) int from[kVectors * kWordLanes] = {};
  uint16_t third[kVectors] = {};
};

inline __mmask16 FirstLanes(size_t count) {
  return static_cast<__mmask16>(count >= kWordLanes ? 0xFFFF
                                                    : (1u << count) - 1);
}

// `count` words of each of kRows rows, 8 at most. words(row): a __m256i.
//                                                          to [count][kRows]
template <int kRows, class Words>
HWY_INLINE void StoreInterleaved(const Words& words, size_t count,
                                 uint32_t* to) {
  static constexpr InterleavedWords<kRows> kPlaces;
  constexpr int kVectors = kPlaces.kVectors;
  __m512i rows[3] = {};
  HWY_UNROLL(3)
  for (int i = 0; i < kVectors; ++i) {
    rows[i] = _mm512_castsi256_si512(words(2 * i));
    if (2 * i + 1 < kRows) {
      rows[i] = _mm512_inserti64x4(rows[i], words(2 * i + 1), 1);
    }
  }
  size_t left = count * kRows;
  HWY_UNROLL(3)
  for (int i = 0; i < kVectors; ++i, to += kWordLanes) {
    const __m512i from = _mm512_load_si512(kPlaces.from + i * kWordLanes);
    __m512i lanes = _mm512_permutex2var_epi32(rows[0], from, rows[1]);
    if (kRows > 4) {
      lanes =
          _mm512_mask_permutexvar_epi32(lanes, kPlaces.third[i], from, rows[2]);
    }
    _mm512_mask_storeu_epi32(to, FirstLanes(left), lanes);
    left -= std::min(left, kWordLanes);
  }
}

}  // namespace
}  // namespace nacre::kernels
