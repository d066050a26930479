// Where the keys and values of a layer lie on a device, and the rows that read
// them.

#ifndef KERNELS_KV_LAYER_H_
#define KERNELS_KV_LAYER_H_

#include <cstdint>

#include "kernels/dtype.h"

namespace nacre::kernels {

// One layer's paged KV cache. Position p of a session lives in block
// block_table[p / block_size] at offset p % block_size.
//   blocks  [num_blocks, num_kv_heads] of
//     keys    [head_dim, block_size]: a lane of a vector is a position when
//             scores are computed; of bf16 [head_dim / 2, block_size, 2], so
//             that a 32-bit word is two elements of one position
//     values  [head_dim / 64] groups of dimensions, [block_size, 64] each; the
//             last group has what is left
// What a step reads of a block for all KV heads lies together: memory is read
// in long runs, wherever the blocks lie.
struct KvLayer {
  void* blocks = nullptr;
  int num_blocks = 0;
  int num_kv_heads = 0;
  int block_size = 0;
  int head_dim = 0;          // even for bf16
  DType type = DType::kF32;  // or kBF16: rounded when stored
};

// Dimensions of a group of values.
inline constexpr int kKvGroup = 64;

// Neighbouring elements of one position's key.
constexpr int KvElementsPerWord(DType type) {
  return type == DType::kBF16 ? 2 : 1;
}

// Where one row of a ragged batch stands in its own session.
struct RowContext {
  const int32_t* block_table = nullptr;  // host, >= position/block_size + 1
  int32_t position = 0;  // the row attends to positions 0..position inclusive
};

}  // namespace nacre::kernels

#endif  // KERNELS_KV_LAYER_H_
