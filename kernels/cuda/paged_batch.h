// The rows of the current batch on the device: where each stands, its session's
// block table, and how attention cuts them into tiles. All layers of a step ask
// for the same: it comes with the step (step_upload.h), or is sent when it
// differs from what was sent last.
//
// Thread-compatible. `device`, `staging` and `step` outlive it.

#ifndef KERNELS_CUDA_PAGED_BATCH_H_
#define KERNELS_CUDA_PAGED_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/paged_kv.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda/step_upload.h"

namespace nacre::kernels::cuda {

// Integers on the device.
class SentInts {
 public:
  // Room for so many. False, and the device keeps the error, when there is
  // none.
  bool Reserve(size_t count, Device* device);

  // Null, and the device keeps the error, when there is no room.
  const int32_t* Send(const std::vector<int32_t>& ints, Device* device,
                      Staging* staging);

 private:
  std::vector<int32_t> sent_;
  std::unique_ptr<Buffer> memory_;
};

// How attention's rows are cut. Decides no bits.
struct AttentionCut {
  int tile_rows = 1;  // AttentionTileRows
  int group = 1;      // query heads for each KV head
  int num_heads = 0;
  int head_dim = 0;
  SplitRule rule;
  size_t max_partial_bytes = 0;  // kept at a time, if a row needs no more
  // So many full tiles of prompts go through all their splits in one block
  // (AttentionArgs::whole).
  int least_whole_tiles = std::numeric_limits<int>::max();
};

struct PlannedTile {
  AttentionTile at;
  bool whole = false;
  int splits = 0;          // of the rows' last position, RoundedUp
  bool continues = false;  // the tile before it has its rows, too
};

// Tiles that one launch takes: all whole, or all not; then the partial results
// of their rows fit into memory together.
struct AttentionChunk {
  bool whole = false;
  int first_tile = 0;
  int num_tiles = 0;
  int first_row = 0;
  int num_rows = 0;
  int max_tile_rows = 0;
  int max_splits = 0;  // RoundedUp
};

// `count`, or a little more, at most a quarter: so that grids which grow with a
// context seldom change (StepGraphs). 1 to 8, then steps of 2, 4, 8 ...
int RoundedUp(int count);

// Cuts rows into tiles. A tile has rows that follow each other in one session
// (its block table is the same pointer). It has fewer than it could where one
// would need more memory than there is. Rows with tails have several tiles
// (AttentionTile). Then tiles into chunks.
std::vector<PlannedTile> CutTiles(absl::Span<const RowContext> contexts,
                                  const AttentionCut& cut);
std::vector<AttentionChunk> CutChunks(absl::Span<const PlannedTile> tiles,
                                      const AttentionCut& cut);

struct AttentionPlan {
  std::vector<PlannedTile> tiles;
  std::vector<AttentionChunk> chunks;
};

// Both. `repeats`: the launches are to be those of many steps (StepGraphs). So
// there are tiles without a split, and splits and queries that no tile has:
// their blocks end at once.
AttentionPlan PlanAttention(absl::Span<const RowContext> contexts,
                            const AttentionCut& cut, bool repeats);

// Bytes of partial results. No chunk of a step of up to `rows` rows in a cache
// of `positions` needs more. The exception: a single row that needs more than
// cut.max_partial_bytes.
size_t MostPartialBytes(const AttentionCut& cut, int rows, int64_t positions);

class PagedBatch {
 public:
  PagedBatch(Device* device, Staging* staging, StepUpload* step)
      : device_(device), staging_(staging), step_(step) {}

  // Room for steps of up to `rows` rows of sessions that share no blocks, in a
  // cache of `num_blocks`. Where they share many, SendRows may grow it. False
  // after an error.
  bool Reserve(int rows, int num_blocks);

  // Adds them to what the step that comes next is sent.
  void AddToStep(absl::Span<const RowContext> contexts, int block_size,
                 absl::Span<const PlannedTile> tiles);

  // PagedRows::positions is null after an error.
  PagedRows SendRows(absl::Span<const RowContext> contexts, int block_size);
  const AttentionTile* SendTiles(absl::Span<const PlannedTile> tiles);

 private:
  Device* const device_;
  Staging* const staging_;
  StepUpload* const step_;
  SentInts rows_;  // of no step
  SentInts tiles_;
  std::vector<int32_t> ints_;  // scratch
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_PAGED_BATCH_H_
