// Where the keys and values of a layer lie on a device, and the rows that read
// them.

#ifndef KERNELS_KV_LAYER_H_
#define KERNELS_KV_LAYER_H_

#include <cstdint>
#include <limits>

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
//   int8: four elements of a position are a word, and positions are filled up
//   with zeros to whole words. Each position of a head has two scales, float32:
//   after the keys those of keys [block_size], after the values those of values
// What a step reads of a block for all KV heads lies together: memory is read
// in long runs, wherever the blocks lie.
struct KvLayer {
  void* blocks = nullptr;
  int num_blocks = 0;
  int num_kv_heads = 0;
  int block_size = 0;
  int head_dim = 0;          // even for bf16
  DType type = DType::kF32;  // kBF16 and kInt8: rounded when stored
};

// Dimensions of a group of values.
inline constexpr int kKvGroup = 64;

// Neighbouring elements of one position's key.
constexpr int KvElementsPerWord(DType type) {
  return type == DType::kInt8 ? 4 : type == DType::kBF16 ? 2 : 1;
}

// Elements that one position has of a head's keys, and of its values, with what
// fills the last word.
constexpr int KvWidth(DType type, int head_dim) {
  const int per_word = KvElementsPerWord(type);
  return (head_dim + per_word - 1) / per_word * per_word;
}

// Elements that the scale of one position's key takes, or of its value.
constexpr int KvScaleElements(DType type) {
  return type == DType::kInt8 ? 4 : 0;
}

// Where one position is kept: block * KvLayer::block_size + offset in it.
using KvSlot = int32_t;

inline constexpr int32_t kNoTail = std::numeric_limits<int32_t>::max();

// Where one row of a ragged batch stands in its own session. A row of a token
// tree has a tail: positions of its path in slots of other blocks. (Siblings
// stand at the same positions.) All pointers are the host's.
struct RowContext {
  // Of positions below min(position + 1, tail_begin).
  const int32_t* block_table = nullptr;
  int32_t position = 0;  // the row attends to positions 0..position inclusive
  int32_t tail_begin = kNoTail;  // first position of the tail
  // [position + 1 - tail_begin]: where positions tail_begin, ... are kept.
  const KvSlot* tail_slots = nullptr;

  bool has_tail() const { return position >= tail_begin; }
};

// One position's keys and values, copied from one slot to another.
struct KvMove {
  KvSlot from = 0;
  KvSlot to = 0;
};

}  // namespace nacre::kernels

#endif  // KERNELS_KV_LAYER_H_
