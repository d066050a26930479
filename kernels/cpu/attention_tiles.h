// Which queries of a step attend together, and what a thread takes of them.

#ifndef KERNELS_CPU_ATTENTION_TILES_H_
#define KERNELS_CPU_ATTENTION_TILES_H_

#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cpu/attention.h"

namespace nacre::kernels {

// The operands of AttentionOps::Attention.
struct AttentionOperands {
  const float* q = nullptr;  // [rows, q_stride]
  int q_stride = 0;
  int num_heads = 0;
  absl::Span<const RowContext> contexts;  // of the rows
  const KvLayer& layer;
  float* out = nullptr;  // [rows, num_heads, head_dim]
};

// Puts queries that read the same keys and values in tiles of at most
// `tile_queries`: rows that follow each other in one session, and the query
// heads that share a KV head. Appends groups of them to `groups`, each for one
// thread. If a thread that is through takes the next group from the end, all
// have near-equal shares of a session. Heads stay whole where threads divide
// their number; of many tiles they are in parts of consecutive rows.
void DealAttention(const AttentionOperands& operands, int tile_queries,
                   int threads, std::vector<AttentionTiles>* groups);

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_ATTENTION_TILES_H_
