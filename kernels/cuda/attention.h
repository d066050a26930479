// Causal grouped-query attention over the paged cache, a few query rows or
// many.
//
// A context is cut into splits of kAttentionSplit positions, counted from
// position 0; a block of threads takes one split of one KV head for a tile of
// queries that share it: the query heads of a few rows of one session. Each
// split has a maximum, a sum and a sum of values of its own; they are merged
// from the first split to the last (online softmax).
//
// Batch-invariant: all of it follows from the row's position and from head_dim.
// A row whose context is one split is written by the first kernel: that is what
// merging one split gives.
//
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_ATTENTION_H_
#define KERNELS_CUDA_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/paged_kv.h"

namespace nacre::kernels::cuda {

inline constexpr int kAttentionSplit = 128;  // positions; decides bits
inline constexpr int kMostTileQueries = 8;   // of a tile; decides none
inline constexpr int kMostHeadDim = 512;

// Rows of a tile that have `group` query heads for each KV head.
constexpr int AttentionTileRows(int group) {
  return group >= kMostTileQueries ? 1 : kMostTileQueries / group;
}

// Rows that follow each other in one session, at most AttentionTileRows.
struct AttentionTile {
  int32_t first_row = 0;
  int32_t rows = 0;
};

// All pointers are the device's.
struct AttentionArgs {
  const float* q =
      nullptr;  // row i at q + i * q_stride, [num_heads * head_dim]
  int q_stride = 0;
  int num_heads = 0;  // a multiple of the KV heads
  float scale = 0;
  PagedRows rows;
  PagedKv kv;  // head_dim at most kMostHeadDim
  // Tiles of rows [first_row, first_row + num_rows), each row in one of them.
  const AttentionTile* tiles = nullptr;
  int num_tiles = 0;
  int first_row = 0;
  int num_rows = 0;
  int max_tile_rows = 0;  // the longest of these tiles
  int max_splits = 0;     // AttentionSplits of their last position, or more
  // AttentionPartialBytes(num_rows, num_heads, head_dim, max_splits) bytes.
  float* partials = nullptr;
  float* out = nullptr;  // row i at out + i * num_heads * head_dim

  bool operator==(const AttentionArgs&) const = default;
};

constexpr int AttentionSplits(int position) {
  return position / kAttentionSplit + 1;
}

// 0 where every row has one split.
constexpr size_t AttentionPartialBytes(int rows, int num_heads, int head_dim,
                                       int max_splits) {
  if (max_splits == 1) return 0;
  return sizeof(float) * static_cast<size_t>(rows) *
         static_cast<size_t>(num_heads) * static_cast<size_t>(max_splits) *
         (static_cast<size_t>(head_dim) + 2);
}

// Queues one kernel, or two where a row has several splits; does not block.
// What it returns is the launches'.
cudaError_t Attend(const Queue& queue, const AttentionArgs& args);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_H_
