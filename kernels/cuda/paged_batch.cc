#include "kernels/cuda/paged_batch.h"

#include <algorithm>
#include <cstddef>

namespace nacre::kernels::cuda {
namespace {

// The rows from `begin` on that follow each other in one session.
size_t EndOfSession(absl::Span<const RowContext> contexts, size_t begin) {
  size_t end = begin + 1;
  while (end < contexts.size() &&
         contexts[end].block_table == contexts[begin].block_table) {
    ++end;
  }
  return end;
}

int LastPosition(absl::Span<const RowContext> contexts) {
  int last = 0;
  for (const RowContext& context : contexts) {
    last = std::max(last, context.position);
  }
  return last;
}

}  // namespace

const int32_t* SentInts::Send(const std::vector<int32_t>& ints, Device* device,
                              Staging* staging) {
  const size_t bytes = ints.size() * sizeof(int32_t);
  if (memory_ == nullptr || ints != sent_) {
    sent_.clear();  // until it is there
    if (!device->Grow(bytes, &memory_)) return nullptr;
    staging->Upload(ints.data(), bytes, memory_->data());
    sent_ = ints;
  }
  return static_cast<const int32_t*>(memory_->data());
}

int RoundedUp(int count) {
  int unit = 1;
  while (count > 8 * unit) unit *= 2;
  return (count + unit - 1) / unit * unit;
}

std::vector<AttentionTile> CutTiles(absl::Span<const RowContext> contexts,
                                    int tile_rows) {
  std::vector<AttentionTile> tiles;
  for (size_t begin = 0, end; begin < contexts.size(); begin = end) {
    end = EndOfSession(contexts, begin);
    const int count = static_cast<int>(end - begin);
    for (int row = 0; row < count; row += tile_rows) {
      tiles.push_back({static_cast<int32_t>(begin) + row,
                       std::min(tile_rows, count - row)});
    }
  }
  return tiles;
}

std::vector<AttentionChunk> CutChunks(absl::Span<const RowContext> contexts,
                                      absl::Span<const AttentionTile> tiles,
                                      int num_heads, int head_dim,
                                      size_t max_bytes) {
  std::vector<AttentionChunk> chunks;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const AttentionTile& tile = tiles[i];
    const int splits = RoundedUp(AttentionSplits(LastPosition(contexts.subspan(
        static_cast<size_t>(tile.first_row), static_cast<size_t>(tile.rows)))));
    if (!chunks.empty()) {
      AttentionChunk& last = chunks.back();
      const int max_splits = std::max(last.max_splits, splits);
      if (AttentionPartialBytes(last.num_rows + tile.rows, num_heads, head_dim,
                                max_splits) <= max_bytes) {
        ++last.num_tiles;
        last.num_rows += tile.rows;
        last.max_tile_rows = std::max(last.max_tile_rows, tile.rows);
        last.max_splits = max_splits;
        continue;
      }
    }
    chunks.push_back(
        {static_cast<int>(i), 1, tile.first_row, tile.rows, tile.rows, splits});
  }
  return chunks;
}

PagedRows PagedBatch::SendRows(absl::Span<const RowContext> contexts,
                               int block_size) {
  const size_t count = contexts.size();
  ints_.assign(2 * count, 0);
  for (size_t begin = 0, end; begin < count; begin = end) {
    end = EndOfSession(contexts, begin);
    const int32_t table = static_cast<int32_t>(ints_.size() - 2 * count);
    for (size_t row = begin; row < end; ++row) {
      ints_[row] = contexts[row].position;
      ints_[count + row] = table;
    }
    const int32_t* const blocks = contexts[begin].block_table;
    const int last = LastPosition(contexts.subspan(begin, end - begin));
    ints_.insert(ints_.end(), blocks, blocks + last / block_size + 1);
  }
  PagedRows rows;
  rows.positions = rows_.Send(ints_, device_, staging_);
  rows.table_begins = rows.positions + count;
  rows.tables = rows.table_begins + count;
  rows.count = static_cast<int>(count);
  return rows;
}

const AttentionTile* PagedBatch::SendTiles(
    absl::Span<const AttentionTile> tiles) {
  static_assert(sizeof(AttentionTile) == 2 * sizeof(int32_t));
  ints_.clear();
  for (const AttentionTile& tile : tiles) {
    ints_.push_back(tile.first_row);
    ints_.push_back(tile.rows);
  }
  return reinterpret_cast<const AttentionTile*>(
      tiles_.Send(ints_, device_, staging_));
}

}  // namespace nacre::kernels::cuda
