#include "kernels/cpu/attention.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <algorithm>
#include <limits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/kv_address.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::kernels {
namespace HWY_NAMESPACE {

constexpr int kSplit = 64;  // positions
constexpr int kVectors = 4;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Four accumulators a query must leave registers for four vectors and a factor.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kTileQueries = 6;
#else
constexpr int kTileQueries = 2;
#endif
static_assert(kTileQueries <= kMaxAttentionTile);

// Rows of queries, scores and sums are so far apart that equal columns of
// neighbours lie at different offsets of a cache line.
constexpr size_t kScoreStride = kSplit + 4;
constexpr size_t kHeadStride = kMaxHeadDim + 4;

// What a tile has computed so far.
struct TileState {
  HWY_ALIGN float q[kTileQueries * kHeadStride];  // scaled
  HWY_ALIGN float sums[kTileQueries * kHeadStride];
  HWY_ALIGN float scores[kTileQueries * kScoreStride];  // of one split
  float maximum[kTileQueries];
  float normalizer[kTileQueries];
  float rescale[kTileQueries];
  int count[kTileQueries];  // positions of the split that a query attends to
};

HWY_INLINE VF32 LoadSome(const float* from, size_t count) {
  return count == FloatLanes() ? hn::LoadU(F32(), from) : LoadTail(from, count);
}

// The keys of one split as [head_dim] rows of positions: for each vector of
// positions where element 0 lies, and how far apart the elements are.
struct SplitKeys {
  const float* vectors[kSplit];
  size_t stride;
};

// Positions [begin, end) of one split. Vectors wholly behind `end` point to
// some other position's keys. Blocks that are no whole vectors are copied to
// `copy` [kMaxHeadDim, kSplit].
SplitKeys FindKeys(const AttentionTiles& tile, const KvLayer& layer, int begin,
                   int end, float* copy) {
  const int lanes = static_cast<int>(FloatLanes());
  SplitKeys keys;
  if (layer.block_size % lanes == 0) {
    keys.stride = static_cast<size_t>(layer.block_size);
    for (int v = 0; v < kSplit / lanes; ++v) {
      const int position = begin + v * lanes < end ? begin + v * lanes : begin;
      keys.vectors[v] = layer.keys + KeyIndex(layer, tile.block_table, position,
                                              tile.kv_head);
    }
    return keys;
  }
  keys.stride = kSplit;
  for (int p = begin; p < begin + kSplit; ++p) {
    const int position = std::min(p, end - 1);
    const float* key =
        layer.keys + KeyIndex(layer, tile.block_table, position, tile.kv_head);
    float* out = copy + (p - begin);
    for (int d = 0; d < layer.head_dim; ++d) {
      out[d * kSplit] = key[d * layer.block_size];
    }
  }
  for (int v = 0; v < kSplit / lanes; ++v) {
    keys.vectors[v] = copy + v * lanes;
  }
  return keys;
}

// scores[i, p] = q[i] . keys[p] for all positions of the split before `count`,
// and perhaps others.
template <int kQueries>
void Scores(const SplitKeys& keys, const float* q, size_t head_dim, int count,
            float* scores) {
  const F32 df;
  const size_t lanes = FloatLanes();
  for (size_t v = 0; v * lanes < static_cast<size_t>(count); v += kVectors) {
    const float* const key0 = keys.vectors[v];
    const float* const key1 = keys.vectors[v + 1];
    const float* const key2 = keys.vectors[v + 2];
    const float* const key3 = keys.vectors[v + 3];
    VF32 sums[kQueries][kVectors];
    for (int i = 0; i < kQueries; ++i) {
      for (int j = 0; j < kVectors; ++j) sums[i][j] = hn::Zero(df);
    }
    for (size_t d = 0; d < head_dim; ++d) {
      const size_t offset = d * keys.stride;
      const VF32 k0 = hn::LoadU(df, key0 + offset);
      const VF32 k1 = hn::LoadU(df, key1 + offset);
      const VF32 k2 = hn::LoadU(df, key2 + offset);
      const VF32 k3 = hn::LoadU(df, key3 + offset);
      for (int i = 0; i < kQueries; ++i) {
        const VF32 factor = hn::Set(df, q[i * kHeadStride + d]);
        sums[i][0] = hn::MulAdd(k0, factor, sums[i][0]);
        sums[i][1] = hn::MulAdd(k1, factor, sums[i][1]);
        sums[i][2] = hn::MulAdd(k2, factor, sums[i][2]);
        sums[i][3] = hn::MulAdd(k3, factor, sums[i][3]);
      }
    }
    for (int i = 0; i < kQueries; ++i) {
      for (int j = 0; j < kVectors; ++j) {
        hn::StoreU(sums[i][j], df, scores + i * kScoreStride + (v + j) * lanes);
      }
    }
  }
}

// Turns the first `count` > 0 scores into e^(score - maximum), with the running
// maximum; the others into 0.
void Exponentiate(int count, float* scores, float* maximum, float* normalizer,
                  float* rescale) {
  const F32 df;
  const size_t lanes = FloatLanes();
  std::fill(scores + count, scores + kSplit, kMinusInfinity);
  VF32 largest = hn::Set(df, *maximum);
  for (size_t p = 0; p < kSplit; p += lanes) {
    largest = hn::Max(largest, hn::LoadU(df, scores + p));
  }
  const float new_maximum = hn::GetLane(hn::MaxOfLanes(df, largest));
  *rescale = hn::GetLane(Exp(hn::Set(df, *maximum - new_maximum)));
  *maximum = new_maximum;
  const VF32 subtrahend = hn::Set(df, new_maximum);
  VF32 sum = hn::Zero(df);
  for (size_t p = 0; p < kSplit; p += lanes) {
    const VF32 e = Exp(hn::Sub(hn::LoadU(df, scores + p), subtrahend));
    hn::StoreU(e, df, scores + p);
    sum = hn::Add(sum, e);
  }
  *normalizer = *normalizer * *rescale + SumLanes(sum);
}

// sums[i] = sums[i] * rescale[i] + weights[i, p] * values[p], summed over
// positions [begin, end) of a split in order. `rescale` null: no factor.
template <int kQueries>
void AddValues(const AttentionTiles& tile, const KvLayer& layer, int split,
               int begin, int end, const float* weights, const float* rescale,
               float* sums) {
  const F32 df;
  const size_t lanes = FloatLanes();
  const size_t head_dim = static_cast<size_t>(layer.head_dim);
  for (size_t d = 0; d < head_dim; d += kVectors * lanes) {
    // Vectors behind head_dim load what they like: it goes into padding.
    const size_t left = head_dim - d;
    size_t widths[kVectors];
    for (size_t j = 0; j < kVectors; ++j) {
      widths[j] = left > j * lanes ? std::min(lanes, left - j * lanes) : 0;
    }
    const bool is_whole = left >= kVectors * lanes;
    VF32 totals[kQueries][kVectors];
    for (int i = 0; i < kQueries; ++i) {
      const VF32 factor = hn::Set(df, rescale == nullptr ? 1.0f : rescale[i]);
      for (int j = 0; j < kVectors; ++j) {
        const VF32 total =
            hn::LoadU(df, sums + i * kHeadStride + d + j * lanes);
        totals[i][j] = rescale == nullptr ? total : hn::Mul(total, factor);
      }
    }
    for (int p = begin; p < end;) {
      const int position = split + p;
      const int in_block = position % layer.block_size;
      const int run_end = std::min(end, p + layer.block_size - in_block);
      const float* value =
          layer.values +
          ValueIndex(layer, tile.block_table, position, tile.kv_head) + d;
      for (; p < run_end; ++p, value += head_dim) {
        VF32 v[kVectors];
        if (HWY_LIKELY(is_whole)) {
          for (size_t j = 0; j < kVectors; ++j) {
            v[j] = hn::LoadU(df, value + j * lanes);
          }
        } else {
          for (size_t j = 0; j < kVectors; ++j) {
            v[j] = widths[j] == 0 ? hn::Zero(df)
                                  : LoadSome(value + j * lanes, widths[j]);
          }
        }
        for (int i = 0; i < kQueries; ++i) {
          const VF32 weight = hn::Set(df, weights[i * kScoreStride + p]);
          for (int j = 0; j < kVectors; ++j) {
            totals[i][j] = hn::MulAdd(weight, v[j], totals[i][j]);
          }
        }
      }
    }
    for (int i = 0; i < kQueries; ++i) {
      for (size_t j = 0; j < kVectors; ++j) {
        if (widths[j] == 0) continue;
        hn::StoreU(totals[i][j], df, sums + i * kHeadStride + d + j * lanes);
      }
    }
  }
}

// Asks for what one split has of a KV head.
void FetchBlocks(const float* base, const AttentionTiles& tile,
                 const KvLayer& layer, int begin, int end) {
  const size_t floats = static_cast<size_t>(layer.block_size) * layer.head_dim;
  for (int p = begin; p < end; p += layer.block_size) {
    const float* block =
        base + KvBlockIndex(layer, tile.block_table, p, tile.kv_head);
    for (size_t i = 0; i < floats; i += 16) hwy::Prefetch(block + i);
  }
}

// Returns the largest position.
int Begin(const AttentionTile& tile, float scale, size_t head_dim,
          TileState* s) {
  const size_t chunk = kVectors * FloatLanes();
  const size_t padded = (head_dim + chunk - 1) / chunk * chunk;
  int last = 0;
  for (int i = 0; i < tile.count; ++i) {
    const AttentionQuery& query = tile.queries[i];
    float* const q = s->q + i * kHeadStride;
    for (size_t d = 0; d < head_dim; ++d) q[d] = query.q[d] * scale;
    std::fill_n(s->sums + i * kHeadStride, padded, 0.0f);
    s->maximum[i] = kMinusInfinity;
    s->normalizer[i] = 0;
    last = std::max(last, query.position);
  }
  return last;
}

// The scores of one split, made weights. Returns how many of its positions all
// queries attend to.
template <int kQueries>
int WeighSplit(const AttentionTile& tile, const SplitKeys& keys,
               size_t head_dim, int begin, int end, TileState* s) {
  Scores<kQueries>(keys, s->q, head_dim, end - begin, s->scores);
  int common = kSplit;
  for (int i = 0; i < kQueries; ++i) {
    s->count[i] = std::clamp(tile.queries[i].position + 1 - begin, 0, kSplit);
    common = std::min(common, s->count[i]);
    s->rescale[i] = 1.0f;
    if (s->count[i] > 0) {
      Exponentiate(s->count[i], s->scores + i * kScoreStride, &s->maximum[i],
                   &s->normalizer[i], &s->rescale[i]);
    }
  }
  return common;
}

template <int kQueries>
void AddSplit(const AttentionTiles& tiles, const KvLayer& layer, int begin,
              int common, TileState* s) {
  AddValues<kQueries>(tiles, layer, begin, 0, common, s->scores, s->rescale,
                      s->sums);
  // What lies behind a query's own position never enters its sums, were it
  // times 0: it may be NaN.
  for (int i = 0; i < kQueries; ++i) {
    if (s->count[i] == common) continue;
    AddValues<1>(tiles, layer, begin, common, s->count[i],
                 s->scores + i * kScoreStride, nullptr,
                 s->sums + i * kHeadStride);
  }
}

void End(const AttentionTile& tile, size_t head_dim, const TileState& s) {
  for (int i = 0; i < tile.count; ++i) {
    const float* const sums = s.sums + i * kHeadStride;
    float* const out = tile.queries[i].out;
    for (size_t d = 0; d < head_dim; ++d) out[d] = sums[d] / s.normalizer[i];
  }
}

// The code for tiles of 1, 2, ... queries. Entries behind kTileQueries are
// never called.
struct TileCode {
  decltype(&WeighSplit<1>) weigh;
  decltype(&AddSplit<1>) add;
};
template <int kQueries>
constexpr TileCode MakeTileCode() {
  constexpr int kCount = std::min(kQueries, kTileQueries);
  return {WeighSplit<kCount>, AddSplit<kCount>};
}
constexpr TileCode kTileCode[kMaxAttentionTile] = {
    MakeTileCode<1>(), MakeTileCode<2>(), MakeTileCode<3>(),
    MakeTileCode<4>(), MakeTileCode<5>(), MakeTileCode<6>()};

void Attend(const AttentionTiles& tiles, float scale, const KvLayer& layer) {
  TileState states[kMaxAttentionTiles];
  HWY_ALIGN float copied_keys[kMaxHeadDim * kSplit];
  const size_t head_dim = static_cast<size_t>(layer.head_dim);
  int lasts[kMaxAttentionTiles];
  int last = 0;
  for (int t = 0; t < tiles.count; ++t) {
    lasts[t] = Begin(tiles.tiles[t], scale, head_dim, &states[t]);
    last = std::max(last, lasts[t]);
  }
  FetchBlocks(layer.keys, tiles, layer, 0, std::min(kSplit, last + 1));
  for (int begin = 0; begin <= last; begin += kSplit) {
    const int end = std::min(begin + kSplit, last + 1);
    FetchBlocks(layer.values, tiles, layer, begin, end);
    const SplitKeys keys = FindKeys(tiles, layer, begin, end, copied_keys);
    int common[kMaxAttentionTiles];
    for (int t = 0; t < tiles.count; ++t) {
      if (lasts[t] < begin) continue;
      const AttentionTile& tile = tiles.tiles[t];
      common[t] = kTileCode[tile.count - 1].weigh(tile, keys, head_dim, begin,
                                                  end, &states[t]);
    }
    FetchBlocks(layer.keys, tiles, layer, end,
                std::min(end + kSplit, last + 1));
    for (int t = 0; t < tiles.count; ++t) {
      if (lasts[t] < begin) continue;
      kTileCode[tiles.tiles[t].count - 1].add(tiles, layer, begin, common[t],
                                              &states[t]);
    }
  }
  for (int t = 0; t < tiles.count; ++t) {
    End(tiles.tiles[t], head_dim, states[t]);
  }
}

AttentionKernels GetAttentionKernels() { return {kTileQueries, Attend}; }

}  // namespace HWY_NAMESPACE
}  // namespace nacre::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nacre::kernels {

HWY_EXPORT(GetAttentionKernels);

AttentionKernels ChooseAttentionKernels() {
  return HWY_DYNAMIC_DISPATCH(GetAttentionKernels)();
}

}  // namespace nacre::kernels
#endif  // HWY_ONCE
