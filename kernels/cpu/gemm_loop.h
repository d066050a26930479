// A skinny matrix product: few rows of activations, a large weight matrix that
// every step reads from memory once. How the product walks through its
// operands, the same for every type of weight and every target; these bring the
// code for one segment.
//
// Weights are packed in units, some outputs that lie in the lanes of a few
// vectors, and a unit in cells, some consecutive inputs. Activations are packed
// in tiles of rows:
//   weights      [unit][cell] of Cells::kBytes bytes
//   activations  [row tile][cell][rows of the tile] of Cells::kRowBytes bytes
// Both are padded with zeros to whole units and cells. The order of loads is
// the order in memory, and no stride is a power of two.
//
// An output element of a row is one lane of one sum, to which the inputs are
// added in order. Blocks of units that stay in the level-2 cache while all rows
// pass, chunks of cells that stay in the level-1 cache while the tiles of a
// pass do, and threads only decide when that happens. They change no bit.
//
// No vector code here.

#ifndef KERNELS_CPU_GEMM_LOOP_H_
#define KERNELS_CPU_GEMM_LOOP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/base.h"
#include "kernels/cpu/row_tiling.h"

namespace nacre::kernels {

struct CodedUnit;  // kernels/cpu/coded_weights.h

// Weights are fetched this far ahead of their use: into the level-1 cache (or
// AheadBytes), or, further ahead, into the level-2 cache. That takes more of
// them at a time, but leaves a way that only arithmetic hides. Past the end of
// a matrix that is the matrix which was packed next, or nothing: to fetch is
// not to read.
enum class Fetch { kNothing, kNear, kFar };
inline constexpr size_t kNearBytes = 8192;
inline constexpr size_t kFarBytes = 16384;

// Weights of a block, in the level-2 cache.
inline constexpr size_t kBlockBytes = size_t{256} << 10;

// What a type of cells may have otherwise.
struct CellDefaults {
  // Weights of a chunk, but for a part of a cell, in the level-1 cache.
  static constexpr size_t kChunkBytes = 12 << 10;
  // Whether a unit's place in y is fetched before it is multiplied: else
  // arithmetic of a few rows waits until stores have brought it.
  static constexpr bool kFetchesOutputs = false;
  // Sums of one row.
  static void StoreOutputs(const float* sums, size_t count, float* y) {
    std::memcpy(y, sums, count * sizeof(float));
  }
};

// Packs tiles [tile_begin, tile_end) of x [rows, cols].
using PackActivationTiles = void (*)(const float* x, const RowTiling& tiling,
                                     int tile_begin, int tile_end, int cols,
                                     void* out);

// One product y = x W^T over packed operands.
struct GemmArgs {
  const char* weights = nullptr;      // 64-byte aligned
  const char* activations = nullptr;  // 64-byte aligned
  int rows = 0;                       // of activations, > 0
  int outputs = 0;                    // rows of W
  size_t cells = 0;                   // of a unit
  float* y = nullptr;                 // [rows, outputs]
  const CodedUnit* coded = nullptr;   // of each unit, if weights are codes
};

// Some cells of one unit times the rows of one tile.
struct GemmSegment {
  const char* weights;
  const char* x;
  size_t cells;
  float* sums;  // [rows of the tile, Cells::kUnitOutputs], added to
  // This tile's share of the weights to fetch meanwhile: `ahead_step` bytes
  // further each step of a cell, `ahead_cell` more after each cell.
  const char* ahead;
  size_t ahead_step;
  size_t ahead_cell;
  bool is_far;  // Fetch::kFar
  // Of weights that are codes: of all units, and where this one is.
  const CodedUnit* coded;
  int unit;
  size_t first_cell;
};

// kLines lines of the weights to come.
template <int kLines>
HWY_INLINE void FetchAhead(const char* ahead, bool is_far) {
  constexpr int kLevel1 = 3;
  constexpr int kLevel2 = 2;
  for (int line = 0; line < kLines; ++line) {
    if (is_far) {
      __builtin_prefetch(ahead + size_t{64} * line, 0, kLevel2);
    } else {
      __builtin_prefetch(ahead + size_t{64} * line, 0, kLevel1);
    }
  }
}

using RunGemmSegment = void (*)(const GemmSegment&);

// The code for tiles of 1, 2, ... rows.
struct GemmRuns {
  const RunGemmSegment* alone;   // one tile fetches all weights to come
  const RunGemmSegment* few;     // two or three tiles share that
  const RunGemmSegment* shared;  // more
  // Whether weights are fetched from afar where so many tiles of so many rows
  // (of the first) share that; null: never.
  bool (*is_far)(int rows, int tiles) = nullptr;
};

// Activations of so many bytes stay in the level-1 cache without it.
inline constexpr size_t kNearRowBytes = 20 << 10;

// Fetches `cells` of a tile's activations: of many rows they come from afar.
template <class Cells>
void FetchRows(const GemmArgs& args, const RowTiling& tiling, int tile,
               size_t first_cell, size_t cells) {
  const size_t row = static_cast<size_t>(tiling.begin(tile));
  const size_t rows = static_cast<size_t>(tiling.size(tile));
  const char* const x =
      args.activations +
      (row * args.cells + rows * first_cell) * Cells::kRowBytes;
  for (size_t i = 0; i < rows * cells * Cells::kRowBytes; i += 64) {
    __builtin_prefetch(x + i);
  }
}

// `count` outputs of `rows` rows from y on, to be written.
inline void FetchOutputs(const float* y, size_t rows, size_t stride,
                         size_t count) {
  for (size_t row = 0; row < rows; ++row, y += stride) {
    for (size_t i = 0; i < count; i += 64 / sizeof(float)) {
      __builtin_prefetch(y + i, 1);
    }
  }
}

// Sums of a unit, of which `count` outputs exist, to rows of y.
template <class Cells>
HWY_INLINE void StoreUnit(const float* sums, size_t rows, size_t count,
                          float* y, size_t stride) {
  for (size_t row = 0; row < rows; ++row) {
    Cells::StoreOutputs(sums + row * Cells::kUnitOutputs, count,
                        y + row * stride);
  }
}

// Of a unit's cells. Chunks are near-equal: a short one at the end would take
// longer than its cells should.
template <class Cells>
size_t NumChunks(size_t cells) {
  return (cells * Cells::kBytes + Cells::kChunkBytes - 1) / Cells::kChunkBytes;
}

// How far ahead of their use weights are fetched. From nearby a chunk at least,
// if several tiles pass it: the first one would wait for what it fetches
// itself.
inline size_t AheadBytes(Fetch fetch, size_t tiles, size_t chunk_bytes) {
  if (fetch == Fetch::kFar) return kFarBytes;
  return tiles > 1 ? std::max(kNearBytes, chunk_bytes) : kNearBytes;
}

// Tiles [tile_begin, tile_end) times one unit.
template <class Cells>
void MultiplyUnit(const GemmArgs& args, int unit, const RowTiling& tiling,
                  int tile_begin, int tile_end, Fetch fetch,
                  const RunGemmSegment* run) {
  constexpr size_t kOutputs = Cells::kUnitOutputs;
  const size_t chunks = NumChunks<Cells>(args.cells);
  alignas(64) float sums[Cells::kTilesTogether * Cells::kTileRows * kOutputs];
  const int first_row = tiling.begin(tile_begin);
  const size_t num_rows =
      static_cast<size_t>(tiling.begin(tile_end) - first_row);
  const size_t tiles = static_cast<size_t>(tile_end - tile_begin);
  const size_t first_output = unit * kOutputs;
  const size_t count = std::min(kOutputs, args.outputs - first_output);
  float* const y = args.y + size_t{1} * first_row * args.outputs + first_output;
  std::fill_n(sums, num_rows * kOutputs, 0.0f);
  if (Cells::kFetchesOutputs) FetchOutputs(y, num_rows, args.outputs, count);
  GemmSegment segment;
  const bool fetches = fetch != Fetch::kNothing;
  segment.is_far = fetch == Fetch::kFar;
  segment.ahead_step = fetches ? Cells::kStepBytes / tiles : 0;
  segment.ahead_cell = fetches ? Cells::kTailBytes / tiles : 0;
  segment.weights = args.weights + unit * args.cells * Cells::kBytes;
  segment.coded = args.coded;
  segment.unit = unit;
  const size_t ahead_bytes = AheadBytes(
      fetch, tiles, (args.cells + chunks - 1) / chunks * Cells::kBytes);
  const bool fetches_rows =
      num_rows * args.cells * Cells::kRowBytes > kNearRowBytes;
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    const size_t c = args.cells * chunk / chunks;
    segment.first_cell = c;
    segment.cells = args.cells * (chunk + 1) / chunks - c;
    const size_t bytes = segment.cells * Cells::kBytes;
    for (int tile = tile_begin; tile < tile_end; ++tile) {
      const size_t row = static_cast<size_t>(tiling.begin(tile));
      const size_t rows = static_cast<size_t>(tiling.size(tile));
      segment.x =
          args.activations + (row * args.cells + rows * c) * Cells::kRowBytes;
      segment.sums = sums + (row - first_row) * kOutputs;
      segment.ahead = segment.weights;
      if (fetches) {
        segment.ahead += ahead_bytes + bytes * (tile - tile_begin) / tiles;
      }
      if (fetches_rows && tile + 1 < tile_end) {
        FetchRows<Cells>(args, tiling, tile + 1, c, segment.cells);
      }
      run[rows - 1](segment);
    }
    segment.weights += bytes;
  }
  if (count == kOutputs) {  // known when compiled, so nothing is called to copy
    StoreUnit<Cells>(sums, num_rows, kOutputs, y, args.outputs);
  } else {
    StoreUnit<Cells>(sums, num_rows, count, y, args.outputs);
  }
}

// All rows times units [unit_begin, unit_end).
template <class Cells>
void MultiplyUnits(const GemmArgs& args, int unit_begin, int unit_end,
                   const GemmRuns& runs) {
  const RowTiling tiling(args.rows, Cells::kTileRows);
  const size_t unit_bytes = args.cells * Cells::kBytes;
  const int together = std::max(1, static_cast<int>(kBlockBytes / unit_bytes));
  for (int begin = unit_begin; begin < unit_end; begin += together) {
    const int end = std::min(begin + together, unit_end);
    for (int t = 0; t < tiling.count; t += Cells::kTilesTogether) {
      const int tile_end = std::min(t + Cells::kTilesTogether, tiling.count);
      const int tiles = tile_end - t;
      const bool is_far =
          runs.is_far != nullptr && runs.is_far(tiling.size(t), tiles);
      const Fetch fetch = t > 0    ? Fetch::kNothing
                          : is_far ? Fetch::kFar
                                   : Fetch::kNear;
      const RunGemmSegment* const run = t > 0 || tiles > 3 ? runs.shared
                                        : tiles > 1        ? runs.few
                                                           : runs.alone;
      for (int unit = begin; unit < end; ++unit) {
        MultiplyUnit<Cells>(args, unit, tiling, t, tile_end, fetch, run);
      }
    }
  }
}

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_GEMM_LOOP_H_
