// The backend on one NVIDIA GPU (compute capability 8.0 and later). Weights
// stay bf16 where the checkpoint has bf16 (or --weights bf16 asks for it). Then
// activations are rounded to bf16 before each product, and products are summed
// in float32. Elsewhere weights and products are float32. Attention over a bf16
// cache rounds as attention.h says. Everything else is float32.
//
// Ops only queue work: the host waits in Synchronize, WaitFor, CopyToHost,
// Allocate and AllocateOnHost, and when it is megabytes of uploads ahead. Small
// steps that come again are CUDA graphs (step_graphs.h). No op allocates once
// it has seen its largest number of rows, however long contexts grow, but for
// what CudaBackendOptions and PagedBatch say.

#ifndef KERNELS_CUDA_CUDA_BACKEND_H_
#define KERNELS_CUDA_CUDA_BACKEND_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "kernels/backend.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/cuda_matrix.h"
#include "kernels/cuda/cuda_products.h"
#include "kernels/cuda/cuda_row_ops.h"
#include "kernels/cuda/cuda_token_drawer.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/paged_batch.h"
#include "kernels/cuda/persistent_steps.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda/step_graphs.h"
#include "kernels/cuda/step_upload.h"
#include "kernels/weight_type.h"

namespace nacre::kernels {

// None but the last decides bits.
struct CudaBackendOptions {
  // Partial results of attention that are kept at a time, if a row needs no
  // more: 64 heads of 128 do after 229,000 positions. The first step allocates
  // what the KV cache can make necessary.
  size_t max_partial_bytes = size_t{64} << 20;
  // Whether steps that come again are CUDA graphs.
  bool graphs = true;
  // Whether of these steps those that can be are one kernel instead
  // (persistent_steps.h).
  bool persistent = false;
  // Whether attention of prompts is by warpgroups where it can be
  // (attention_wide.h); for a device that has them.
  bool warpgroup_attention = false;
  // Whether kernels do what others would after them, where they can.
  bool fusion = true;
  // Blocks of attention that are worth all splits of their tiles of a prompt;
  // none: three for each four multiprocessors of the device.
  absl::optional<int> least_whole_blocks;
  // Whether rows of prompts are multiplied by cublasLt, and its file; empty:
  // the machine's.
  bool cublas_prompts = false;
  std::string cublas_library;
};

class CudaBackend : public cuda::CudaRowOps {
 public:
  CudaBackend(std::unique_ptr<cuda::Device> device,
              std::unique_ptr<cuda::Staging> staging, WeightType weight_type,
              DType kv_type, CudaBackendOptions options = {},
              std::unique_ptr<cuda::CublasLt> cublas = nullptr);

  std::string numerics_id() const override;
  DType kv_type() const override { return kv_type_; }
  std::string description() const override;
  int64_t PackedBytes(absl::Span<const HostMatrix> parts) const override {
    return cuda::CudaMatrix::Bytes(parts, weight_type_);
  }
  const float* SendInputs(const StepInputs& inputs) override;
  void RunStep(int rows, absl::FunctionRef<void()> ops) override;
  GraphCounts graph_counts() const override;
  absl::Span<const int> step_sizes() const override;
  absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(
      absl::Span<const HostMatrix> parts) override {
    return PackFor(parts, {});
  }
  absl::StatusOr<std::unique_ptr<PackedMatrix>> PackFor(
      absl::Span<const HostMatrix> parts, PackHints hints) override;
  absl::StatusOr<std::unique_ptr<PackedTable>> PackTable(
      const HostMatrix& table) override;

  void MatMul(const float* x, int rows, const PackedMatrix& w,
              float* y) override;
  void Embed(const PackedTable& table, absl::Span<const int32_t> ids,
             float* out) override;
  void EmbedDrawn(const PackedTable& table, const int32_t* ids, int count,
                  float* out) override;
  void StoreKv(const float* k, const float* v, int row_stride,
               absl::Span<const RowContext> contexts,
               const KvLayer& layer) override;
  void MoveKv(absl::Span<const KvMove> moves,
              absl::Span<const KvLayer> layers) override;
  void Attention(const float* q, int q_stride, int num_heads,
                 const AttentionRule& rule,
                 absl::Span<const RowContext> contexts, const KvLayer& layer,
                 float* out) override;
  TokenDrawer* token_drawer() override { return &token_drawer_; }
  PromptProducts* prompt_products() override { return products_.prompts(); }

  // Of these the fused kernels. `normed` and `gated` are used only where
  // products are float32.
  void NormMatMul(const float* x, int rows, const float* weight, float epsilon,
                  const PackedMatrix& w, float* normed, float* y) override;
  void MatMulAdd(const float* x, int rows, const PackedMatrix& w,
                 const float* residual, float* y) override;
  void SiluMatMulAdd(const float* gate_up, int rows, const PackedMatrix& w,
                     const float* residual, float* gated, float* y) override;
  void RopeStoreKv(float* qkv, int num_heads, const float* cos,
                   const float* sin, absl::Span<const RowContext> contexts,
                   const KvLayer& layer) override;
  void NormSiluMatMulAdd(const NormedRows& in, const PackedMatrix& gate_up,
                         const PackedMatrix& down, const float* residual,
                         const GateScratch& scratch, float* y) override;
  void NormMatMulRopeStoreKv(const NormedRows& in, const PackedMatrix& w,
                             const float* bias, const HeadAngles& angles,
                             absl::Span<const RowContext> contexts,
                             const KvLayer& layer, float* qkv) override;

 private:
  // For the rotary embedding, and for Attention after it, where no step has
  // brought it: an upload between kernels would cut a step in two. Null
  // positions: an error.
  cuda::PagedRows SendBatch(int num_heads,
                            absl::Span<const RowContext> contexts,
                            const KvLayer& layer);
  cuda::AttentionCut CutOf(int num_heads, const KvLayer& layer) const;
  // The same in all layers of a step, and in what it begins with.
  cuda::AttentionPlan PlanAttention(absl::Span<const RowContext> contexts,
                                    const cuda::AttentionCut& cut) const;

  // Room for what grows with contexts, as large as `layer` can make it: later
  // it would wait for the device. False after an error.
  bool MakeRoom(const cuda::AttentionCut& cut, const KvLayer& layer);

  const WeightType weight_type_;
  const DType kv_type_;
  const CudaBackendOptions options_;
  cuda::StepGraphs graphs_;
  cuda::PersistentSteps persistent_;  // and those that can not be: graphs_
  cuda::StepUpload step_;
  cuda::PagedBatch batch_;
  cuda::CudaTokenDrawer token_drawer_;
  cuda::CudaProducts products_;        // grown by Pack
  std::unique_ptr<Buffer> token_ids_;  // of no step
  std::unique_ptr<Buffer> partials_;   // of attention
  std::unique_ptr<Buffer> moves_;
};

// Errors of cuda::Device::Open, cuda::Staging::Create and cuda::OpenCublasLt.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(
    const cuda::DeviceOptions& device, WeightType weight_type, DType kv_type,
    CudaBackendOptions options = {});

}  // namespace nacre::kernels

#endif  // KERNELS_CUDA_CUDA_BACKEND_H_
