// Where a position's key and value lie in a paged layer.

#ifndef KERNELS_KV_ADDRESS_H_
#define KERNELS_KV_ADDRESS_H_

#include <cstddef>

#include "kernels/backend.h"

namespace nacre::kernels {

// Index into KvLayer::keys and ::values of element 0 of `position`, for one KV
// head. The positions up to the end of its block follow, head_dim apart.
inline size_t KvIndex(const KvLayer& layer, const RowContext& context,
                      int position, int kv_head) {
  const size_t block =
      static_cast<size_t>(context.block_table[position / layer.block_size]);
  const size_t slot =
      (block * layer.num_kv_heads + kv_head) * layer.block_size +
      static_cast<size_t>(position % layer.block_size);
  return slot * layer.head_dim;
}

}  // namespace nacre::kernels

#endif  // KERNELS_KV_ADDRESS_H_
