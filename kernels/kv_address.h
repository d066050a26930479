// Where a position's key and value lie in a paged layer. Indices count elements
// of KvLayer::type from KvLayer::blocks.

#ifndef KERNELS_KV_ADDRESS_H_
#define KERNELS_KV_ADDRESS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/kv_layer.h"

namespace nacre::kernels {

inline int KvWidth(const KvLayer& layer) {
  return KvWidth(layer.type, layer.head_dim);
}

// Elements of the keys with their scales, and as many of the values, of one KV
// head in a block.
inline size_t KvHalfElements(const KvLayer& layer) {
  return static_cast<size_t>(layer.block_size) *
         (KvWidth(layer) + KvScaleElements(layer.type));
}

// Index of what block `block` holds for one KV head: keys first.
inline size_t KvBlockIndex(const KvLayer& layer, int32_t block, int kv_head) {
  return (static_cast<size_t>(block) * layer.num_kv_heads + kv_head) * 2 *
         KvHalfElements(layer);
}

// Where `position` is kept: of a session, and on the path of a row.
inline KvSlot SlotOf(const KvLayer& layer, const int32_t* block_table,
                     int position) {
  return block_table[position / layer.block_size] * layer.block_size +
         position % layer.block_size;
}
inline KvSlot SlotOf(const KvLayer& layer, const RowContext& row,
                     int position) {
  return position < row.tail_begin ? SlotOf(layer, row.block_table, position)
                                   : row.tail_slots[position - row.tail_begin];
}

// Index of element `d` of the key of `slot`.
inline size_t KeyIndex(const KvLayer& layer, KvSlot slot, int kv_head, int d) {
  const int per_word = KvElementsPerWord(layer.type);
  const size_t word = static_cast<size_t>(d / per_word) * layer.block_size +
                      slot % layer.block_size;
  return KvBlockIndex(layer, slot / layer.block_size, kv_head) +
         word * per_word + d % per_word;
}

// Index of element `d` of the value of `slot`.
inline size_t ValueIndex(const KvLayer& layer, KvSlot slot, int kv_head,
                         int d) {
  const int group = d / kKvGroup * kKvGroup;
  const int width = std::min(kKvGroup, KvWidth(layer) - group);
  return KvBlockIndex(layer, slot / layer.block_size, kv_head) +
         KvHalfElements(layer) + static_cast<size_t>(group) * layer.block_size +
         static_cast<size_t>(slot % layer.block_size) * width + d - group;
}

// Index of the first element of the scale of the key of `slot`. That of its
// value is KvHalfElements further.
inline size_t KeyScaleIndex(const KvLayer& layer, KvSlot slot, int kv_head) {
  return KvBlockIndex(layer, slot / layer.block_size, kv_head) +
         static_cast<size_t>(layer.block_size) * KvWidth(layer) +
         static_cast<size_t>(slot % layer.block_size) *
             KvScaleElements(layer.type);
}

}  // namespace nacre::kernels

#endif  // KERNELS_KV_ADDRESS_H_
