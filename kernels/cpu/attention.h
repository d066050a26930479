// Causal attention of a few queries that share KV heads over a paged cache.
//
// Positions are taken in splits of 64, counted from position 0, with a running
// maximum and sum (online softmax: Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018). Scores are summed dimension by dimension,
// lanes are positions; outputs position by position, lanes are dimensions, and
// the quarters of a split take turns. The order of every sum follows from the
// position and head_dim alone: how queries are put into tiles changes no bit.
// What a window hides has no weight; splits that it hides whole are passed by.
// Nor does a tail (RowContext) change a bit: its splits are gathered into the
// places that they have in a chain.

#ifndef KERNELS_CPU_ATTENTION_H_
#define KERNELS_CPU_ATTENTION_H_

#include "kernels/backend.h"

namespace nacre::kernels {

inline constexpr int kMaxHeadDim = 512;
inline constexpr int kMaxAttentionTile = 6;
inline constexpr int kMaxAttentionTiles = 16;

// Attends to positions 0..position inclusive.
struct AttentionQuery {
  const float* q = nullptr;  // [head_dim]
  float* out = nullptr;      // [head_dim]
  int position = 0;
  int tail_begin = kNoTail;  // this and tail_slots as in RowContext
  const KvSlot* tail_slots = nullptr;
};

// Queries of one session and one KV head, which share what is loaded.
struct AttentionTile {
  AttentionQuery queries[kMaxAttentionTile];
  int count = 0;  // > 0
  int kv_head = 0;
};

// Tiles that go through the keys and values of a session together, split by
// split. What a head has in a split comes from memory once, and what the next
// head has follows it there. The tiles of a KV head follow each other.
struct AttentionTiles {
  AttentionTile tiles[kMaxAttentionTiles];
  int count = 0;  // > 0
  const int32_t* block_table = nullptr;
  int tail_begin = kNoTail;  // the first of the queries' tails
};

struct AttentionKernels {
  int tile_queries;  // of a tile at most, <= kMaxAttentionTile
  // AttentionOps::Attention for each query.
  //   head_dim <= kMaxHeadDim, even for bf16
  void (*attend)(const AttentionTiles& tiles, const AttentionRule& rule,
                 const KvLayer& layer);
};

// The table of the best target that this CPU supports.
AttentionKernels ChooseAttentionKernels();

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_ATTENTION_H_
