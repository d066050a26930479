#include "kernels/cpu/attention_tiles.h"

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/row_tiling.h"

namespace nacre::kernels {
namespace {

// The rows [first_row, end_row) of one session.
class SessionQueries {
 public:
  SessionQueries(const AttentionOperands& operands, size_t first_row,
                 size_t end_row, int tile_queries)
      : operands_(operands),
        first_row_(first_row),
        heads_together_(operands.num_heads / operands.layer.num_kv_heads),
        tiling_(static_cast<int>(end_row - first_row) * heads_together_,
                tile_queries) {}

  // Of a KV head.
  int num_tiles() const { return tiling_.count; }

  // Tile `t` of a KV head joins the group.
  void Add(int kv_head, int t, AttentionTiles* group) const {
    AttentionTile& tile = group->tiles[group->count++];
    tile.kv_head = kv_head;
    tile.count = tiling_.size(t);
    for (int i = 0; i < tile.count; ++i) {
      const int query = tiling_.begin(t) + i;
      const size_t row = first_row_ + query / heads_together_;
      const size_t head =
          size_t{1} * kv_head * heads_together_ + query % heads_together_;
      const size_t head_dim = static_cast<size_t>(operands_.layer.head_dim);
      const RowContext& context = operands_.contexts[row];
      tile.queries[i] = {
          operands_.q + row * operands_.q_stride + head * head_dim,
          operands_.out + (row * operands_.num_heads + head) * head_dim,
          context.position, context.tail_begin, context.tail_slots};
      if (context.has_tail()) {
        group->tail_begin = std::min(group->tail_begin, context.tail_begin);
      }
    }
  }

 private:
  const AttentionOperands& operands_;
  const size_t first_row_;
  const int heads_together_;  // query heads of a KV head
  const RowTiling tiling_;    // row by row
};

// How the tiles of a session become groups.
struct Shares {
  int part;   // tiles of a head that are together at most
  int heads;  // whole heads of a part that are together, or 0:
  int run;    // tiles of a group at most, whatever heads they are of
};

// tiles: of each head. Rounds are how often each thread takes a group.
Shares ShareTiles(int tiles, int num_heads, int threads) {
  const int total = tiles * num_heads;
  const int rounds = (total - 1) / (kMaxAttentionTiles * threads) + 1;
  const int equal = (total - 1) / (threads * rounds) + 1;
  // Of few groups each must be as large as the others.
  const bool is_even = num_heads % threads == 0;
  if (!is_even && (rounds <= 2 || tiles <= equal)) return {tiles, 0, equal};
  if (tiles > equal) return {equal, 1, 0};
  int heads = std::min(num_heads / threads, kMaxAttentionTiles / tiles);
  while (num_heads / threads % heads != 0) --heads;
  return {tiles, heads, 0};
}

}  // namespace

void DealAttention(const AttentionOperands& operands, int tile_queries,
                   int threads, std::vector<AttentionTiles>* groups) {
  const absl::Span<const RowContext> contexts = operands.contexts;
  const int num_heads = operands.layer.num_kv_heads;
  for (size_t begin = 0, end; begin < contexts.size(); begin = end) {
    end = begin + 1;
    while (end < contexts.size() &&
           contexts[end].block_table == contexts[begin].block_table) {
      ++end;
    }
    const SessionQueries queries(operands, begin, end, tile_queries);
    const Shares shares = ShareTiles(queries.num_tiles(), num_heads, threads);
    const RowTiling parts(queries.num_tiles(), shares.part);
    // All heads have the first rows first.
    for (int part = 0; part < parts.count; ++part) {
      const int tiles = parts.size(part);
      const RowTiling runs(tiles * num_heads,
                           std::max(shares.run, shares.heads * tiles));
      for (int run = 0; run < runs.count; ++run) {
        AttentionTiles& group = groups->emplace_back();
        group.block_table = contexts[begin].block_table;
        for (int i = runs.begin(run); i < runs.begin(run + 1); ++i) {
          queries.Add(i / tiles, parts.begin(part) + i % tiles, &group);
        }
      }
    }
  }
}

}  // namespace nacre::kernels
