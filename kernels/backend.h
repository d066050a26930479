// Math operations a transformer needs, on one device. START HERE in kernels/.
// Implementations: reference/ (scalar, double accumulation: the truth), cpu/
// (SIMD, pinned threads), cuda/ (one NVIDIA GPU). Ops know nothing about models
// or sessions.
//
// Conventions for every op:
//   * Shapes are [rows, cols], row-major, contiguous; activations are float32.
//   * Pointers are to this backend's memory (Allocate); inputs and outputs do
//     not overlap unless the op says "in place".
//   * Batch invariance, the contract that makes speculation exact: each output
//     row is a function of its own inputs alone, bit for bit, whatever the
//     number of rows, their order or the thread count. Reductions run in an
//     order fixed by the shape of the weights and by absolute positions.
//   * Shapes that disagree are our own bug: checked, fatal.
//   * What can fail at run time is Allocate, AllocateOnHost, Pack, PackTable
//     and Synchronize; the other ops leave their errors to Synchronize.
//
// Thread-compatible: one thread (the engine's) calls the ops of a backend.

#ifndef KERNELS_BACKEND_H_
#define KERNELS_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/device_memory.h"
#include "kernels/dtype.h"
#include "kernels/float_view.h"
#include "kernels/kv_layer.h"

namespace nacre::kernels {

class TokenDrawer;  // kernels/token_drawer.h

// Memory on the backend's device, 64-byte aligned, freed with the object.
// Contents start as zero.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() = 0;
  virtual size_t size_bytes() const = 0;
  float* f32() { return static_cast<float*>(data()); }
};

// A weight matrix W [rows, cols] in the layout this backend multiplies with.
// Immutable; lives as long as its owner keeps it, at most as long as the
// backend.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  virtual int rows() const = 0;  // outputs
  virtual int cols() const = 0;  // inputs
};

// An embedding table where this backend's Embed reads it. Immutable; lives as a
// PackedMatrix does.
class PackedTable {
 public:
  virtual ~PackedTable() = default;
  virtual int rows() const = 0;  // vocabulary
  virtual int cols() const = 0;
};

// Weights in host memory as a checkpoint holds them, row-major [rows, cols].
struct HostMatrix {
  DType dtype = DType::kF32;
  const void* data = nullptr;  // any alignment
  int rows = 0;
  int cols = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Names everything that decides bits: backend, SIMD target or SM, weight and
  // KV types, kernel version; e.g. "cpu-avx3-kvf32-v3". Two workers with equal
  // ids and equal weights compute equal logits.
  virtual std::string numerics_id() const = 0;

  // Type that keys and values are to be kept in (KvLayer::type).
  virtual DType kv_type() const = 0;

  // One line for the start-up log, e.g. "cpu (AVX3, 2 threads on cores 0,1)".
  virtual std::string description() const = 0;

  // Called once by the thread that will call the ops: pins it to its core.
  virtual void BindComputeThread() = 0;

  // Where the memory of Allocate lies.
  virtual Location location() const { return Location::kHost; }

  // Memory that Allocate, Pack and PackTable take; none where it is the host's,
  // which everything else on the machine shares.
  virtual absl::optional<DeviceMemory> Memory() { return absl::nullopt; }

  // Bytes of it that Pack takes for these.
  virtual int64_t PackedBytes(absl::Span<const HostMatrix> parts) const {
    static_cast<void>(parts);
    return 0;
  }

  // RESOURCE_EXHAUSTED when the device has no room, or none that
  // BackendOptions::max_memory_bytes allows.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) = 0;
  // `host` may be changed when the call returns.
  virtual void CopyFromHost(const void* host, size_t bytes, void* device) = 0;
  // Waits for enqueued ops; what is copied is good if Synchronize says so
  // afterwards.
  virtual void CopyToHost(const void* device, size_t bytes, void* host) = 0;

  // Host memory that results are brought to at full speed, without a wait for
  // each. RESOURCE_EXHAUSTED when the host has no room.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> AllocateOnHost(size_t bytes) {
    return Allocate(bytes);  // of a device that is the host
  }
  // Queues a copy to memory of AllocateOnHost. The copy is there after the next
  // Synchronize, or WaitFor of a later mark; the memory lives until then.
  virtual void QueueCopyToHost(const void* device, size_t bytes, void* host) {
    CopyToHost(device, bytes, host);
  }
  // Waits for enqueued ops; INTERNAL with the device's own message on failure
  // (RESOURCE_EXHAUSTED when an op found no room), from then on.
  virtual absl::Status Synchronize() = 0;

  // Everything queued so far. WaitFor waits for that, and not for what was
  // queued behind it; else it is as Synchronize. For one of the last two marks.
  virtual int64_t Mark() { return 0; }
  virtual absl::Status WaitFor(int64_t mark) {
    static_cast<void>(mark);
    return Synchronize();
  }

  // Repacks weights; several matrices with equal cols are stacked by rows (q, k
  // and v; gate and up). Copies: `parts` may go away afterwards.
  virtual absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(
      absl::Span<const HostMatrix> parts) = 0;

  // Keeps the table's elements as they are. Copies: what table.data points to
  // may go away afterwards.
  virtual absl::StatusOr<std::unique_ptr<PackedTable>> PackTable(
      const HostMatrix& table) = 0;

  // y[i, o] = sum_k x[i, k] * w[o, k]        x [rows, w.cols], y [rows, w.rows]
  virtual void MatMul(const float* x, int rows, const PackedMatrix& w,
                      float* y) = 0;

  // out[i, :] = table[ids[i], :]. ids are host memory, each in [0, table.rows).
  //   out [ids.size, table.cols]
  virtual void Embed(const PackedTable& table, absl::Span<const int32_t> ids,
                     float* out) = 0;

  // Embed of ids that never were on the host: of token_drawer(), unchecked.
  // kUnsoundDraw stands for any row.   ids [count], the device's
  virtual void EmbedDrawn(const PackedTable& table, const int32_t* ids,
                          int count, float* out);

  // out[i, j] = x[i, j] / sqrt(mean_j(x[i, j]^2) + epsilon) * weight[j]
  //   x, out [rows, cols] (out may be x), weight [cols]
  virtual void RmsNorm(const float* x, int rows, int cols, const float* weight,
                       float epsilon, float* out) = 0;

  // Rotary embedding, in place. The two halves of a head are pairs (Hugging
  // Face's "rotate_half"). With h = head_dim / 2, for each j < h:
  //   new x[j]     = x[j] * cos[j] - x[j + h] * sin[j]
  //   new x[j + h] = x[j + h] * cos[j] + x[j] * sin[j]
  // x: row i starts at x + i * row_stride, [num_heads * head_dim]
  // cos, sin [rows, head_dim / 2]
  virtual void Rope(float* x, int rows, int row_stride, int num_heads,
                    int head_dim, const float* cos, const float* sin) = 0;

  // Writes row i's key and value at contexts[i].position of its session (into
  // the last slot of its tail, if it has one), rounded to nearest (ties to
  // even) where the layer is bf16.
  //   k, v: row i at k + i * row_stride, [num_kv_heads * head_dim]
  virtual void StoreKv(const float* k, const float* v, int row_stride,
                       absl::Span<const RowContext> contexts,
                       const KvLayer& layer) = 0;

  // Copies keys and values of all layers, which are of one shape. No slot is
  // written twice, and none is read and written: the moves have no order.
  virtual void MoveKv(absl::Span<const KvMove> moves,
                      absl::Span<const KvLayer> layers);

  // Causal grouped-query attention over the paged cache:
  //   out[i, h] = softmax(q[i, h] . K[0..position_i] * scale) V[0..position_i]
  // query head h reads KV head h / (num_heads / num_kv_heads). The rows' own
  // keys and values must have been stored. Sums are ordered by position, also
  // over a tail: a row has the bits of the chain that its path spells.
  //   q: row i at q + i * q_stride, [num_heads * head_dim];
  //   out [rows, num_heads * head_dim]
  virtual void Attention(const float* q, int q_stride, int num_heads,
                         float scale, absl::Span<const RowContext> contexts,
                         const KvLayer& layer, float* out) = 0;

  // out[i, j] = silu(gate_up[i, j]) * gate_up[i, cols + j]
  //   gate_up [rows, 2 * cols], out [rows, cols]
  virtual void SiluMul(const float* gate_up, int rows, int cols,
                       float* out) = 0;

  // x[i] += y[i], in place                                         x, y [count]
  virtual void AddInPlace(float* x, const float* y, size_t count) = 0;

  // x[i, j] += bias[j], in place                x [rows, cols], bias [cols]
  virtual void AddBias(float* x, int rows, int cols, const float* bias);

  // Runs `ops`: ops of this backend for `rows` rows that go through a model
  // together. The ops do what they do outside of a step. Memory that they use
  // stays allocated until RunStep returns. A device may record the ops and
  // replay the recording in later steps.
  virtual void RunStep(int rows, absl::FunctionRef<void()> ops);

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

  // Draws tokens on the device; its owner is the backend. Null: it does not.
  virtual TokenDrawer* token_drawer() { return nullptr; }
};

}  // namespace nacre::kernels

#endif  // KERNELS_BACKEND_H_
