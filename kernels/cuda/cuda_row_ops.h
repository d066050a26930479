// RowOps on one NVIDIA GPU (elementwise.h).
//
// A part of CudaBackend, and under its threads.

#ifndef KERNELS_CUDA_CUDA_ROW_OPS_H_
#define KERNELS_CUDA_CUDA_ROW_OPS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "kernels/cuda/cuda_memory.h"

namespace nacre::kernels::cuda {

class CudaRowOps : public CudaMemory {
 public:
  using CudaMemory::CudaMemory;

  void RmsNorm(const float* x, int rows, int cols, const float* weight,
               float epsilon, float* out) override;
  void LayerNorm(const float* x, int rows, int cols, const float* weight,
                 const float* bias, float epsilon, float* out) override;
  void NormHeads(float* x, int rows, int row_stride, int num_heads,
                 int head_dim, const float* weight, float epsilon) override;
  void Rope(float* x, int rows, int row_stride, int num_heads, int head_dim,
            const float* cos, const float* sin) override;
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

 private:
  // Null after an error.
  const int32_t* SendRows(absl::Span<const int32_t> rows);

  std::unique_ptr<Buffer> row_numbers_;
  std::unique_ptr<Buffer> row_weights_;
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_CUDA_ROW_OPS_H_
