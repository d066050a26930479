// Weights that a file says as small integers in groups:
//   w = step * integer - offset,  or  w = step * (integer - zero)
// in float32. Steps, offsets and what a step is multiplied to are exact, so
// that only the difference is rounded.
//
// Such weights stay as they are where a backend can multiply by them
// (kernels/cpu/grouped_matrix.h).
//
// Constant data and pure functions.

#ifndef KERNELS_WEIGHT_GROUPS_H_
#define KERNELS_WEIGHT_GROUPS_H_

#include <cstddef>
#include <cstdint>

namespace nacre::kernels {

inline constexpr int kMaxGroupedBlock = 256;  // weights
inline constexpr int kMaxBlockGroups = 16;

// A block, some neighbours in a row, taken apart.
struct SplitBlock {
  uint8_t integers[kMaxGroupedBlock];
  // In f16. A group's step is the first, or so many times it as `steps` says.
  // Likewise its offset.
  uint16_t scale = 0;
  uint16_t offset_scale = 0;
  int8_t steps[kMaxBlockGroups];
  uint8_t offsets[kMaxBlockGroups];
};

// How the weights of a matrix are said.
struct WeightGroups {
  size_t block_bytes;  // in the file
  int block;           // weights of a block: 32 or 256
  int group;           // of a group: 16 or 32
  // Bits of an integer: 2, 4 or 8, and 0, 1 or 2 above them.
  int low_bits;
  int high_bits;
  bool has_steps;    // and, if there are offsets, has_offsets
  bool has_offsets;  // else `zero`
  int zero;
  void (*split)(const uint8_t* block, SplitBlock* out);
};

// The weights of `count` blocks.                    out [count * groups.block]
void GroupedWeights(const WeightGroups& groups, const void* blocks,
                    size_t count, float* out);

}  // namespace nacre::kernels

#endif  // KERNELS_WEIGHT_GROUPS_H_
