// A backend that does what another one does, but for what derived classes do
// otherwise: memory, attention and what each row is computed of by itself.
//
// Owns the other one, and is under its threads.

#ifndef KERNELS_FORWARDED_BACKEND_H_
#define KERNELS_FORWARDED_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/backend.h"

namespace nacre::kernels {

// All but row ops and products.
class ForwardedMemory : public Backend {
 public:
  void BindComputeThread() override { inner_->BindComputeThread(); }
  const float* SendInputs(const StepInputs& inputs) override {
    return inner_->SendInputs(inputs);
  }
  void RunStep(int rows, absl::FunctionRef<void()> ops) override {
    inner_->RunStep(rows, ops);
  }
  GraphCounts graph_counts() const override { return inner_->graph_counts(); }
  absl::Span<const int> step_sizes() const override {
    return inner_->step_sizes();
  }

  Location location() const override { return inner_->location(); }
  absl::optional<DeviceMemory> Memory() override { return inner_->Memory(); }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  void CopyFromHost(const void* host, size_t bytes, void* device) override {
    inner_->CopyFromHost(host, bytes, device);
  }
  void CopyToHost(const void* device, size_t bytes, void* host) override {
    inner_->CopyToHost(device, bytes, host);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateOnHost(
      size_t bytes) override {
    return inner_->AllocateOnHost(bytes);
  }
  void QueueCopyToHost(const void* device, size_t bytes, void* host) override {
    inner_->QueueCopyToHost(device, bytes, host);
  }
  absl::Status Synchronize() override { return inner_->Synchronize(); }
  void* Stream() override { return inner_->Stream(); }
  int64_t Mark() override { return inner_->Mark(); }
  absl::Status WaitFor(int64_t mark) override { return inner_->WaitFor(mark); }

  DType kv_type() const override { return inner_->kv_type(); }
  void StoreKv(const float* k, const float* v, int row_stride,
               absl::Span<const RowContext> contexts,
               const KvLayer& layer) override {
    inner_->StoreKv(k, v, row_stride, contexts, layer);
  }
  void MoveKv(absl::Span<const KvMove> moves,
              absl::Span<const KvLayer> layers) override {
    inner_->MoveKv(moves, layers);
  }
  void Attention(const float* q, int q_stride, int num_heads,
                 const AttentionRule& rule,
                 absl::Span<const RowContext> contexts, const KvLayer& layer,
                 float* out) override {
    inner_->Attention(q, q_stride, num_heads, rule, contexts, layer, out);
  }
  void RopeStoreKv(float* qkv, int num_heads, const float* cos,
                   const float* sin, absl::Span<const RowContext> contexts,
                   const KvLayer& layer) override {
    inner_->RopeStoreKv(qkv, num_heads, cos, sin, contexts, layer);
  }

 protected:
  explicit ForwardedMemory(std::unique_ptr<Backend> inner)
      : inner_(std::move(inner)) {}

  const std::unique_ptr<Backend> inner_;
};

// All but products.
class ForwardedBackend : public ForwardedMemory {
 public:
  void RmsNorm(const float* x, int rows, int cols, const float* weight,
               float epsilon, float* out) override {
    inner_->RmsNorm(x, rows, cols, weight, epsilon, out);
  }
  void LayerNorm(const float* x, int rows, int cols, const float* weight,
                 const float* bias, float epsilon, float* out) override {
    inner_->LayerNorm(x, rows, cols, weight, bias, epsilon, out);
  }
  void NormHeads(float* x, int rows, int row_stride, int num_heads,
                 int head_dim, const float* weight, float epsilon) override {
    inner_->NormHeads(x, rows, row_stride, num_heads, head_dim, weight,
                      epsilon);
  }
  void Rope(float* x, int rows, int row_stride, int num_heads, int head_dim,
            const float* cos, const float* sin) override {
    inner_->Rope(x, rows, row_stride, num_heads, head_dim, cos, sin);
  }
  void SiluMul(const float* gate_up, int rows, int cols, float* out) override {
    inner_->SiluMul(gate_up, rows, cols, out);
  }
  void GeluMul(const float* gate_up, int rows, int cols, float* out) override {
    inner_->GeluMul(gate_up, rows, cols, out);
  }
  void Gelu(float* x, int rows, int cols, GeluForm form) override {
    inner_->Gelu(x, rows, cols, form);
  }
  void Scale(float* x, size_t count, float factor) override {
    inner_->Scale(x, count, factor);
  }
  void SoftCap(float* x, size_t count, float cap) override {
    inner_->SoftCap(x, count, cap);
  }
  void AddInPlace(float* x, const float* y, size_t count) override {
    inner_->AddInPlace(x, y, count);
  }
  void AddParts(float* parts, int num_parts, size_t count,
                float* sum) override {
    inner_->AddParts(parts, num_parts, count, sum);
  }
  void AddBias(float* x, int rows, int cols, const float* bias) override {
    inner_->AddBias(x, rows, cols, bias);
  }
  void TakeColumns(const float* x, int rows, int stride, int first, int cols,
                   float* out) override {
    inner_->TakeColumns(x, rows, stride, first, cols, out);
  }
  void GatherRows(const float* x, absl::Span<const int32_t> rows, int cols,
                  float* out) override {
    inner_->GatherRows(x, rows, cols, out);
  }
  void CombineRows(float* y, absl::Span<const int32_t> rows,
                   absl::Span<const float> weights, int parts, int cols,
                   float* out) override {
    inner_->CombineRows(y, rows, weights, parts, cols, out);
  }

 protected:
  using ForwardedMemory::ForwardedMemory;
};

}  // namespace nacre::kernels

#endif  // KERNELS_FORWARDED_BACKEND_H_
