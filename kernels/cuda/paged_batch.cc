#include "kernels/cuda/paged_batch.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>

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

constexpr size_t kTileInts = sizeof(AttentionTile) / sizeof(int32_t);
static_assert(kTileInts == 4);

// Rows of one session in a step that are a prompt's: so many are worth a block
// that stays for the whole context.
constexpr size_t kLeastPromptRows = 64;

bool HasTails(absl::Span<const RowContext> contexts) {
  return std::any_of(contexts.begin(), contexts.end(),
                     [](const RowContext& row) { return row.has_tail(); });
}

// Of the tails of rows of one session: splits before it are in its blocks.
int FirstTailSplit(absl::Span<const RowContext> contexts,
                   const SplitRule& rule) {
  int first = kEverySplit;
  for (const RowContext& row : contexts) {
    if (row.has_tail()) first = std::min(first, rule.Of(row.tail_begin));
  }
  return first;
}

int LastPosition(absl::Span<const RowContext> contexts) {
  int last = 0;
  for (const RowContext& context : contexts) {
    last = std::max(last, context.position);
  }
  return last;
}

// As far as the session's own blocks are read; 0 where they are not.
int LastInPlace(absl::Span<const RowContext> contexts) {
  int last = 0;
  for (const RowContext& row : contexts) {
    last = std::max(last, std::min(row.position, row.tail_begin - 1));
  }
  return last;
}

int SplitsOf(absl::Span<const RowContext> contexts, const SplitRule& rule) {
  return RoundedUp(rule.Of(LastPosition(contexts)) + 1);
}

size_t PartialBytes(const AttentionCut& cut, size_t rows, int splits) {
  return AttentionPartialBytes(static_cast<int>(rows), cut.num_heads,
                               cut.head_dim, splits);
}

// Full tiles of prompts.
size_t PromptTiles(absl::Span<const RowContext> contexts, size_t tile_rows) {
  size_t tiles = 0;
  for (size_t begin = 0, end; begin < contexts.size(); begin = end) {
    end = EndOfSession(contexts, begin);
    if (end - begin >= kLeastPromptRows) tiles += (end - begin) / tile_rows;
  }
  return tiles;
}

// Appends the tiles of rows [row, row + rows), which `tile` is of, where some
// of them have tails.
void AppendTailTiles(absl::Span<const RowContext> contexts,
                     const SplitRule& rule, PlannedTile tile,
                     std::vector<PlannedTile>* tiles) {
  const auto begin = static_cast<size_t>(tile.at.first_row);
  const auto rows = static_cast<size_t>(tile.at.rows);
  const int tail_split = FirstTailSplit(contexts.subspan(begin, rows), rule);
  if (tail_split > 0) {
    tile.at.end_split = tail_split;
    tiles->push_back(tile);
    tile.continues = true;
  }
  tile.at.rows = 1;
  tile.at.first_split = tail_split;
  tile.at.end_split = kEverySplit;
  for (size_t row = begin; row < begin + rows; ++row) {
    if (rule.Of(contexts[row].position) < tail_split) continue;
    tile.at.first_row = static_cast<int32_t>(row);
    tiles->push_back(tile);
  }
}

// The first of `sizes`, which rise, that is at least `count`; none: `count`.
int NextOf(std::initializer_list<int> sizes, int count) {
  for (const int size : sizes) {
    if (size >= count) return size;
  }
  return count;
}

// A tile may have as many rows as its kernel takes anyway: numbers of queries
// that there are kernels for, of a float32 and of a bf16 cache.
int WidenedTileRows(const AttentionCut& cut, int rows) {
  const int queries = rows * cut.group;
  const int widened = cut.tile_rows * cut.group <= kMostTileQueries
                          ? NextOf({1, 4, kMostTileQueries}, queries)
                          : NextOf({16, 32, 64, kMostBf16Queries}, queries);
  return widened / cut.group;
}

void WidenChunk(const AttentionCut& cut, AttentionPlan* plan) {
  AttentionChunk& chunk = plan->chunks[0];
  chunk.num_tiles =
      NextOf({1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128}, chunk.num_tiles);
  PlannedTile empty;
  empty.at = {static_cast<int32_t>(chunk.first_row), 1, 0, 0};
  plan->tiles.resize(static_cast<size_t>(chunk.num_tiles), empty);
  chunk.max_tile_rows = WidenedTileRows(cut, chunk.max_tile_rows);
  const int splits = NextOf({1, 2, 4, 8}, chunk.max_splits);
  if (PartialBytes(cut, static_cast<size_t>(chunk.num_rows), splits) <=
      cut.max_partial_bytes) {
    chunk.max_splits = splits;
  }
}

// What the device is told of rows: positions, where each one's table begins,
// those two of tails if there are any, then tables and tails. The integers
// before the tables.
size_t WriteRows(absl::Span<const RowContext> contexts, int block_size,
                 std::vector<int32_t>* out) {
  std::vector<int32_t>& ints = *out;
  const size_t count = contexts.size();
  const bool has_tails = HasTails(contexts);
  const size_t heads = (has_tails ? 4 : 2) * count;
  ints.assign(heads, 0);
  for (size_t begin = 0, end; begin < count; begin = end) {
    end = EndOfSession(contexts, begin);
    const int32_t table = static_cast<int32_t>(ints.size() - heads);
    for (size_t row = begin; row < end; ++row) {
      ints[row] = contexts[row].position;
      ints[count + row] = table;
    }
    const int32_t* const blocks = contexts[begin].block_table;
    const int last = LastInPlace(contexts.subspan(begin, end - begin));
    ints.insert(ints.end(), blocks, blocks + last / block_size + 1);
    for (size_t row = begin; has_tails && row < end; ++row) {
      const RowContext& context = contexts[row];
      ints[2 * count + row] = kNoTail;
      if (!context.has_tail()) continue;
      ints[2 * count + row] = context.tail_begin;
      ints[3 * count + row] = static_cast<int32_t>(ints.size() - heads);
      ints.insert(
          ints.end(), context.tail_slots,
          context.tail_slots + (context.position + 1 - context.tail_begin));
    }
  }
  return heads;
}

void WriteTiles(absl::Span<const PlannedTile> tiles,
                std::vector<int32_t>* ints) {
  ints->clear();
  for (const PlannedTile& tile : tiles) {
    ints->push_back(tile.at.first_row);
    ints->push_back(tile.at.rows);
    ints->push_back(tile.at.first_split);
    ints->push_back(tile.at.end_split);
  }
}

}  // namespace

bool SentInts::Reserve(size_t count, Device* device) {
  const size_t bytes = count * sizeof(int32_t);
  if (memory_ != nullptr && memory_->size_bytes() >= bytes) return true;
  sent_.clear();
  return device->Grow(bytes, &memory_);
}

const int32_t* SentInts::Send(const std::vector<int32_t>& ints, Device* device,
                              Staging* staging) {
  if (memory_ == nullptr || ints != sent_) {
    sent_.clear();  // until it is there
    if (!Reserve(ints.size(), device)) return nullptr;
    staging->Upload(ints.data(), ints.size() * sizeof(int32_t),
                    memory_->data());
    sent_ = ints;
  }
  return static_cast<const int32_t*>(memory_->data());
}

int RoundedUp(int count) {
  int unit = 1;
  while (count > 8 * unit) unit *= 2;
  return (count + unit - 1) / unit * unit;
}

std::vector<PlannedTile> CutTiles(absl::Span<const RowContext> contexts,
                                  const AttentionCut& cut) {
  const auto tile_rows = static_cast<size_t>(cut.tile_rows);
  const bool whole = PromptTiles(contexts, tile_rows) >=
                     static_cast<size_t>(cut.least_whole_tiles);
  std::vector<PlannedTile> tiles;
  for (size_t begin = 0, end; begin < contexts.size(); begin = end) {
    end = EndOfSession(contexts, begin);
    const bool prompt = end - begin >= kLeastPromptRows;
    for (size_t row = begin, rows; row < end; row += rows) {
      rows = std::min(tile_rows, end - row);
      PlannedTile tile;
      tile.whole = whole && prompt && rows == tile_rows &&
                   !HasTails(contexts.subspan(row, rows));
      tile.splits = SplitsOf(contexts.subspan(row, rows), cut.rule);
      while (!tile.whole && rows > 1 &&
             PartialBytes(cut, rows, tile.splits) > cut.max_partial_bytes) {
        tile.splits = SplitsOf(contexts.subspan(row, --rows), cut.rule);
      }
      tile.at = {static_cast<int32_t>(row), static_cast<int32_t>(rows)};
      if (HasTails(contexts.subspan(row, rows))) {
        AppendTailTiles(contexts, cut.rule, tile, &tiles);
      } else {
        tiles.push_back(tile);
      }
    }
  }
  return tiles;
}

std::vector<AttentionChunk> CutChunks(absl::Span<const PlannedTile> tiles,
                                      const AttentionCut& cut) {
  std::vector<AttentionChunk> chunks;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const auto& [tile, whole, splits, continues] = tiles[i];
    if (continues) {
      ++chunks.back().num_tiles;
      continue;
    }
    if (!chunks.empty() && chunks.back().whole == whole) {
      AttentionChunk& last = chunks.back();
      const int max_splits = std::max(last.max_splits, splits);
      const int rows = last.num_rows + tile.rows;
      if (whole || PartialBytes(cut, static_cast<size_t>(rows), max_splits) <=
                       cut.max_partial_bytes) {
        ++last.num_tiles;
        last.num_rows += tile.rows;
        last.max_tile_rows = std::max(last.max_tile_rows, tile.rows);
        last.max_splits = max_splits;
        continue;
      }
    }
    chunks.push_back({whole, static_cast<int>(i), 1, tile.first_row, tile.rows,
                      tile.rows, splits});
  }
  return chunks;
}

AttentionPlan PlanAttention(absl::Span<const RowContext> contexts,
                            const AttentionCut& cut, bool repeats) {
  AttentionPlan plan;
  plan.tiles = CutTiles(contexts, cut);
  plan.chunks = CutChunks(plan.tiles, cut);
  // Steps of several chunks have long contexts, and seldom launches in common.
  if (repeats && plan.chunks.size() == 1 && !plan.chunks[0].whole) {
    WidenChunk(cut, &plan);
  }
  return plan;
}

size_t MostPartialBytes(const AttentionCut& cut, int rows, int64_t positions) {
  const int splits =
      RoundedUp(cut.rule.Of(static_cast<int>(positions - 1)) + 1);
  return std::min(cut.max_partial_bytes,
                  PartialBytes(cut, static_cast<size_t>(rows), splits));
}

bool PagedBatch::Reserve(int rows, int num_blocks) {
  // A position, the begins of a table and a tail each, and the tables; or two
  // tiles each.
  const auto count = static_cast<size_t>(rows);
  return rows_.Reserve(4 * count + static_cast<size_t>(num_blocks), device_) &&
         tiles_.Reserve(2 * kTileInts * count, device_);
}

void PagedBatch::AddToStep(absl::Span<const RowContext> contexts,
                           int block_size,
                           absl::Span<const PlannedTile> tiles) {
  WriteTiles(tiles, &ints_);
  step_->Add(StepPart::kTiles, ints_.data(), ints_.size() * sizeof(int32_t));
  WriteRows(contexts, block_size, &ints_);
  step_->Add(StepPart::kRows, ints_.data(), ints_.size() * sizeof(int32_t));
}

PagedRows PagedBatch::SendRows(absl::Span<const RowContext> contexts,
                               int block_size) {
  const size_t count = contexts.size();
  const size_t heads = WriteRows(contexts, block_size, &ints_);
  PagedRows rows;
  rows.positions = step_->Find(StepPart::kRows, ints_);
  if (rows.positions == nullptr) {
    rows.positions = rows_.Send(ints_, device_, staging_);
  }
  rows.table_begins = rows.positions + count;
  rows.tables = rows.positions + heads;
  if (HasTails(contexts)) {
    rows.tail_begins = rows.positions + 2 * count;
    rows.tail_indices = rows.positions + 3 * count;
  }
  rows.count = static_cast<int>(count);
  return rows;
}

const AttentionTile* PagedBatch::SendTiles(
    absl::Span<const PlannedTile> tiles) {
  WriteTiles(tiles, &ints_);
  const int32_t* sent = step_->Find(StepPart::kTiles, ints_);
  if (sent == nullptr) sent = tiles_.Send(ints_, device_, staging_);
  return reinterpret_cast<const AttentionTile*>(sent);
}

}  // namespace nacre::kernels::cuda
