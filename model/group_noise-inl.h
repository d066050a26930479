// The noise of groups of tokens, compiled once for each target.

#if defined(MODEL_GROUP_NOISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MODEL_GROUP_NOISE_INL_H_
#undef MODEL_GROUP_NOISE_INL_H_
#else
#define MODEL_GROUP_NOISE_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "common/philox.h"
#include "hwy/highway.h"
#include "model/gumbel_race.h"
#include "model/logit_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::model {
namespace HWY_NAMESPACE {

constexpr int kBlocksPerGroup = kGroupTokens / kTokensPerNoiseBlock;

#if HWY_TARGET == HWY_SCALAR

// As below, block by block.
class GroupNoise {
 public:
  static constexpr int kGroups = 1;

  GroupNoise(uint64_t seed, int position) : seed_(seed), position_(position) {}

  uint32_t WhichReach(int group, const uint32_t* limits) const {
    uint32_t bits[kGroupTokens];
    Draw(group, bits);
    return *std::max_element(bits, bits + kGroupTokens) >= limits[0] ? 1 : 0;
  }

  void Draw(int group, uint32_t* bits) const {
    for (int j = 0; j < kBlocksPerGroup; ++j) {
      const PhiloxBlock block =
          NoiseBlock(seed_, static_cast<uint32_t>(position_),
                     static_cast<uint32_t>(group * kBlocksPerGroup + j),
                     NoisePurpose::kSample);
      bits = std::copy(block.begin(), block.end(), bits);
    }
  }

 private:
  uint64_t seed_;
  int position_;
};

#else

using U64 = hn::ScalableTag<uint64_t>;
using VU64 = hn::Vec<U64>;
using U32 = hn::RepartitionToNarrow<U64>;
using VU32 = hn::Vec<U32>;

// Philox of common/philox.h on several counters side by side, each word in the
// lower half of a 64-bit lane. What the upper half holds does not matter. Of
// the counter {position, block, purpose, 0} only the block differs between
// lanes. So much of the first three rounds is the same for all.
class GroupNoise {
 public:
  // Groups at a time: as many as it takes for vectors not to wait for their own
  // products.
  static constexpr int kGroups = hn::MaxLanes(U64()) > 4 ? 2 : 1;

  GroupNoise(uint64_t seed, int position) {
    std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                   static_cast<uint32_t>(seed >> 32)};
    for (std::array<uint64_t, 2>& round : keys_) {
      round = {key[0], key[1]};
      key[0] += 0x9E3779B9;
      key[1] += 0xBB67AE85;
    }
    const uint64_t p0 = uint64_t{kM0} * static_cast<uint32_t>(position);
    const uint64_t p1 =
        uint64_t{kM1} * static_cast<uint32_t>(NoisePurpose::kSample);
    first_ = High(p1) ^ keys_[0][0];
    const uint64_t word2 = High(p0) ^ keys_[0][1];
    const uint64_t q1 = uint64_t{kM1} * word2;
    const uint64_t word0 = High(q1) ^ Low(p1) ^ keys_[1][0];
    second_ = Low(p0) ^ keys_[1][1];
    const uint64_t r0 = uint64_t{kM0} * word0;
    third_ = {Low(q1) ^ keys_[2][0], High(r0) ^ keys_[2][1], Low(r0)};
  }

  // Bit i: whether any noise of group `group` + i is at least limits[i].
  //                                                          limits [kGroups]
  HWY_INLINE uint32_t WhichReach(int group, const uint32_t* limits) const {
    const U32 d32;
    VU64 words[kGroups * kVectors][4];
    DrawWords<kGroups>(group, words);
    uint32_t which = 0;
    for (int i = 0; i < kGroups; ++i) {
      VU32 largest = Largest(words[i * kVectors]);
      for (size_t v = 1; v < kVectors; ++v) {
        largest = hn::Max(largest, Largest(words[i * kVectors + v]));
      }
      // The upper halves reach the largest number once in 2^32: then a group is
      // looked at in vain.
      const VU32 limit =
          hn::BitCast(d32, hn::Set(U64(), limits[i] | 0xFFFFFFFF00000000u));
      const auto reaches = hn::Eq(hn::Max(largest, limit), largest);
      which |= hn::AllFalse(d32, reaches) ? 0u : 1u << i;
    }
    return which;
  }

  // bits[i] = the noise of token i of the group.            [kGroupTokens]
  void Draw(int group, uint32_t* bits) const {
    const U64 d;
    VU64 words[kVectors][4];
    DrawWords<1>(group, words);
    HWY_ALIGN uint64_t lanes[4][hn::MaxLanes(U64())];
    for (const auto& vector : words) {
      for (size_t k = 0; k < 4; ++k) hn::Store(vector[k], d, lanes[k]);
      for (size_t j = 0; j < hn::Lanes(d); ++j) {
        for (size_t k = 0; k < 4; ++k) {
          *bits++ = static_cast<uint32_t>(lanes[k][j]);
        }
      }
    }
  }

 private:
  static constexpr uint32_t kM0 = 0xD2511F53;
  static constexpr uint32_t kM1 = 0xCD9E8D57;
  static constexpr size_t kVectors =
      kBlocksPerGroup / hn::MaxLanes(U64());  // of a group

  static uint64_t High(uint64_t x) { return x >> 32; }
  static uint64_t Low(uint64_t x) { return x & 0xFFFFFFFFu; }

  static HWY_INLINE VU64 Product(VU64 word, uint32_t factor) {
    const U32 d32;
    return hn::MulEven(hn::BitCast(d32, word), hn::Set(d32, factor));
  }

  static HWY_INLINE VU32 Largest(const VU64 (&words)[4]) {
    const U32 d32;
    return hn::Max(
        hn::Max(hn::BitCast(d32, words[0]), hn::BitCast(d32, words[1])),
        hn::Max(hn::BitCast(d32, words[2]), hn::BitCast(d32, words[3])));
  }

  // words [vector][word of the counter]
  template <int kCount>
  HWY_INLINE void DrawWords(int group,
                            VU64 (&words)[kCount * kVectors][4]) const {
    const U64 d;
    VU64 blocks = hn::Add(
        lanes_, hn::Set(d, static_cast<uint64_t>(group) * kBlocksPerGroup));
    for (VU64(&w)[4] : words) {
      const VU64 p = Product(hn::Xor(blocks, hn::Set(d, first_)), kM0);
      const VU64 q =
          Product(hn::Xor(hn::ShiftRight<32>(p), hn::Set(d, second_)), kM1);
      w[0] = hn::Xor(hn::ShiftRight<32>(q), hn::Set(d, third_[0]));
      w[1] = q;
      w[2] = hn::Xor(p, hn::Set(d, third_[1]));
      w[3] = hn::Set(d, third_[2]);
      blocks = hn::Add(blocks, hn::Set(d, hn::Lanes(d)));
    }
    Rounds<3, kCount * kVectors>(words);
  }

  // By recursion: in a loop the words would go through memory every round.
  template <size_t kRound, size_t kCount>
  HWY_INLINE void Rounds(VU64 (&words)[kCount][4]) const {
    if constexpr (kRound < 10) {
      const U64 d;
      const VU64 key0 = hn::Set(d, keys_[kRound][0]);
      const VU64 key1 = hn::Set(d, keys_[kRound][1]);
      for (VU64(&w)[4] : words) {
        const VU64 p0 = Product(w[0], kM0);
        const VU64 p1 = Product(w[2], kM1);
        w[0] = hn::Xor3(hn::ShiftRight<32>(p1), w[1], key0);
        w[1] = p1;
        w[2] = hn::Xor3(hn::ShiftRight<32>(p0), w[3], key1);
        w[3] = p0;
      }
      Rounds<kRound + 1, kCount>(words);
    }
  }

  // The keys of all rounds, and what the first three have in common.
  std::array<std::array<uint64_t, 2>, 10> keys_;
  uint64_t first_;
  uint64_t second_;
  std::array<uint64_t, 3> third_;
  const VU64 lanes_ = hn::Iota(U64(), 0);
};

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace nacre::model
HWY_AFTER_NAMESPACE();

#endif  // MODEL_GROUP_NOISE_INL_H_
