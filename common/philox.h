// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel Random
// Numbers: As Easy as 1, 2, 3", SC 2011). A number is a pure function of
// (seed, position, token id, purpose), so the same request draws the same noise
// on every backend, in every batch, after every restart.
//
// Thread-safe: no state.

#ifndef COMMON_PHILOX_H_
#define COMMON_PHILOX_H_

#include <array>
#include <cstdint>

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

using PhiloxBlock = std::array<uint32_t, 4>;

// The ten-round bijection on `counter` under `key`.
inline PhiloxBlock Philox4x32(PhiloxBlock counter,
                              std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// The four numbers of token ids 4 * block_index .. 4 * block_index + 3 for the
// token at absolute `position` of a request.
inline PhiloxBlock NoiseBlock(uint64_t seed, uint32_t position,
                              uint32_t block_index, NoisePurpose purpose) {
  return Philox4x32(
      {position, block_index, static_cast<uint32_t>(purpose), 0},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

}  // namespace nacre

#endif  // COMMON_PHILOX_H_
