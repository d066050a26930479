#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/gemm_launch.cuh"
#include "kernels/cuda/gemm_pairs.cuh"
#include "kernels/cuda/gemm_pairs.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_skinny_inputs.cuh"
#include "kernels/cuda/gemm_skinny_results.cuh"
#include "kernels/cuda/gemm_weights.cuh"
#include "kernels/cuda/kernel_block.cuh"
#include "kernels/cuda/phase.h"

namespace nacre::kernels::cuda {
namespace {

template <typename Weights, int kRows, typename To>
__global__ void __launch_bounds__(kSkinnyThreads<Weights>, 1)
    SkinnyPairsKernel(const Product product, const To to) {
  extern __shared__ uint4 shared[];
  MultiplyPairs<KernelBlock, Weights, kRows, To>({shared}, product, to);
}

template <typename Weights, typename To>
__global__ void __launch_bounds__(kSkinnyThreads<Weights>, 1)
    NormedPairsKernel(const Product product, const NormedInputs inputs,
                      const To to) {
  extern __shared__ uint4 shared[];
  MultiplyNormedPairs<KernelBlock, Weights, To>({shared}, product, inputs, to);
}

// What they may be.
struct PairPhases {
  PhaseKind of_8 = PhaseKind::kNone;
  PhaseKind of_16 = PhaseKind::kNone;
  PhaseKind normed = PhaseKind::kNone;
};

template <typename Weights, typename To>
constexpr PairPhases PhasesOf() {
  if (Weights::kFormat != GemmFormat::kBf16) return {};
  if (std::is_same_v<To, Gate>) {
    return {PhaseKind::kGated8, PhaseKind::kGated16, PhaseKind::kGatedNormed};
  }
  if (std::is_same_v<To, RotateTo<uint16_t>>) {
    return {PhaseKind::kRotated8, PhaseKind::kRotated16,
            PhaseKind::kRotatedNormed};
  }
  return {};
}

template <typename Weights, typename To>
cudaError_t Launch(const Queue& queue, const Planned& planned,
                   const Product& product, const NormOfInputs* norm,
                   const To& to) {
  const Queue on = QueueOf(queue, planned);
  Grid grid = {dim3(static_cast<unsigned>(planned.plan.blocks)),
               kSkinnyThreads<Weights>, planned.plan.shared_bytes};
  constexpr PairPhases kPhases = PhasesOf<Weights, To>();
  const bool few = planned.plan.kernel == GemmKernel::kSkinny8;
  if (norm == nullptr) {
    grid.phase = few ? kPhases.of_8 : kPhases.of_16;
    return LaunchKernel(on, grid,
                        few ? SkinnyPairsKernel<Weights, 8, To>
                            : SkinnyPairsKernel<Weights, 16, To>,
                        product, to);
  }
  if (!few) return cudaErrorInvalidValue;
  grid.phase = kPhases.normed;
  const NormedInputs inputs = {
      norm->x, norm->weight, norm->epsilon, norm->cols,
      norm->cols % 4 == 0 && Aligned(norm->x) && Aligned(norm->weight)};
  return LaunchKernel(on, grid, NormedPairsKernel<Weights, To>, product, inputs,
                      to);
}

// cudaErrorInvalidValue where TakesPairs is false.
cudaError_t PlanPairs(const GemmArgs& args, Planned* planned) {
  if (!HavePairs(args.outputs, args.pairs_apart)) return cudaErrorInvalidValue;
  const cudaError_t status = PlanProduct(args, planned);
  if (status != cudaSuccess) return status;
  return planned->few_rows && !planned->adds_apart() ? cudaSuccess
                                                     : cudaErrorInvalidValue;
}

template <typename To>
cudaError_t Multiply(const GemmArgs& args, const NormOfInputs* norm,
                     const To& to, const Queue& queue) {
  if (args.residual != nullptr ||
      (norm != nullptr && norm->cols > args.inputs)) {
    return cudaErrorInvalidValue;
  }
  Planned planned;
  const cudaError_t status = PlanPairs(args, &planned);
  if (status != cudaSuccess) return status;
  const Product product = ProductOf(args, planned);
  switch (args.format) {
    case GemmFormat::kBf16:
      return Launch<Bf16Weights>(queue, planned, product, norm, to);
    case GemmFormat::kInt8:
      return Launch<Int8Weights>(queue, planned, product, norm, to);
    case GemmFormat::kFp8:
      return Launch<Fp8Weights>(queue, planned, product, norm, to);
    case GemmFormat::kInt4:
      return Launch<Int4Weights>(queue, planned, product, norm, to);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

bool TakesPairs(const GemmArgs& args) {
  Planned planned;
  return PlanPairs(args, &planned) == cudaSuccess;
}

bool NormsInputs(int rows, int inputs) {
  // 64 KB for each multiprocessor from the cache: as long as one row of them
  // takes anyway.
  constexpr int64_t kMostElements = 16 << 10;
  return rows <= kNormedRows && int64_t{rows} * inputs <= kMostElements;
}

cudaError_t GemmAndGate(const GemmArgs& args, const NormOfInputs* norm,
                        uint16_t* gated, const Queue& queue) {
  if (gated == nullptr || 2 * args.pairs_apart != args.outputs) {
    return cudaErrorInvalidValue;
  }
  return Multiply(args, norm, Gate{gated}, queue);
}

cudaError_t GemmAndRotate(const GemmArgs& args, const NormOfInputs* norm,
                          const RotateOutputs& to, const Queue& queue) {
  const int heads = to.num_heads + 2 * to.kv.num_kv_heads;
  if (args.results == nullptr || 2 * args.pairs_apart != to.kv.head_dim ||
      heads * to.kv.head_dim != args.outputs) {
    return cudaErrorInvalidValue;
  }
  return to.kv.type == DType::kBF16
             ? Multiply(args, norm, RotateTo<uint16_t>{to}, queue)
             : Multiply(args, norm, RotateTo<float>{to}, queue);
}

}  // namespace nacre::kernels::cuda
