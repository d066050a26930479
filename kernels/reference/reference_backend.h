// The truth: every op as its definition, one scalar loop at a time, summed in
// double and rounded to float32 once. Slow; runs any model on any machine.
//
// Single-threaded, stateless but for the types.

#ifndef KERNELS_REFERENCE_REFERENCE_BACKEND_H_
#define KERNELS_REFERENCE_REFERENCE_BACKEND_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "kernels/host_backend.h"
#include "kernels/weight_type.h"

namespace nacre::kernels {

class ReferenceBackend : public HostBackend {
 public:
  explicit ReferenceBackend(WeightType weight_type, DType kv_type = DType::kF32)
      : HostBackend(kv_type), weight_type_(weight_type) {}

  std::string numerics_id() const override;
  std::string description() const override;
  int64_t PackedBytes(absl::Span<const HostMatrix> parts) const override;
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
  void LayerNorm(const float* x, int rows, int cols, const float* weight,
                 const float* bias, float epsilon, float* out) override;
  void Rope(float* x, int rows, int row_stride, int num_heads, int head_dim,
            const float* cos, const float* sin) override;
  void StoreKv(const float* k, const float* v, int row_stride,
               absl::Span<const RowContext> contexts,
               const KvLayer& layer) override;
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

 private:
  void Requantize(
      float* row, int cols,
      absl::FunctionRef<float(const float*, int, int8_t*)> quantize) const;

  WeightType weight_type_;
};

}  // namespace nacre::kernels

#endif  // KERNELS_REFERENCE_REFERENCE_BACKEND_H_
