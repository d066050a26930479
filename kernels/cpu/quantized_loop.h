// How a quantized product walks through its weights, for every target: blocks
// of units that stay in the level-2 cache while all rows pass, chunks of groups
// that stay in the level-1 cache while the tiles of a pass do.
//
// No vector code here: the targets bring the code for one segment.

#ifndef KERNELS_CPU_QUANTIZED_LOOP_H_
#define KERNELS_CPU_QUANTIZED_LOOP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/quantized_gemm.h"
#include "kernels/cpu/row_tiling.h"

namespace nacre::kernels {

// Tiles that pass over a chunk of weights together.
inline constexpr int kQuantizedTilesTogether = 8;
// Weights of a chunk, in the level-1 cache, and of a block, in the level-2.
inline constexpr size_t kQuantizedChunkBytes = 9 << 10;
inline constexpr size_t kQuantizedBlockBytes = size_t{256} << 10;

// Some groups of one unit times the rows of one tile. The pointers to the
// tile's data are those of the first of the groups.
struct QuantizedSegment {
  const uint8_t* weights;
  const int8_t* x;
  const float* scales;
  const int32_t* corrections;
  size_t groups;
  float* sums;  // [rows of the tile, kUnitOutputs], added to
  // This tile's share of the weights to fetch meanwhile: `ahead_step` bytes
  // further each step, `ahead_group` more after each group.
  const uint8_t* ahead;
  size_t ahead_step;
  size_t ahead_group;
};

using RunQuantizedSegment = void (*)(const QuantizedSegment&);

// Tiles [tile_begin, tile_end) times one unit. `run[rows - 1]` is the code for
// a tile of `rows`.
template <class Cells>
void MultiplyUnit(const QuantizedGemmArgs& args, int unit,
                  const RowTiling& tiling, int tile_begin, int tile_end,
                  bool fetch, const RunQuantizedSegment* run) {
  constexpr size_t kChunkGroups = kQuantizedChunkBytes / kCellBytes<Cells>;
  alignas(64) float
      sums[kQuantizedTilesTogether * kQuantizedTileRows * kUnitOutputs];
  const int first_row = tiling.begin(tile_begin);
  const int num_rows = tiling.begin(tile_end) - first_row;
  const size_t tiles = static_cast<size_t>(tile_end - tile_begin);
  std::fill_n(sums, num_rows * kUnitOutputs, 0.0f);
  QuantizedSegment segment;
  segment.ahead_step = fetch ? kStepBytes / tiles : 0;
  segment.ahead_group = fetch ? 64 / tiles : 0;
  segment.weights = args.weights + unit * args.groups * kCellBytes<Cells>;
  for (size_t g = 0; g < args.groups; g += kChunkGroups) {
    segment.groups = std::min(kChunkGroups, args.groups - g);
    const size_t bytes = segment.groups * kCellBytes<Cells>;
    for (int tile = tile_begin; tile < tile_end; ++tile) {
      const size_t row = static_cast<size_t>(tiling.begin(tile));
      const size_t rows = static_cast<size_t>(tiling.size(tile));
      const size_t index = row * args.groups + rows * g;
      segment.x = args.activations + index * Cells::kGroup;
      segment.scales = args.scales + index;
      segment.corrections = args.corrections + index;
      segment.sums = sums + (row - first_row) * kUnitOutputs;
      segment.ahead =
          segment.weights +
          (fetch ? kQuantizedPrefetchBytes + bytes * (tile - tile_begin) / tiles
                 : 0);
      run[rows - 1](segment);
    }
    segment.weights += bytes;
  }
  const int first_output = unit * kUnitOutputs;
  const size_t count =
      static_cast<size_t>(std::min(kUnitOutputs, args.outputs - first_output));
  for (int row = 0; row < num_rows; ++row) {
    std::memcpy(args.y + static_cast<size_t>(first_row + row) * args.outputs +
                    first_output,
                sums + row * kUnitOutputs, count * sizeof(float));
  }
}

template <class Cells>
void MultiplyQuantized(const QuantizedGemmArgs& args, int unit_begin,
                       int unit_end, const RunQuantizedSegment* run) {
  const RowTiling tiling(args.rows, kQuantizedTileRows);
  const size_t unit_bytes = args.groups * kCellBytes<Cells>;
  const int together =
      std::max(1, static_cast<int>(kQuantizedBlockBytes / unit_bytes));
  for (int begin = unit_begin; begin < unit_end; begin += together) {
    const int end = std::min(begin + together, unit_end);
    for (int t = 0; t < tiling.count; t += kQuantizedTilesTogether) {
      const int tile_end = std::min(t + kQuantizedTilesTogether, tiling.count);
      for (int unit = begin; unit < end; ++unit) {
        MultiplyUnit<Cells>(args, unit, tiling, t, tile_end, t == 0, run);
      }
    }
  }
}

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_QUANTIZED_LOOP_H_
