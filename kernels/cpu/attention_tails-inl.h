// Splits whose positions do not lie where the blocks of a session have them:
// gathered into a copy in which they do. For rows of a token tree, whose paths
// end in slots, and for blocks that no quarter of a split fits into. Compiled
// once for each target.

#if defined(KERNELS_CPU_ATTENTION_TAILS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_ATTENTION_TAILS_INL_H_
#undef KERNELS_CPU_ATTENTION_TAILS_INL_H_
#else
#define KERNELS_CPU_ATTENTION_TAILS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_tile-inl.h"
#include "kernels/kv_address.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::kernels {
namespace HWY_NAMESPACE {

// Copies one position of a KV head into a layer of one head.
inline void CopyPosition(const KvLayer& layer, KvSlot from, int kv_head,
                         const KvLayer& copy, KvSlot to) {
  const size_t element = SizeOf(layer.type);
  const size_t word = element * KvElementsPerWord(layer.type);
  const auto* const source = static_cast<const char*>(layer.blocks);
  auto* const target = static_cast<char*>(copy.blocks);
  const char* key = source + KeyIndex(layer, from, kv_head, 0) * element;
  char* key_copy = target + KeyIndex(copy, to, 0, 0) * element;
  const int width = KvWidth(layer);
  for (int d = 0; d < width; d += KvElementsPerWord(layer.type)) {
    std::memcpy(key_copy, key, sizeof(uint32_t));
    key += layer.block_size * word;
    key_copy += copy.block_size * word;
  }
  for (int d = 0; d < width; d += kKvGroup) {
    std::memcpy(target + ValueIndex(copy, to, 0, d) * element,
                source + ValueIndex(layer, from, kv_head, d) * element,
                static_cast<size_t>(std::min(kKvGroup, width - d)) * element);
  }
  const size_t scale_bytes = KvScaleElements(layer.type) * element;
  if (scale_bytes == 0) return;
  const char* const scale =
      source + KeyScaleIndex(layer, from, kv_head) * element;
  char* const scale_copy = target + KeyScaleIndex(copy, to, 0) * element;
  std::memcpy(scale_copy, scale, scale_bytes);
  std::memcpy(scale_copy + KvHalfElements(copy) * element,
              scale + KvHalfElements(layer) * element, scale_bytes);
}

// One KV head of the split that begins at `begin`, on the path of a row. What
// lies past the row's position is whatever. Quarters that are blocks of the
// session stay where they are, the others are copied to `copy`.
inline SplitKv GatherSplit(const RowContext& row, const KvLayer& layer,
                           int kv_head, int begin,
                           std::vector<uint32_t>* copy) {
  const size_t element = SizeOf(layer.type);
  KvLayer quarters = layer;
  quarters.num_blocks = kQuarters;
  quarters.num_kv_heads = 1;
  quarters.block_size = kQuarter;
  const size_t half = KvHalfElements(quarters) * element;
  copy->resize(half * 2 * kQuarters / sizeof(uint32_t));
  quarters.blocks = copy->data();
  SplitKv kv;
  kv.block_size = kQuarter;
  kv.width = static_cast<size_t>(KvWidth(layer));
  const int end = std::min(begin + kSplit, row.position + 1);
  const int in_place = std::min(end, row.tail_begin);
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    const int own = begin + quarter * kQuarter;
    int next = own;  // position to be copied
    const char* base = static_cast<const char*>(quarters.blocks) +
                       static_cast<size_t>(quarter) * 2 * half;
    if (layer.block_size == kQuarter && own < in_place) {
      const char* const block =
          static_cast<const char*>(layer.blocks) +
          KvBlockIndex(layer, row.block_table[own / kQuarter], kv_head) *
              element;
      next = std::min(own + kQuarter, in_place);
      if (next == std::min(own + kQuarter, end)) {
        base = block;
      } else {
        std::memcpy(const_cast<char*>(base), block, 2 * half);
      }
    }
    for (; next < std::min(own + kQuarter, end); ++next) {
      CopyPosition(layer, SlotOf(layer, row, next), kv_head, quarters,
                   next - begin);
    }
    kv.keys[quarter] = base;
    kv.values[quarter] = base + half;
    kv.key_scales[quarter] = base + kv.width * kQuarter * element;
    kv.value_scales[quarter] = kv.key_scales[quarter] + half;
    kv.in_block[quarter] = 0;
  }
  return kv;
}

// Whether all that a query attends to is also on the path of `longer`, whose
// position is not before its own.
inline bool IsOnPathOf(const AttentionQuery& longer,
                       const AttentionQuery& query) {
  if (query.position < std::min(longer.tail_begin, query.tail_begin)) {
    return true;
  }
  return longer.tail_begin == query.tail_begin &&
         std::equal(query.tail_slots,
                    query.tail_slots + (query.position + 1 - query.tail_begin),
                    longer.tail_slots);
}

// The queries of a tile that attend to a split on one path: the path of the one
// that stands furthest of those which are left. The others of `path` stand
// before every position.
struct PathQueries {
  AttentionTile path;
  const AttentionQuery* longest = nullptr;  // null: none was left
};

inline PathQueries TakePath(const AttentionTile& tile, int begin,
                            bool (&taken)[kMaxAttentionTile]) {
  PathQueries queries;
  for (int i = 0; i < tile.count; ++i) {
    const AttentionQuery& query = tile.queries[i];
    if (taken[i] || query.position < begin) continue;
    if (queries.longest == nullptr ||
        query.position > queries.longest->position) {
      queries.longest = &query;
    }
  }
  if (queries.longest == nullptr) return queries;
  queries.path = tile;
  for (int i = 0; i < tile.count; ++i) {
    if (taken[i] || !IsOnPathOf(*queries.longest, tile.queries[i])) {
      queries.path.queries[i].position = -1;
    } else {
      taken[i] = true;
    }
  }
  return queries;
}

}  // namespace HWY_NAMESPACE
}  // namespace nacre::kernels
HWY_AFTER_NAMESPACE();

#endif  // KERNELS_CPU_ATTENTION_TAILS_INL_H_
