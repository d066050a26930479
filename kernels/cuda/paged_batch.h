// The rows of the current batch on the device: where each stands, its session's
// block table, and how attention cuts them into tiles. All layers of a step ask
// for the same: it is sent when it differs from what was sent last.
//
// Thread-compatible. `device` and `staging` outlive it.

#ifndef KERNELS_CUDA_PAGED_BATCH_H_
#define KERNELS_CUDA_PAGED_BATCH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/paged_kv.h"
#include "kernels/cuda/staging.h"

namespace nacre::kernels::cuda {

// Integers on the device.
class SentInts {
 public:
  // Null, and the device keeps the error, when there is no room.
  const int32_t* Send(const std::vector<int32_t>& ints, Device* device,
                      Staging* staging);

 private:
  std::vector<int32_t> sent_;
  std::unique_ptr<Buffer> memory_;
};

// Rows whose partial results of attention fit into memory together.
struct AttentionChunk {
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

// Cuts rows into tiles: those that follow each other in one session (its block
// table is the same pointer), at most `tile_rows`. Then tiles into chunks of
// at most `max_bytes` of partial results, or one tile.
std::vector<AttentionTile> CutTiles(absl::Span<const RowContext> contexts,
                                    int tile_rows);
std::vector<AttentionChunk> CutChunks(absl::Span<const RowContext> contexts,
                                      absl::Span<const AttentionTile> tiles,
                                      int num_heads, int head_dim,
                                      size_t max_bytes);

class PagedBatch {
 public:
  PagedBatch(Device* device, Staging* staging)
      : device_(device), staging_(staging) {}

  // PagedRows::positions is null after an error.
  PagedRows SendRows(absl::Span<const RowContext> contexts, int block_size);
  const AttentionTile* SendTiles(absl::Span<const AttentionTile> tiles);

 private:
  Device* const device_;
  Staging* const staging_;
  SentInts rows_;
  SentInts tiles_;
  std::vector<int32_t> ints_;  // scratch
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_PAGED_BATCH_H_
