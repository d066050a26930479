// Math operations a transformer needs, on one device. START HERE in kernels/.
// Implementations: reference/ (scalar, double accumulation: the truth), cpu/
// (SIMD, pinned threads), cuda/ (one NVIDIA GPU). Ops know nothing about models
// or sessions. Four groups of ops have headers of their own, for those who use
// no others:
//
//   memory_ops.h     memory, copies, waits
//   product_ops.h    weights, products, tables
//   row_ops.h        norms, gates, rotary embedding, sums
//   attention_ops.h  the KV cache, attention
//
// Conventions for every op:
//   * Shapes are [rows, cols], row-major, contiguous; activations are float32.
//   * Pointers are to this backend's memory (Allocate); inputs and outputs do
//     not overlap unless the op says "in place".
//   * Batch invariance, the contract that makes speculation exact: each output
//     row is a function of its own inputs alone, bit for bit. The number of
//     rows, their order and the thread count change nothing. Reductions run in
//     an order fixed by the shape of the weights and by absolute positions.
//   * Shapes that disagree are our own bug: checked, fatal.
//   * What can fail at run time is Allocate, AllocateOnHost, Pack, PackTable
//     and Synchronize; the other ops leave their errors to Synchronize.
//
// Thread-compatible: one thread (the engine's) calls the ops of a backend.

#ifndef KERNELS_BACKEND_H_
#define KERNELS_BACKEND_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/attention_ops.h"
#include "kernels/graph_counts.h"
#include "kernels/kv_layer.h"
#include "kernels/memory_ops.h"
#include "kernels/product_ops.h"
#include "kernels/row_ops.h"
#include "kernels/step_inputs.h"

namespace nacre::kernels {

class PromptProducts;  // kernels/prompt_products.h
class TokenDrawer;     // kernels/token_drawer.h

// What RmsNorm is told.
struct NormedRows {
  const float* x = nullptr;  // [rows, cols]
  int rows = 0;
  const float* weight = nullptr;  // [cols]
  float epsilon = 0;
  float* normed = nullptr;  // [rows, cols]: scratch
};

// [rows, 2 * cols] and [rows, cols]: scratch.
struct GateScratch {
  float* gate_up = nullptr;
  float* gated = nullptr;
};

// What Rope is told of queries, and keys.
struct HeadAngles {
  int num_heads = 0;           // of queries
  const float* cos = nullptr;  // [rows, head_dim / 2]
  const float* sin = nullptr;
};

class Backend : public MemoryOps,
                public ProductOps,
                public RowOps,
                public AttentionOps {
 public:
  // Names everything that decides bits: backend, SIMD target or SM, weight and
  // KV types, kernel version; e.g. "cpu-avx3-kvf32-v3". Two workers with equal
  // ids and equal weights compute equal logits.
  virtual std::string numerics_id() const = 0;

  // One line for the start-up log, e.g. "cpu (AVX3, 2 threads on cores 0,1)".
  virtual std::string description() const = 0;

  // Called once by the thread that will call the ops: pins it to its core.
  virtual void BindComputeThread() = 0;

  // What the ops of the step that comes next will be told by the host, to be
  // sent together. Where `values` lie for those ops, until the next call; null
  // after an error. A device that is the host sends nothing.
  virtual const float* SendInputs(const StepInputs& inputs) {
    return inputs.values.data();
  }
  // Runs `ops`: ops of this backend for `rows` rows that go through a model
  // together. The ops do what they do outside of a step. Memory that they use
  // stays allocated until RunStep returns. A device may record the ops and
  // replay the recording in later steps.
  virtual void RunStep(int rows, absl::FunctionRef<void()> ops);
  // What came of its recordings. Any thread.
  virtual GraphCounts graph_counts() const { return {}; }
  // Numbers of rows, rising. Steps of these sizes repeat, so that a model adds
  // rows without use to a step until it has one. Empty: it adds none.
  virtual absl::Span<const int> step_sizes() const { return {}; }

  // What a layer is made of: the ops above, one after another, with their bits.
  // A device where each op is a launch may join them. Scratch holds nothing of
  // use afterwards.

  // y = RmsNorm(x) W^T
  //   x [rows, w.cols], weight [w.cols], y [rows, w.rows]
  //   normed [rows, w.cols]: scratch
  virtual void NormMatMul(const float* x, int rows, const float* weight,
                          float epsilon, const PackedMatrix& w, float* normed,
                          float* y);

  // y = x W^T + residual           x [rows, w.cols], residual, y [rows, w.rows]
  virtual void MatMulAdd(const float* x, int rows, const PackedMatrix& w,
                         const float* residual, float* y);

  // y = SiluMul(gate_up) W^T + residual
  //   gate_up [rows, 2 * w.cols], residual, y [rows, w.rows]
  //   gated [rows, w.cols]: scratch
  virtual void SiluMatMulAdd(const float* gate_up, int rows,
                             const PackedMatrix& w, const float* residual,
                             float* gated, float* y);

  // Rope of the queries, in place, and of the keys; then StoreKv. Afterwards
  // the place of the keys holds nothing of use.
  //   qkv [contexts.size, (num_heads + 2 * layer.num_kv_heads) * head_dim]:
  //   queries, keys, values; head_dim is layer.head_dim, even
  virtual void RopeStoreKv(float* qkv, int num_heads, const float* cos,
                           const float* sin,
                           absl::Span<const RowContext> contexts,
                           const KvLayer& layer);

  // NormMatMul to scratch.gate_up, and SiluMatMulAdd of that. Fewer launches
  // where gate_up is packed in pairs (PackHints): rows of gate and up.
  virtual void NormSiluMatMulAdd(const NormedRows& in,
                                 const PackedMatrix& gate_up,
                                 const PackedMatrix& down,
                                 const float* residual,
                                 const GateScratch& scratch, float* y);

  // NormMatMul to qkv, AddBias where `bias` is not null, and RopeStoreKv.
  // Afterwards the places of keys and values hold nothing of use. Fewer
  // launches where w is packed in pairs: halves of heads.
  virtual void NormMatMulRopeStoreKv(const NormedRows& in,
                                     const PackedMatrix& w, const float* bias,
                                     const HeadAngles& angles,
                                     absl::Span<const RowContext> contexts,
                                     const KvLayer& layer, float* qkv);

  // Draws tokens on the device; its owner is the backend. Null: it does not.
  virtual TokenDrawer* token_drawer() { return nullptr; }

  // Multiplies rows of prompts otherwise than others; likewise.
  virtual PromptProducts* prompt_products() { return nullptr; }
};

}  // namespace nacre::kernels

#endif  // KERNELS_BACKEND_H_
