// The fast backend on host memory: SIMD kernels for the best target of this CPU
// (chosen when the backend is made) on pinned threads. Weights stay bf16 where
// the checkpoint has bf16, unless another type is asked for; sums are float32,
// and so is the KV cache unless bf16 is asked for.
//
// Work is divided among threads by whole output elements, so their number never
// changes a bit. No op allocates once it has seen its largest number of rows.

#ifndef KERNELS_CPU_CPU_BACKEND_H_
#define KERNELS_CPU_CPU_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "hwy/aligned_allocator.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/quantized_gemm.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/host_arena.h"
#include "kernels/host_backend.h"
#include "kernels/weight_type.h"

namespace nacre::kernels {

class CpuBackend : public HostBackend {
 public:
  // One thread for each core of `cpus`, all of which this process may run on;
  // empty: one unpinned thread. `weight_type` is not kFp8.
  CpuBackend(std::vector<int> cpus, WeightType weight_type, DType kv_type);

  std::string numerics_id() const override;
  std::string description() const override;
  void BindComputeThread() override { threads_.BindCaller(); }
  int64_t PackedBytes(absl::Span<const HostMatrix> parts) const override;
  int64_t MayBeSaved(absl::Span<const HostMatrix> parts) const override;
  SavedWeights Saved() const override { return saved_; }
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
  void AddBias(float* x, int rows, int cols, const float* bias) override;

 private:
  // Calls task on ranges of [0, count): on all threads when the work of
  // `elements_each` elements an item is worth waking them, else here.
  void Divide(int count, int elements_each,
              absl::FunctionRef<void(int begin, int end)> task);
  // The same of single elements.
  void DivideElements(size_t count,
                      absl::FunctionRef<void(size_t first, size_t count)> task);
  // Whether the weights stay the integers that a file has (GroupedMatrix).
  bool KeepsGroups(absl::Span<const HostMatrix> parts) const;

  const std::vector<int> cpus_;
  const WeightType weight_type_;
  const GemmKernels gemm_;
  const QuantizedGemmKernels quantized_gemm_;
  const ElementwiseKernels elementwise_;
  const AttentionKernels attention_;
  ThreadPool threads_;
  HostArena weights_;  // the memory of what Pack returns
  SavedWeights saved_;

  std::vector<AttentionTiles> groups_;  // of the current Attention
  // Packed activations of the current MatMul.
  hwy::AlignedFreeUniquePtr<char[]> activations_;
  size_t activations_size_ = 0;  // bytes
};

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_CPU_BACKEND_H_
