// A backend whose ops take host memory: it brings operands to the device of
// another one and results back. So tests of a device read like those of the
// CPU.
//
// As the backend behind it, which it owns.

#ifndef TESTS_KERNELS_CUDA_HOST_VIEW_H_
#define TESTS_KERNELS_CUDA_HOST_VIEW_H_

#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"

namespace nacre::kernels {

class HostView : public Backend {
 public:
  explicit HostView(std::unique_ptr<Backend> backend)
      : backend_(std::move(backend)) {}

  std::string numerics_id() const override { return backend_->numerics_id(); }
  DType kv_type() const override { return backend_->kv_type(); }
  std::string description() const override { return backend_->description(); }
  void BindComputeThread() override { backend_->BindComputeThread(); }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return backend_->Allocate(bytes);
  }
  void CopyFromHost(const void* host, size_t bytes, void* device) override {
    backend_->CopyFromHost(host, bytes, device);
  }
  void CopyToHost(const void* device, size_t bytes, void* host) override {
    backend_->CopyToHost(device, bytes, host);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateOnHost(
      size_t bytes) override {
    return backend_->AllocateOnHost(bytes);
  }
  void QueueCopyToHost(const void* device, size_t bytes, void* host) override {
    backend_->QueueCopyToHost(device, bytes, host);
  }
  absl::Status Synchronize() override { return backend_->Synchronize(); }
  int64_t PackedBytes(absl::Span<const HostMatrix> parts) const override {
    return backend_->PackedBytes(parts);
  }
  absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(
      absl::Span<const HostMatrix> parts) override {
    return backend_->Pack(parts);
  }
  absl::StatusOr<std::unique_ptr<PackedMatrix>> PackFor(
      absl::Span<const HostMatrix> parts, PackHints hints) override {
    return backend_->PackFor(parts, hints);
  }
  absl::StatusOr<std::unique_ptr<PackedTable>> PackTable(
      const HostMatrix& table) override {
    return backend_->PackTable(table);
  }

  void MatMul(const float* x, int rows, const PackedMatrix& w,
              float* y) override;
  void Embed(const PackedTable& table, absl::Span<const int32_t> ids,
             float* out) override;
  void RmsNorm(const float* x, int rows, int cols, const float* weight,
               float epsilon, float* out) override;
  void LayerNorm(const float* x, int rows, int cols, const float* weight,
                 const float* bias, float epsilon, float* out) override;
  void Rope(float* x, int rows, int row_stride, int num_heads, int head_dim,
            const float* cos, const float* sin) override;
  void StoreKv(const float* k, const float* v, int row_stride,
               absl::Span<const RowContext> contexts,
               const KvLayer& layer) override;
  void MoveKv(absl::Span<const KvMove> moves,
              absl::Span<const KvLayer> layers) override;
  void Attention(const float* q, int q_stride, int num_heads,
                 const AttentionRule& rule,
                 absl::Span<const RowContext> contexts, const KvLayer& layer,
                 float* out) override;
  void SiluMul(const float* gate_up, int rows, int cols, float* out) override;
  void GeluMul(const float* gate_up, int rows, int cols, float* out) override;
  void Gelu(float* x, int rows, int cols, GeluForm form) override;
  void Scale(float* x, size_t count, float factor) override;
  void SoftCap(float* x, size_t count, float cap) override;
  void AddInPlace(float* x, const float* y, size_t count) override;
  void AddParts(float* parts, int num_parts, size_t count, float* sum) override;
  void AddBias(float* x, int rows, int cols, const float* bias) override;
  void TakeColumns(const float* x, int rows, int stride, int first, int cols,
                   float* out) override;
  void GatherRows(const float* x, absl::Span<const int32_t> rows, int cols,
                  float* out) override;
  void CombineRows(float* y, absl::Span<const int32_t> rows,
                   absl::Span<const float> weights, int parts, int cols,
                   float* out) override;
  void RunStep(int rows, absl::FunctionRef<void()> ops) override {
    backend_->RunStep(rows, ops);
  }
  void NormMatMul(const float* x, int rows, const float* weight, float epsilon,
                  const PackedMatrix& w, float* normed, float* y) override;
  void MatMulAdd(const float* x, int rows, const PackedMatrix& w,
                 const float* residual, float* y) override;
  void SiluMatMulAdd(const float* gate_up, int rows, const PackedMatrix& w,
                     const float* residual, float* gated, float* y) override;
  void RopeStoreKv(float* qkv, int num_heads, const float* cos,
                   const float* sin, absl::Span<const RowContext> contexts,
                   const KvLayer& layer) override;
  // These two bring back what stands in scratch.gate_up, unless it is null, and
  // in the places of keys and values of qkv: what was there before, if no
  // kernel wrote it.
  void NormSiluMatMulAdd(const NormedRows& in, const PackedMatrix& gate_up,
                         const PackedMatrix& down, const float* residual,
                         const GateScratch& scratch, float* y) override;
  void NormMatMulRopeStoreKv(const NormedRows& in, const PackedMatrix& w,
                             const float* bias, const HeadAngles& angles,
                             absl::Span<const RowContext> contexts,
                             const KvLayer& layer, float* qkv) override;

 private:
  const std::unique_ptr<Backend> backend_;
};

// The cuda backend, seen from the host. Null where there is no GPU: then the
// test skips. The emulated device is always there.
std::unique_ptr<Backend> MakeCudaBackend(const std::string& weights = "auto",
                                         const std::string& kv_type = "f32");

// In every test that calls it.
#define NACRE_SKIP_WITHOUT_GPU(backend) \
  if ((backend) == nullptr) GTEST_SKIP() << "no CUDA device"

}  // namespace nacre::kernels

#endif  // TESTS_KERNELS_CUDA_HOST_VIEW_H_
