// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel Random
// Numbers: As Easy as 1, 2, 3", SC 2011). A number is a pure function of (seed,
// position, token id, purpose). So the same request draws the same noise on
// every backend, in every batch, after every restart.
//
// Thread-safe: no state.

#ifndef COMMON_PHILOX_H_
#define COMMON_PHILOX_H_

#include <array>
#include <cstdint>

#include "common/host_device.h"

namespace nacre {

// What a number decides. Two decisions never share a number: reusing one biases
// the output.
enum class NoisePurpose : uint32_t {
  kSample = 0,    // Gumbel noise of exact match, shared by draft and target.
  kDraft = 1,     // Ratio test: the draft's own draw.
  kAccept = 2,    // Ratio test: the acceptance uniform.
  kResidual = 3,  // Ratio test: the draw from the residual distribution.
  kPolicy = 4,    // Draft-length policies that toss coins.
};

// The ten-round bijection, in place, on a counter of four words under a key of
// two.
NACRE_HOST_DEVICE inline void PhiloxRounds(uint32_t (&words)[4], uint32_t key0,
                                           uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * words[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * words[2];
    words[0] = static_cast<uint32_t>(product1 >> 32) ^ words[1] ^ key0;
    words[1] = static_cast<uint32_t>(product1);
    words[2] = static_cast<uint32_t>(product0 >> 32) ^ words[3] ^ key1;
    words[3] = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
}

// words[i] = the number of token id 4 * block_index + i for the token at
// absolute `position` of a request.
NACRE_HOST_DEVICE inline void FillNoise(uint64_t seed, uint32_t position,
                                        uint32_t block_index,
                                        NoisePurpose purpose,
                                        uint32_t (&words)[4]) {
  words[0] = position;
  words[1] = block_index;
  words[2] = static_cast<uint32_t>(purpose);
  words[3] = 0;
  PhiloxRounds(words, static_cast<uint32_t>(seed),
               static_cast<uint32_t>(seed >> 32));
}

// The same by value.
using PhiloxBlock = std::array<uint32_t, 4>;

inline PhiloxBlock Philox4x32(PhiloxBlock counter,
                              std::array<uint32_t, 2> key) {
  uint32_t words[4] = {counter[0], counter[1], counter[2], counter[3]};
  PhiloxRounds(words, key[0], key[1]);
  return {words[0], words[1], words[2], words[3]};
}

inline PhiloxBlock NoiseBlock(uint64_t seed, uint32_t position,
                              uint32_t block_index, NoisePurpose purpose) {
  uint32_t words[4];
  FillNoise(seed, position, block_index, purpose, words);
  return {words[0], words[1], words[2], words[3]};
}

}  // namespace nacre

#endif  // COMMON_PHILOX_H_
