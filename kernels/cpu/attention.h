// Causal attention of one query head over a paged cache.
//
// Positions are taken in splits of 64, counted from position 0, with a running
// maximum and sum (online softmax: Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018). The order of every sum follows from the
// position and head_dim alone.

#ifndef KERNELS_CPU_ATTENTION_H_
#define KERNELS_CPU_ATTENTION_H_

#include "kernels/backend.h"

namespace nacre::kernels {

inline constexpr int kMaxHeadDim = 512;

struct AttentionKernels {
  // out = softmax(q . K[0..position] * scale) V[0..position] for one KV head.
  //   q, out [layer.head_dim], head_dim <= kMaxHeadDim
  void (*head)(const float* q, float scale, const RowContext& context,
               int kv_head, const KvLayer& layer, float* out);
};

// The table of the best target that this CPU supports.
AttentionKernels ChooseAttentionKernels();

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_ATTENTION_H_
