// Causal grouped-query attention over the paged cache, for few or many rows.
//
// A context is cut into splits (SplitRule). A block of threads takes one split
// of one KV head for a tile of queries. The tile has the query heads that share
// it, of a few rows of one session. Each split has a maximum, a sum and a sum
// of values of its own. They are merged from the first split to the last
// (online softmax). Or a block takes all splits of a tile one after another,
// and merges as it goes. Then nothing is kept in memory, and the bits are the
// same.
//
// Over a float32 cache everything is float32. Over a bf16 cache the products
// are the tensor cores'. Queries (times scale, times log2 e) and weights
// (2^(score - maximum), at most 1) are rounded to bf16. Sums are float32, and
// the weights are divided by the sum of the rounded ones. So a score may be off
// by 2^-9 of the sum of its products' magnitudes, a weight by 2^-9 of itself.
//
// Batch-invariant: all of it follows from the row's position and from head_dim.
// A window hides what is before a row's first position. In the split where it
// begins, weights there are zero. The splits before that are not the row's. The
// first kernel writes a row whose context is one split: merging one split gives
// just that.
//
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_ATTENTION_H_
#define KERNELS_CUDA_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "common/host_device.h"
#include "kernels/cuda/attention_splits.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/paged_kv.h"

namespace nacre::kernels::cuda {

inline constexpr int kMostTileQueries = 8;    // of a tile; decides no bits
inline constexpr int kMostBf16Queries = 128;  // likewise, of a bf16 cache
inline constexpr int kMostHeadDim = 512;
inline constexpr int kMostWholeHeadDim = 128;  // of AttentionArgs::whole

// Rows of a tile that have `group` query heads for each KV head.
constexpr int AttentionTileRows(int group, DType type) {
  const int queries =
      type == DType::kBF16 ? kMostBf16Queries : kMostTileQueries;
  return group >= queries ? 1 : queries / group;
}

inline constexpr int32_t kEverySplit = std::numeric_limits<int32_t>::max();

// Rows that follow each other in one session, at most AttentionTileRows, and
// which splits of their context a launch takes for them. Rows with tails share
// the splits before all tails; of the others each row has a tile of its own.
struct AttentionTile {
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t first_split = 0;
  int32_t end_split = kEverySplit;
};

// All pointers are the device's.
struct AttentionArgs {
  const float* q =
      nullptr;  // row i at q + i * q_stride, [num_heads * head_dim]
  int q_stride = 0;
  int num_heads = 0;  // a multiple of the KV heads
  float scale = 0;
  int window = std::numeric_limits<int>::max();  // as in AttentionRule
  float soft_cap = 0;                            // likewise
  PagedRows rows;
  PagedKv kv;  // head_dim at most kMostHeadDim
  // Tiles of rows [first_row, first_row + num_rows), each split of a row in one
  // of them.
  const AttentionTile* tiles = nullptr;
  int num_tiles = 0;
  int first_row = 0;
  int num_rows = 0;
  int max_tile_rows = 0;  // the longest of these tiles
  int max_splits = 0;     // of their last position, or more
  // Whether a block takes all splits of a tile. For many full tiles without
  // tails, of a bf16 cache with a head_dim of at most kMostWholeHeadDim.
  bool whole = false;
  // Whether of these warpgroups take those that they can (attention_wide.h).
  bool wide = false;
  // AttentionPartialBytes(num_rows, num_heads, head_dim, max_splits) bytes;
  // none for `whole`.
  float* partials = nullptr;
  float* out = nullptr;  // row i at out + i * num_heads * head_dim
  // The same rows in bf16, where it is not null: of a launch that has several
  // splits and is not `whole`.
  uint16_t* rounded = nullptr;

  NACRE_HOST_DEVICE SplitRule rule() const {
    return SplitRuleOf(kv.type, kv.head_dim);
  }

  bool operator==(const AttentionArgs&) const = default;
};

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
