// Rows of activations in near-equal tiles: what a kernel keeps accumulators for
// at once.

#ifndef KERNELS_CPU_ROW_TILING_H_
#define KERNELS_CPU_ROW_TILING_H_

#include <cstdint>

namespace nacre::kernels {

// Tile i is rows [begin(i), begin(i + 1)), i < count, of at most max_tile_rows.
struct RowTiling {
  RowTiling(int num_rows, int max_tile_rows)
      : rows(num_rows), count((num_rows + max_tile_rows - 1) / max_tile_rows) {}
  int begin(int tile) const {
    return static_cast<int>(int64_t{rows} * tile / count);
  }
  int size(int tile) const { return begin(tile + 1) - begin(tile); }

  int rows;
  int count;
};

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_ROW_TILING_H_
