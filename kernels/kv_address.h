// Where a position's key and value lie in a paged layer.

#ifndef KERNELS_KV_ADDRESS_H_
#define KERNELS_KV_ADDRESS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace nacre::kernels {

// Index into KvLayer::keys and ::values of what a block holds for one KV head.
inline size_t KvBlockIndex(const KvLayer& layer, const int32_t* block_table,
                           int position, int kv_head) {
  const size_t block =
      static_cast<size_t>(block_table[position / layer.block_size]);
  return (block * layer.num_kv_heads + kv_head) * layer.block_size *
         layer.head_dim;
}

// Index into KvLayer::keys of element 0 of `position`. The other elements
// follow, block_size apart; so do the positions up to the end of the block, 1
// apart.
inline size_t KeyIndex(const KvLayer& layer, const int32_t* block_table,
                       int position, int kv_head) {
  return KvBlockIndex(layer, block_table, position, kv_head) +
         static_cast<size_t>(position % layer.block_size);
}

// Index into KvLayer::values of element 0 of `position`. The other elements
// follow, and the positions up to the end of the block, head_dim apart.
inline size_t ValueIndex(const KvLayer& layer, const int32_t* block_table,
                         int position, int kv_head) {
  return KvBlockIndex(layer, block_table, position, kv_head) +
         static_cast<size_t>(position % layer.block_size) * layer.head_dim;
}

}  // namespace nacre::kernels

#endif  // KERNELS_KV_ADDRESS_H_
