// Keys and values in their paged cache, and attention over them.
//
// A part of Backend, and under its conventions and threads (backend.h).

#ifndef KERNELS_ATTENTION_OPS_H_
#define KERNELS_ATTENTION_OPS_H_

#include <algorithm>
#include <limits>

#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "kernels/kv_layer.h"

namespace nacre::kernels {

inline constexpr int kNoWindow = std::numeric_limits<int>::max();

// How the scores of a model's layer become weights.
struct AttentionRule {
  // Most layers have a scale only.
  AttentionRule(float scale_of_scores)  // NOLINT(google-explicit-constructor)
      : scale(scale_of_scores) {}

  // The first position that a row attends to.
  int First(int position) const { return std::max(0, position + 1 - window); }

  float scale;
  int window = kNoWindow;  // positions attended to, the row's own the last
  // Scores become soft_cap * tanh(score / soft_cap); 0: they stay.
  float soft_cap = 0;
};

class AttentionOps {
 public:
  virtual ~AttentionOps() = default;

  // Type that keys and values are to be kept in (KvLayer::type).
  virtual DType kv_type() const = 0;

  // Writes row i's key and value at contexts[i].position of its session, or
  // into the last slot of its tail, if it has one. A layer of bf16 rounds them
  // to nearest (ties to even). One of int8 makes integers of them, and a scale
  // for each head's key and value, as QuantizeActivations does
  // (quantization.h). Rows that are added for nothing (Backend::step_sizes) may
  // share a slot, all others have their own.
  //   k, v: row i at k + i * row_stride, [num_kv_heads * head_dim]
  virtual void StoreKv(const float* k, const float* v, int row_stride,
                       absl::Span<const RowContext> contexts,
                       const KvLayer& layer) = 0;

  // Copies keys and values of all layers, which are of one shape. No slot is
  // written twice, and none is read and written: the moves have no order.
  virtual void MoveKv(absl::Span<const KvMove> moves,
                      absl::Span<const KvLayer> layers);

  // Causal grouped-query attention over the paged cache:
  //   out[i, h] = softmax(cap(q[i, h] . K[f..position_i] * scale))
  //               V[f..position_i],   f = rule.First(position_i)
  // query head h reads KV head h / (num_heads / num_kv_heads). The rows' own
  // keys and values must have been stored. Sums are ordered by position, also
  // over a tail: a row has the bits of the chain that its path spells.
  //   q: row i at q + i * q_stride, [num_heads * head_dim];
  //   out [rows, num_heads * head_dim]
  virtual void Attention(const float* q, int q_stride, int num_heads,
                         const AttentionRule& rule,
                         absl::Span<const RowContext> contexts,
                         const KvLayer& layer, float* out) = 0;
};

}  // namespace nacre::kernels

#endif  // KERNELS_ATTENTION_OPS_H_
