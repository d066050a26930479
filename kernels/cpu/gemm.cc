#include "kernels/cpu/gemm.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <algorithm>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::kernels {
namespace HWY_NAMESPACE {

// Rows of a tile at most: 4 accumulators a row must leave registers for the
// weights, of which bf16 needs twice as many while it widens them.
#if HWY_TARGET <= HWY_AVX3
constexpr int kMaxTileRowsF32 = 6;
constexpr int kMaxTileRowsBF16 = 6;
#else
constexpr int kMaxTileRowsF32 = 3;
constexpr int kMaxTileRowsBF16 = 2;
#endif

// Tiles that pass over a chunk of weights together.
constexpr int kTilesTogether = 4;
// Weights that later tiles pass over again, in the level-2 cache.
constexpr size_t kReusedBytes = size_t{256} << 10;

void PackActivations(const float* x, const RowTiling& tiling, int tile_begin,
                     int tile_end, int cols, float* out) {
  const size_t block = 2 * FloatLanes();
  const size_t inputs = static_cast<size_t>(cols);
  out += tiling.begin(tile_begin) * ((inputs + block - 1) / block * block);
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    const int begin = tiling.begin(tile);
    const int end = tiling.begin(tile + 1);
    for (size_t k = 0; k < inputs; k += block) {
      const size_t count = std::min(block, inputs - k);
      for (int row = begin; row < end; ++row, out += block) {
        const float* from = x + row * inputs + k;
        std::memcpy(out, from, count * sizeof(float));
        std::fill(out + count, out + block, 0.0f);
      }
    }
  }
}

// One step of the work: some blocks of one panel times the rows of one tile.
template <class Word>
struct Segment {
  const Word* weights;
  const float* x;
  size_t blocks;
  const Word* ahead;  // weights to fetch meanwhile
  float* unfinished;  // accumulators [rows, 4, L] between segments
  bool is_first;      // of its panel and tile
  bool is_last;
  float* y;         // for the last segment: rows `y_stride` floats apart,
  size_t y_stride;  // `outputs` <= 4 of each
  int outputs;
};

// These walk the accumulators by recursion: with a loop, an index known at run
// time would send them through memory.
template <int kRow = 0, int kRows>
HWY_INLINE void StartRows(const float* unfinished, bool is_first,
                          VF32 (&sums)[kRows][kPanelOutputs]) {
  if constexpr (kRow < kRows) {
    const F32 df;
    const float* from = unfinished + kRow * kPanelOutputs * FloatLanes();
    for (int o = 0; o < kPanelOutputs; ++o) {
      sums[kRow][o] =
          is_first ? hn::Zero(df) : hn::Load(df, from + o * FloatLanes());
    }
    StartRows<kRow + 1>(unfinished, is_first, sums);
  }
}

template <int kRow = 0, int kRows>
HWY_INLINE void KeepRows(const VF32 (&sums)[kRows][kPanelOutputs],
                         float* unfinished) {
  if constexpr (kRow < kRows) {
    float* to = unfinished + kRow * kPanelOutputs * FloatLanes();
    for (int o = 0; o < kPanelOutputs; ++o) {
      hn::Store(sums[kRow][o], F32(), to + o * FloatLanes());
    }
    KeepRows<kRow + 1>(sums, unfinished);
  }
}

// Sums the lanes of each accumulator.
template <int kRow = 0, int kRows>
HWY_INLINE void FinishRows(const VF32 (&sums)[kRows][kPanelOutputs], float* y,
                           size_t y_stride, int outputs) {
  if constexpr (kRow < kRows) {
    const auto& sum = sums[kRow];
    if (HWY_LIKELY(outputs == kPanelOutputs)) {
      StoreSums4(sum[0], sum[1], sum[2], sum[3], y);
    } else {
      float four[kPanelOutputs];
      StoreSums4(sum[0], sum[1], sum[2], sum[3], four);
      std::memcpy(y, four, outputs * sizeof(float));
    }
    FinishRows<kRow + 1>(sums, y + y_stride, y_stride, outputs);
  }
}

template <int kRows, class Word>
HWY_INLINE void EndSegment(const VF32 (&sums)[kRows][kPanelOutputs],
                           const Segment<Word>& segment) {
  if (segment.is_last) {
    FinishRows(sums, segment.y, segment.y_stride, segment.outputs);
  } else {
    KeepRows(sums, segment.unfinished);
  }
}

template <int kVectors, class Word>
HWY_INLINE void PrefetchVectors(const Word** ahead) {
  const size_t lanes = FloatLanes();
  for (int i = 0; i < kVectors; ++i) hwy::Prefetch(*ahead + i * lanes);
  *ahead += kVectors * lanes;
}

// Adds weights * x to the accumulators of every row of the tile. x: the rows
// are 2 L floats apart.
template <int kRows>
HWY_INLINE void MultiplyAdd(const VF32 (&weights)[kPanelOutputs],
                            const float* HWY_RESTRICT x,
                            VF32 (&sums)[kRows][kPanelOutputs]) {
  const F32 df;
  for (int row = 0; row < kRows; ++row) {
    const VF32 v = hn::Load(df, x + row * 2 * hn::Lanes(df));
    for (int o = 0; o < kPanelOutputs; ++o) {
      sums[row][o] = hn::MulAdd(weights[o], v, sums[row][o]);
    }
  }
}

// Weight types. Every step, of 4 vectors of weights, fetches kPrefetch vectors.
struct F32Weights {
  using Word = float;
  static constexpr int kMaxTileRows = kMaxTileRowsF32;
  static constexpr size_t kStepsPerBlock = 2;

  template <int kRows, int kPrefetch>
  static void Run(const Segment<float>& segment) {
    const F32 df;
    const size_t lanes = hn::Lanes(df);
    const float* HWY_RESTRICT w = segment.weights;
    const float* HWY_RESTRICT x = segment.x;
    const float* ahead = segment.ahead;
    VF32 sums[kRows][kPanelOutputs];
    StartRows(segment.unfinished, segment.is_first, sums);
    for (size_t b = 0; b < segment.blocks; ++b, x += kRows * 2 * lanes) {
      for (int half = 0; half < 2; ++half, w += kPanelOutputs * lanes) {
        PrefetchVectors<kPrefetch>(&ahead);
        VF32 weights[kPanelOutputs];
        for (int o = 0; o < kPanelOutputs; ++o) {
          weights[o] = hn::Load(df, w + o * lanes);
        }
        MultiplyAdd(weights, x + half * lanes, sums);
      }
    }
    EndSegment(sums, segment);
  }
};

struct BF16Weights {
  using Word = uint32_t;
  static constexpr int kMaxTileRows = kMaxTileRowsBF16;
  static constexpr size_t kStepsPerBlock = 1;

  template <int kRows, int kPrefetch>
  static void Run(const Segment<uint32_t>& segment) {
    const F32 df;
    const hn::RebindToUnsigned<F32> du;
    const size_t lanes = hn::Lanes(df);
    const auto high_half = hn::Set(du, 0xFFFF0000u);
    const uint32_t* HWY_RESTRICT w = segment.weights;
    const float* HWY_RESTRICT x = segment.x;
    const uint32_t* ahead = segment.ahead;
    VF32 sums[kRows][kPanelOutputs];
    StartRows(segment.unfinished, segment.is_first, sums);
    for (size_t b = 0; b < segment.blocks; ++b) {
      PrefetchVectors<kPrefetch>(&ahead);
      VF32 weights[kPanelOutputs];
      for (int o = 0; o < kPanelOutputs; ++o) {
        const auto pairs = hn::Load(du, w + o * lanes);
        weights[o] = hn::BitCast(df, hn::ShiftLeft<16>(pairs));
      }
      MultiplyAdd(weights, x, sums);
      for (int o = 0; o < kPanelOutputs; ++o) {
        const auto pairs = hn::Load(du, w + o * lanes);
        weights[o] = hn::BitCast(df, hn::And(pairs, high_half));
      }
      MultiplyAdd(weights, x + lanes, sums);
      w += kPanelOutputs * lanes;
      x += kRows * 2 * lanes;
    }
    EndSegment(sums, segment);
  }
};

// The code for a tile of `rows` <= kRows that fetches `prefetch` of 0, 1, 2 or
// 4 vectors a step.
template <class Weights, int kRows = Weights::kMaxTileRows>
auto ChooseRun(int rows, int prefetch)
    -> void (*)(const Segment<typename Weights::Word>&) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return ChooseRun<Weights, kRows - 1>(rows, prefetch);
  }
  return prefetch == 0   ? &Weights::template Run<kRows, 0>
         : prefetch == 1 ? &Weights::template Run<kRows, 1>
         : prefetch == 2 ? &Weights::template Run<kRows, 2>
                         : &Weights::template Run<kRows, 4>;
}

// One tile of rows, and its share of fetching the weights to come: `prefetch`
// vectors a step, from quarter `quarter` of a segment on.
template <class Word>
struct Tile {
  int row;
  int rows;
  int prefetch;
  int quarter;
  void (*run)(const Segment<Word>&);
};

// Tiles [begin, begin + count), count <= kTilesTogether. They share the
// fetching equally, so that memory works through all of them.
template <class Weights>
void MakeTiles(const RowTiling& tiling, int begin, int count, bool prefetch,
               Tile<typename Weights::Word>* tiles) {
  int quarter = prefetch ? 0 : 4;
  for (int t = 0; t < count; ++t) {
    const int tiles_left = count - t;
    const int share = (4 - quarter + tiles_left - 1) / tiles_left;
    const int vectors = share == 3 ? 2 : share;
    const int row = tiling.begin(begin + t);
    const int rows = tiling.size(begin + t);
    tiles[t] = {row, rows, vectors, quarter, ChooseRun<Weights>(rows, vectors)};
    quarter += vectors;
  }
}

// All given tiles times one group of panels, chunk by chunk.
template <class Weights>
void MultiplyGroup(const GemmArgs& args, int group,
                   const Tile<typename Weights::Word>* tiles, int num_tiles) {
  using Word = typename Weights::Word;
  constexpr size_t kMaxRows = kTilesTogether * Weights::kMaxTileRows;
  HWY_ALIGN float
      unfinished[kGroupPanels * kMaxRows * kPanelOutputs * hn::MaxLanes(F32())];
  const size_t lanes = FloatLanes();
  const size_t block_words = Weights::kStepsPerBlock * kPanelOutputs * lanes;
  const size_t blocks = args.shape.blocks;
  const int panels = args.shape.PanelsOfGroup(group);
  const int first_panel = group * kGroupPanels;
  Segment<Word> segment;
  segment.weights = static_cast<const Word*>(args.weights) +
                    args.shape.BlockIndex(first_panel, 0) * block_words;
  segment.y_stride = args.outputs;
  for (size_t b = 0; b < blocks; b += kChunkBlocks) {
    segment.blocks = std::min(kChunkBlocks, blocks - b);
    segment.is_first = b == 0;
    segment.is_last = b + segment.blocks == blocks;
    const size_t words = segment.blocks * block_words;
    for (int p = 0; p < panels; ++p, segment.weights += words) {
      const int output = (first_panel + p) * kPanelOutputs;
      segment.outputs = std::min(kPanelOutputs, args.outputs - output);
      for (int t = 0; t < num_tiles; ++t) {
        const Tile<Word>& tile = tiles[t];
        segment.x =
            args.activations + (tile.row * blocks + tile.rows * b) * 2 * lanes;
        segment.ahead = segment.weights + kPrefetchBytes / sizeof(Word) +
                        words / 4 * tile.quarter;
        segment.unfinished =
            unfinished +
            (p * kMaxRows + tile.row - tiles[0].row) * kPanelOutputs * lanes;
        segment.y =
            args.y + static_cast<size_t>(tile.row) * args.outputs + output;
        tile.run(segment);
      }
    }
  }
}

template <class Weights>
void Multiply(const GemmArgs& args, int group_begin, int group_end) {
  const RowTiling tiling(args.rows, Weights::kMaxTileRows);
  const size_t group_bytes = kGroupPanels * args.shape.blocks *
                             Weights::kStepsPerBlock * kPanelOutputs *
                             FloatLanes() * sizeof(float);
  const int groups_together =
      std::max<int>(1, static_cast<int>(kReusedBytes / group_bytes));
  for (int begin = group_begin; begin < group_end; begin += groups_together) {
    const int end = std::min(begin + groups_together, group_end);
    for (int t = 0; t < tiling.count; t += kTilesTogether) {
      const int count = std::min(kTilesTogether, tiling.count - t);
      Tile<typename Weights::Word> tiles[kTilesTogether];
      MakeTiles<Weights>(tiling, t, count, t == 0, tiles);
      for (int group = begin; group < end; ++group) {
        MultiplyGroup<Weights>(args, group, tiles, count);
      }
    }
  }
}

GemmKernels GetGemmKernels() {
  return {static_cast<int>(FloatLanes()),
          kMaxTileRowsF32,
          kMaxTileRowsBF16,
          PackActivations,
          Multiply<F32Weights>,
          Multiply<BF16Weights>};
}

}  // namespace HWY_NAMESPACE
}  // namespace nacre::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nacre::kernels {

HWY_EXPORT(GetGemmKernels);

GemmKernels ChooseGemmKernels() {
  return HWY_DYNAMIC_DISPATCH(GetGemmKernels)();
}

}  // namespace nacre::kernels
#endif  // HWY_ONCE
