// The backend on one NVIDIA GPU (compute capability 8.0 and later). Weights
// stay bf16 where the checkpoint has bf16 (or --weights bf16 asks for it); then
// activations are rounded to bf16 before each product, products are summed in
// float32. Elsewhere weights and products are float32. Everything between
// products is float32.
//
// Ops only queue work: the host waits in Synchronize, CopyToHost and Allocate,
// and when it is megabytes of uploads ahead. No op allocates once it has seen
// its largest number of rows.

#ifndef KERNELS_CUDA_CUDA_BACKEND_H_
#define KERNELS_CUDA_CUDA_BACKEND_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_matrix.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/paged_batch.h"
#include "kernels/cuda/staging.h"
#include "kernels/host_memory.h"

namespace nacre::kernels {

class CudaBackend : public Backend {
 public:
  // Partial results of attention that are kept at a time, if a tile of rows
  // needs no more. Decides no bits.
  static constexpr size_t kMostPartialBytes = size_t{64} << 20;

  CudaBackend(std::unique_ptr<cuda::Device> device,
              std::unique_ptr<cuda::Staging> staging, WeightType weight_type,
              DType kv_type, size_t max_partial_bytes = kMostPartialBytes);

  std::string numerics_id() const override;
  DType kv_type() const override { return kv_type_; }
  std::string description() const override;
  void BindComputeThread() override { device_->MakeCurrent(); }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override;
  void CopyFromHost(const void* host, size_t bytes, void* device) override;
  void CopyToHost(const void* device, size_t bytes, void* host) override;
  absl::Status Synchronize() override;
  absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(
      absl::Span<const HostMatrix> parts) override;
  absl::StatusOr<std::unique_ptr<PackedTable>> PackTable(
      const HostMatrix& table) override;

  void MatMul(const float* x, int rows, const PackedMatrix& w,
              float* y) override;
  void Embed(const PackedTable& table, absl::Span<const int32_t> ids,
             float* out) override;
  void RmsNorm(const float* x, int rows, int cols, const float* weight,
               float epsilon, float* out) override;
  void Rope(float* x, int rows, int row_stride, int num_heads, int head_dim,
            const float* cos, const float* sin) override;
  void StoreKv(const float* k, const float* v, int row_stride,
               absl::Span<const RowContext> contexts,
               const KvLayer& layer) override;
  void Attention(const float* q, int q_stride, int num_heads, float scale,
                 absl::Span<const RowContext> contexts, const KvLayer& layer,
                 float* out) override;
  void SiluMul(const float* gate_up, int rows, int cols, float* out) override;
  void AddInPlace(float* x, const float* y, size_t count) override;

 private:
  void MultiplyRounded(const float* x, int rows, const cuda::CudaMatrix& w,
                       float* y);

  const std::unique_ptr<cuda::Device> device_;  // dies last
  const std::unique_ptr<cuda::Staging> staging_;
  const WeightType weight_type_;
  const DType kv_type_;
  const size_t max_partial_bytes_;
  cuda::PagedBatch batch_;
  // Grown by Pack: bf16 activations of one pass over the largest weights, and
  // partial sums.
  std::unique_ptr<Buffer> activations_;
  std::unique_ptr<Buffer> workspace_;
  std::unique_ptr<Buffer> token_ids_;
  std::unique_ptr<Buffer> partials_;  // of attention
};

// Errors of cuda::Device::Open and cuda::Staging::Create; UNIMPLEMENTED for
// int4 weights.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(
    int device, WeightType weight_type, DType kv_type);

}  // namespace nacre::kernels

#endif  // KERNELS_CUDA_CUDA_BACKEND_H_
