#include "kernels/cpu/attention.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <algorithm>
#include <iterator>
#include <limits>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/attention_tails-inl.h"
#include "kernels/cpu/attention_tile-inl.h"
#include "kernels/cpu/attention_values-inl.h"
#include "kernels/cpu/attention_weights-inl.h"
#include "kernels/kv_address.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::kernels {
namespace HWY_NAMESPACE {

// The blocks of one session's split.
struct Split {
  const char* blocks[kQuarters];  // of the quarters, KV head 0
  int in_block[kQuarters];        // of the quarters' first positions
  bool is_empty = true;
};

// Positions [begin, end), which begin a split. Quarters past `end` are taken
// to be the first.
Split FindSplit(const int32_t* block_table, const KvLayer& layer, int begin,
                int end) {
  Split split;
  split.is_empty = begin >= end;
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    const int own = begin + quarter * kQuarter;
    const int position = own < end ? own : begin;
    split.blocks[quarter] = static_cast<const char*>(layer.blocks);
    split.in_block[quarter] = position % layer.block_size;
    if (split.is_empty) continue;
    split.blocks[quarter] +=
        KvBlockIndex(layer, block_table[position / layer.block_size], 0) *
        SizeOf(layer.type);
  }
  return split;
}

SplitKv FindKv(const Split& split, const KvLayer& layer, int kv_head) {
  const size_t half = KvHalfElements(layer) * SizeOf(layer.type);
  SplitKv kv;
  kv.block_size = static_cast<size_t>(layer.block_size);
  kv.width = static_cast<size_t>(KvWidth(layer));
  const size_t scales = kv.block_size * kv.width * SizeOf(layer.type);
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    const char* const base = split.blocks[quarter] + half * 2 * kv_head;
    kv.in_block[quarter] = split.in_block[quarter];
    kv.keys[quarter] = base + kv.in_block[quarter] * sizeof(uint32_t);
    kv.values[quarter] = base + half;
    kv.key_scales[quarter] =
        base + scales + kv.in_block[quarter] * sizeof(float);
    kv.value_scales[quarter] = kv.key_scales[quarter] + half;
  }
  return kv;
}

// The share of one of `sharers`, with so many steps, of what is to be
// fetched: `half` 0, the keys of a KV head, or 1, its values, of a whole split.
Fetch ShareOf(const Split& split, const KvLayer& layer, int kv_head, int half,
              int index, int sharers, size_t steps) {
  const size_t bytes = KvHalfElements(layer) * SizeOf(layer.type);
  const size_t share =
      layer.block_size == kQuarter && !split.is_empty ? bytes / sharers : 0;
  Fetch fetch;
  fetch.step = (share + steps - 1) / steps;
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    fetch.runs[quarter] =
        split.blocks[quarter] + (2 * kv_head + half) * bytes + share * index;
  }
  return fetch;
}

constexpr float kLog2E = 1.44269504f;

// The positions that some query of a tile attends to, first and last.
struct TileSpan {
  int first = std::numeric_limits<int>::max();
  int last = 0;

  bool Meets(int split) const {
    return split <= last && first < split + kSplit;
  }
};

// out[i] = x[i] * factor
void MultiplyBy(float factor, const float* x, size_t count, float* out) {
  const F32 df;
  const size_t lanes = FloatLanes();
  const VF32 by = hn::Set(df, factor);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(df, x + i), by), df, out + i);
  }
  for (; i < count; ++i) out[i] = x[i] * factor;
}

// `width`: SplitKv's.
TileSpan Begin(const AttentionTile& tile, const AttentionRule& rule,
               size_t head_dim, size_t width, TileState* s) {
  const size_t chunk = kVectors * FloatLanes();
  const size_t padded = (width + chunk - 1) / chunk * chunk;
  TileSpan span;
  std::fill_n(s->sums, padded * tile.count, 0.0f);
  std::fill_n(s->normalizer, tile.count * FloatLanes(), 0.0f);
  std::fill(std::begin(s->rescale), std::end(s->rescale), 0.0f);
  for (int i = 0; i < tile.count; ++i) {
    const AttentionQuery& query = tile.queries[i];
    float* const q = s->q + i * kQueryStride;
    MultiplyBy(rule.scale * kLog2E, query.q, head_dim, q);
    std::fill(q + head_dim, q + width, 0.0f);
    s->maximum[i] = -std::numeric_limits<float>::infinity();
    span.first = std::min(span.first, rule.First(query.position));
    span.last = std::max(span.last, query.position);
  }
  return span;
}

template <class Kv, int kQueries>
void WeighSplit(const AttentionTile& tile, const AttentionRule& rule,
                const SplitKv& kv, int begin, Fetch fetch, TileState* s) {
  for (int i = 0; i < kQueries; ++i) {
    const int position = tile.queries[i].position;
    s->first[i] = std::clamp(rule.First(position) - begin, 0, kSplit);
    s->end[i] = std::clamp(position + 1 - begin, 0, kSplit);
    if (s->first[i] >= s->end[i]) s->first[i] = s->end[i] = 0;
  }
  const int end = *std::max_element(s->end, s->end + kQueries);
  const int quarters = (end + kQuarter - 1) / kQuarter;
  Scores<Kv, kQueries>(kv, quarters, s->q, &fetch, s->scores);
  if constexpr (Kv::kHasScales) ScaleScores<kQueries>(kv.key_scales, s->scores);
  if (rule.soft_cap > 0) {
    CapScores<kQueries>(rule.soft_cap * kLog2E, s->scores);
  }
  Weigh<kQueries>(quarters, &fetch, s);
  // The sum of the weights is taken.
  if constexpr (Kv::kHasScales) {
    ScaleScores<kQueries>(kv.value_scales, s->scores);
  }
}

template <class Kv>
void End(const AttentionTile& tile, size_t head_dim, const TileState& s) {
  const F32 df;
  const size_t lanes = FloatLanes();
  const size_t chunk = kVectors * lanes;
  HWY_ALIGN float placed[kVectors * hn::MaxLanes(F32())];
  for (int i = 0; i < tile.count; ++i) {
    const VF32 normalizer =
        hn::Set(df, SumLanes(hn::Load(df, s.normalizer + i * lanes)));
    const float* sums = s.sums + i * chunk;
    for (size_t d = 0; d < head_dim; d += chunk, sums += chunk * tile.count) {
      for (size_t j = 0; j < chunk; j += lanes) {
        hn::Store(hn::Div(hn::Load(df, sums + j), normalizer), df, placed + j);
      }
      float* const out = tile.queries[i].out + d;
      const size_t count = std::min(chunk, head_dim - d);
      if constexpr (Kv::kPerWord == 1) {
        std::copy_n(placed, count, out);
      } else {
        for (size_t k = 0; k < count; ++k) out[k] = placed[Place<Kv>(k)];
      }
    }
  }
}

// The code for tiles of 1, 2, ... queries. Entries past kTileQueries are
// never called.
struct TileCode {
  decltype(&WeighSplit<F32Kv, 1>) weigh;
  decltype(&AddValues<F32Kv, 1>) add;
};
template <class Kv, int kQueries>
constexpr TileCode MakeTileCode() {
  constexpr int kCount = std::min(kQueries, kTileQueries);
  return {WeighSplit<Kv, kCount>, AddValues<Kv, kCount>};
}
template <class Kv>
constexpr TileCode kTileCode[kMaxAttentionTile] = {
    MakeTileCode<Kv, 1>(), MakeTileCode<Kv, 2>(), MakeTileCode<Kv, 3>(),
    MakeTileCode<Kv, 4>(), MakeTileCode<Kv, 5>(), MakeTileCode<Kv, 6>()};

// Tiles of one KV head, [begin, end).
int EndOfHead(const AttentionTiles& tiles, int begin) {
  int end = begin;
  while (end < tiles.count &&
         tiles.tiles[end].kv_head == tiles.tiles[begin].kv_head) {
    ++end;
  }
  return end;
}

// The splits of a tile from `begin` on, in which its queries have paths of
// their own.
template <class Kv>
void AttendToTails(const AttentionTile& tile, const AttentionRule& rule,
                   const int32_t* block_table, const KvLayer& layer, int begin,
                   std::vector<uint32_t>* copy, TileState* state) {
  const TileCode& code = kTileCode<Kv>[tile.count - 1];
  for (bool is_done = false; !is_done; begin += kSplit) {
    is_done = true;
    bool taken[kMaxAttentionTile] = {};
    while (true) {
      const PathQueries queries = TakePath(tile, begin, taken);
      if (queries.longest == nullptr) break;
      is_done = false;
      const AttentionQuery& longest = *queries.longest;
      const SplitKv kv = GatherSplit({block_table, longest.position,
                                      longest.tail_begin, longest.tail_slots},
                                     layer, tile.kv_head, begin, copy);
      Fetch nothing;
      std::fill(std::begin(nothing.runs), std::end(nothing.runs), kv.keys[0]);
      nothing.step = 0;
      code.weigh(queries.path, rule, kv, begin, nothing, state);
      code.add(kv, nothing, state);
    }
  }
}

template <class Kv>
void AttendTo(const AttentionTiles& tiles, const AttentionRule& rule,
              const KvLayer& layer) {
  TileState states[kMaxAttentionTiles];
  std::vector<uint32_t> copy;
  const bool is_copied = layer.block_size % kQuarter != 0;
  const size_t head_dim = static_cast<size_t>(layer.head_dim);
  const size_t width = static_cast<size_t>(KvWidth(layer));
  const size_t lanes = FloatLanes();
  const size_t key_steps = kQuarter / lanes * (width / Kv::kPerWord);
  const size_t weight_steps = kSplit / lanes;  // of a query
  const size_t value_steps =
      (width + kVectors * lanes - 1) / (kVectors * lanes) * kSplit;
  TileSpan spans[kMaxAttentionTiles];
  TileSpan all;
  for (int t = 0; t < tiles.count; ++t) {
    spans[t] = Begin(tiles.tiles[t], rule, head_dim, width, &states[t]);
    all.first = std::min(all.first, spans[t].first);
    all.last = std::max(all.last, spans[t].last);
  }
  // What comes after is not where the blocks of the session have it.
  const int tails = tiles.tail_begin / kSplit * kSplit;
  const int last = std::min(all.last, tails - 1);
  const auto find = [&](int begin) {
    return FindSplit(tiles.block_table, layer, begin,
                     std::min(begin + kSplit, last + 1));
  };
  const int first_split = all.first / kSplit * kSplit;
  Split split = find(first_split);
  for (int begin = first_split; begin <= last; begin += kSplit) {
    const int end = std::min(begin + kSplit, last + 1);
    const Split next = find(end);
    for (int head = 0, head_end; head < tiles.count; head = head_end) {
      head_end = EndOfHead(tiles, head);
      const int sharers = head_end - head;
      const int kv_head = tiles.tiles[head].kv_head;
      const SplitKv kv = is_copied ? GatherSplit({tiles.block_table, end - 1},
                                                 layer, kv_head, begin, &copy)
                                   : FindKv(split, layer, kv_head);
      for (int t = head; t < head_end; ++t) {
        if (!spans[t].Meets(begin)) continue;
        const AttentionTile& tile = tiles.tiles[t];
        kTileCode<Kv>[tile.count - 1].weigh(
            tile, rule, kv, begin,
            ShareOf(split, layer, kv_head, 1, t - head, sharers,
                    key_steps + weight_steps * tile.count),
            &states[t]);
      }
      const bool is_last_head = head_end == tiles.count;
      for (int t = head; t < head_end; ++t) {
        if (!spans[t].Meets(begin)) continue;
        kTileCode<Kv>[tiles.tiles[t].count - 1].add(
            kv,
            ShareOf(is_last_head ? next : split, layer,
                    tiles.tiles[is_last_head ? 0 : head_end].kv_head, 0,
                    t - head, sharers, value_steps),
            &states[t]);
      }
    }
    split = next;
  }
  for (int t = 0; t < tiles.count; ++t) {
    if (spans[t].last >= tails) {
      AttendToTails<Kv>(tiles.tiles[t], rule, tiles.block_table, layer,
                        std::max(tails, spans[t].first / kSplit * kSplit),
                        &copy, &states[t]);
    }
    End<Kv>(tiles.tiles[t], head_dim, states[t]);
  }
}

void Attend(const AttentionTiles& tiles, const AttentionRule& rule,
            const KvLayer& layer) {
  if (layer.type == DType::kInt8) {
    AttendTo<Int8Kv>(tiles, rule, layer);
  } else if (layer.type == DType::kBF16) {
    AttendTo<BF16Kv>(tiles, rule, layer);
  } else {
    AttendTo<F32Kv>(tiles, rule, layer);
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
