#include "kernels/cpu/attention.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <algorithm>
#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/kv_address.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::kernels {
namespace HWY_NAMESPACE {

constexpr int kSplitPositions = 64;

// The keys or values of positions that lie behind each other in one KV block.
struct Run {
  size_t index;  // of the first, into KvLayer::keys and ::values
  int offset;    // of the first, in its split
  int count;
};

// Divides positions [begin, end) of one split into runs.       runs [end -
// begin]
int FindRuns(const RowContext& context, const KvLayer& layer, int kv_head,
             int begin, int end, Run* runs) {
  int count = 0;
  for (int p = begin; p < end;) {
    const int block_end = (p / layer.block_size + 1) * layer.block_size;
    const int run_end = std::min(end, block_end);
    runs[count++] = {KvIndex(layer, context, p, kv_head), p - begin,
                     run_end - p};
    p = run_end;
  }
  return count;
}

// Lane products of q and one key, not yet summed. q is padded with zeros.
HWY_INLINE VF32 DotLanes(const float* q, const float* key, size_t head_dim) {
  const F32 df;
  const size_t lanes = FloatLanes();
  VF32 sum = hn::Zero(df);
  size_t j = 0;
  for (; j + lanes <= head_dim; j += lanes) {
    sum = hn::MulAdd(hn::Load(df, q + j), hn::LoadU(df, key + j), sum);
  }
  if (j < head_dim) {
    sum = hn::MulAdd(hn::Load(df, q + j), LoadTail(key + j, head_dim - j), sum);
  }
  return sum;
}

// scores[p] = q . keys[p]; room for 3 more scores behind `count`.
HWY_INLINE void Scores(const float* q, const float* keys, size_t head_dim,
                       int count, float* scores) {
  for (int p = 0; p < count; p += 4) {
    VF32 sums[4];
    for (int i = 0; i < 4; ++i) {
      const float* key = keys + std::min(p + i, count - 1) * head_dim;
      sums[i] = DotLanes(q, key, head_dim);
    }
    StoreSums4(sums[0], sums[1], sums[2], sums[3], scores + p);
  }
}

// The largest of `initial` and scores [kSplitPositions].
HWY_INLINE float Maximum(float initial, const float* scores) {
  const F32 df;
  VF32 maximum = hn::Set(df, initial);
  for (size_t p = 0; p < kSplitPositions; p += FloatLanes()) {
    maximum = hn::Max(maximum, hn::Load(df, scores + p));
  }
  return hn::GetLane(hn::MaxOfLanes(df, maximum));
}

// Turns scores [kSplitPositions] into e^(score - maximum); returns their sum.
HWY_INLINE float Exponentiate(float maximum, float* scores) {
  const F32 df;
  const size_t lanes = FloatLanes();
  const VF32 subtrahend = hn::Set(df, maximum);
  VF32 sum = hn::Zero(df);
  for (size_t p = 0; p < kSplitPositions; p += lanes) {
    const VF32 e = Exp(hn::Sub(hn::Load(df, scores + p), subtrahend));
    hn::Store(e, df, scores + p);
    sum = hn::Add(sum, e);
  }
  return SumLanes(sum);
}

// total = total * rescale + sum_p weights[p] * values[p], for kVectors vectors
// of elements from element j on.
template <int kVectors>
HWY_INLINE void AddValues(const float* values, const Run* runs, int num_runs,
                          const float* weights, size_t head_dim, size_t j,
                          VF32 rescale, float* total) {
  const F32 df;
  const size_t lanes = FloatLanes();
  VF32 sums[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    sums[v] = hn::Mul(hn::Load(df, total + j + v * lanes), rescale);
  }
  for (int r = 0; r < num_runs; ++r) {
    const float* value = values + runs[r].index + j;
    for (int p = 0; p < runs[r].count; ++p, value += head_dim) {
      const VF32 weight = hn::Set(df, weights[runs[r].offset + p]);
      for (int v = 0; v < kVectors; ++v) {
        sums[v] = hn::MulAdd(weight, hn::LoadU(df, value + v * lanes), sums[v]);
      }
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    hn::Store(sums[v], df, total + j + v * lanes);
  }
}

HWY_INLINE void AddValuesTail(const float* values, const Run* runs,
                              int num_runs, const float* weights,
                              size_t head_dim, size_t j, VF32 rescale,
                              float* total) {
  const F32 df;
  VF32 sum = hn::Mul(hn::Load(df, total + j), rescale);
  for (int r = 0; r < num_runs; ++r) {
    const float* value = values + runs[r].index + j;
    for (int p = 0; p < runs[r].count; ++p, value += head_dim) {
      const VF32 weight = hn::Set(df, weights[runs[r].offset + p]);
      sum = hn::MulAdd(weight, LoadTail(value, head_dim - j), sum);
    }
  }
  hn::Store(sum, df, total + j);
}

void Head(const float* q_in, float scale, const RowContext& context,
          int kv_head, const KvLayer& layer, float* out) {
  const F32 df;
  const size_t lanes = FloatLanes();
  const size_t head_dim = static_cast<size_t>(layer.head_dim);
  HWY_ALIGN float q[kMaxHeadDim];
  HWY_ALIGN float total[kMaxHeadDim];
  HWY_ALIGN float scores[kSplitPositions + 4];
  Run runs[kSplitPositions];
  const size_t padded = (head_dim + lanes - 1) / lanes * lanes;
  for (size_t j = 0; j < head_dim; ++j) q[j] = q_in[j] * scale;
  std::fill(q + head_dim, q + padded, 0.0f);
  std::fill(total, total + padded, 0.0f);

  float maximum = -std::numeric_limits<float>::infinity();
  float normalizer = 0;
  for (int begin = 0; begin <= context.position; begin += kSplitPositions) {
    const int end = std::min(begin + kSplitPositions, context.position + 1);
    const int num_runs = FindRuns(context, layer, kv_head, begin, end, runs);
    for (int r = 0; r < num_runs; ++r) {
      Scores(q, layer.keys + runs[r].index, head_dim, runs[r].count,
             scores + runs[r].offset);
    }
    std::fill(scores + (end - begin), scores + kSplitPositions,
              -std::numeric_limits<float>::infinity());
    const float new_maximum = Maximum(maximum, scores);
    const float rescale = hn::GetLane(Exp(hn::Set(df, maximum - new_maximum)));
    maximum = new_maximum;
    normalizer = normalizer * rescale + Exponentiate(maximum, scores);

    const VF32 factor = hn::Set(df, rescale);
    size_t j = 0;
    for (; j + 4 * lanes <= head_dim; j += 4 * lanes) {
      AddValues<4>(layer.values, runs, num_runs, scores, head_dim, j, factor,
                   total);
    }
    for (; j + lanes <= head_dim; j += lanes) {
      AddValues<1>(layer.values, runs, num_runs, scores, head_dim, j, factor,
                   total);
    }
    if (j < head_dim) {
      AddValuesTail(layer.values, runs, num_runs, scores, head_dim, j, factor,
                    total);
    }
  }
  for (size_t j = 0; j < head_dim; ++j) out[j] = total[j] / normalizer;
}

AttentionKernels GetAttentionKernels() { return {Head}; }

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
