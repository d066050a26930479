#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_launch.cuh"
#include "kernels/cuda/gemm_order.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_skinny.cuh"
#include "kernels/cuda/gemm_tiled.cuh"
#include "kernels/cuda/gemm_weights.cuh"
#include "kernels/cuda/gemm_wide.cuh"
#include "kernels/cuda/kernel_block.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {

constexpr int kReduceThreads = 256;

// results[i] = sum of parts[slice][chain][i], chains and then slices in their
// order, times the scale of the output if there are scales, plus the residual
// if there is one.
template <int kPartChains>
__global__ void __launch_bounds__(kReduceThreads)
    ReduceKernel(const float* parts, float* results, const float* row_scales,
                 const float* residual, size_t elements, int outputs,
                 const GemmOrder order) {
  LaunchDependents();
  WaitForPrevious();
  const size_t i =
      static_cast<size_t>(kReduceThreads) * blockIdx.x + threadIdx.x;
  if (i >= elements) return;
  float total = 0;
  for (int slice = 0; slice < order.slices; ++slice) {
    const int blocks =
        min(order.slice_blocks, order.blocks - slice * order.slice_blocks);
    float chains[kPartChains];
#pragma unroll
    for (int chain = 0; chain < kPartChains; ++chain) {
      const bool has = chain * order.chain_blocks < blocks;
      chains[chain] =
          has ? parts[(slice * kPartChains + chain) * elements + i] : 0;
    }
    float sum = chains[0];
#pragma unroll
    for (int chain = 1; chain < kPartChains; ++chain) {
      if (chain * order.chain_blocks < blocks) sum += chains[chain];
    }
    total = slice == 0 ? sum : total + sum;
  }
  if (row_scales != nullptr) total *= row_scales[i % outputs];
  if (residual != nullptr) total += residual[i];
  results[i] = total;
}

template <typename Weights, int kRows>
__global__ void __launch_bounds__(kSkinnyThreads<Weights>, 1)
    SkinnyKernel(const Product product) {
  extern __shared__ uint4 shared[];
  MultiplySkinny<KernelBlock, Weights, kRows>({shared}, product);
}

struct Kernel {
  void (*function)(Product);
  int threads;
  PhaseKind phase = PhaseKind::kNone;
};

template <typename Weights>
Kernel KernelOf(GemmKernel kernel) {
  constexpr bool kBf16 = Weights::kFormat == GemmFormat::kBf16;
  switch (kernel) {
    case GemmKernel::kSkinny8:
      return {SkinnyKernel<Weights, 8>, kSkinnyThreads<Weights>,
              kBf16 ? PhaseKind::kProduct8 : PhaseKind::kNone};
    case GemmKernel::kSkinny16:
      return {SkinnyKernel<Weights, 16>, kSkinnyThreads<Weights>,
              kBf16 ? PhaseKind::kProduct16 : PhaseKind::kNone};
    case GemmKernel::k32x32:
      return {TiledKernel<Weights, Tile32x32>, Tile32x32::kThreads};
    case GemmKernel::k32x64:
      return {TiledKernel<Weights, Tile32x64>, Tile32x64::kThreads};
    case GemmKernel::k128x32:
      return {TiledKernel<Weights, Tile128x32>, Tile128x32::kThreads};
    case GemmKernel::k128x64:
      return {TiledKernel<Weights, Tile128x64>, Tile128x64::kThreads};
    case GemmKernel::k128x128:
      return {TiledKernel<Weights, Tile128x128>, Tile128x128::kThreads};
    default:
      return {};
  }
}

Kernel KernelOf(GemmFormat format, GemmKernel kernel) {
  switch (format) {
    case GemmFormat::kBf16:
      return KernelOf<Bf16Weights>(kernel);
    case GemmFormat::kInt8:
      return KernelOf<Int8Weights>(kernel);
    case GemmFormat::kFp8:
      return KernelOf<Fp8Weights>(kernel);
    case GemmFormat::kInt4:
      return KernelOf<Int4Weights>(kernel);
  }
  return {};
}

struct Wide {
  void (*function)(WideArgs) = nullptr;
  int threads = 0;
  int rows = 0;  // of a tile
  int output_tiles = 0;
  int block_bytes = 0;  // of packed weights
};

template <typename Weights, typename Tile>
Wide MakeWide() {
  return {WideKernel<Weights, Tile>, Tile::kThreads, Tile::kRows,
          Tile::kOutputTiles,
          static_cast<int>(Weights::kVectors * sizeof(uint4))};
}

// No function: that kernel is none of these.
template <typename Weights>
Wide WideOf(GemmKernel kernel) {
  constexpr bool kBf16 = Weights::kFormat == GemmFormat::kBf16;
  switch (kernel) {
    case GemmKernel::kWide64x32:
      return MakeWide<Weights,
                      std::conditional_t<kBf16, Wide64x32, Shallow64x32>>();
    case GemmKernel::kWide64x64:
      return MakeWide<Weights,
                      std::conditional_t<kBf16, Wide64x64, Shallow64x64>>();
    case GemmKernel::kWide128x32:
      return MakeWide<Weights, Wide128x32>();
    case GemmKernel::kWide128x64:
      return MakeWide<Weights, Wide128x64>();
    case GemmKernel::kWide128x128:
      return MakeWide<Weights, Wide128x128>();
    default:
      return {};
  }
}

Wide WideOf(GemmFormat format, GemmKernel kernel) {
  switch (format) {
    case GemmFormat::kBf16:
      return WideOf<Bf16Weights>(kernel);
    case GemmFormat::kInt8:
      return WideOf<Int8Weights>(kernel);
    case GemmFormat::kFp8:
      return WideOf<Fp8Weights>(kernel);
    case GemmFormat::kInt4:
      return WideOf<Int4Weights>(kernel);
  }
  return {};
}

cudaError_t LaunchWide(const Queue& on, const Wide& wide, const GemmPlan& plan,
                       const Product& product) {
  WideArgs args = {product, {}, {}};
  cudaError_t status = MapRows(product.activations, product.rows,
                               product.inputs, wide.rows, &args.rows);
  if (status != cudaSuccess) return status;
  status = MapBlocks(product.weights, GemmTiles(product.outputs),
                     product.order.blocks, wide.block_bytes, wide.output_tiles,
                     &args.weights);
  if (status != cudaSuccess) return status;
  return LaunchKernel(on,
                      {dim3(static_cast<unsigned>(plan.blocks)), wide.threads,
                       plan.shared_bytes},
                      wide.function, args);
}

}  // namespace

size_t GemmWorkspaceBytes(GemmFormat format, int outputs, int inputs, int rows,
                          int order_outputs) {
  const GemmOrder order =
      GemmOrderOf(order_outputs > 0 ? order_outputs : outputs, inputs);
  const size_t row_bytes = sizeof(float) * outputs;
  size_t bytes = 0;
  if (order.slices > 1) {
    bytes = row_bytes * order.slices * std::min(rows, kMaxRowsApart);
  }
  const int chains_rows = std::min(rows, kMaxRowsChainsApart);
  if (ChainsMayBeApart(format, order, outputs, chains_rows)) {
    bytes = std::max(bytes,
                     row_bytes * chains_rows * PartsOf(order, Apart::kChains));
  }
  return bytes;
}

cudaError_t Gemm(const GemmArgs& args, const Queue& queue) {
  if (args.results == nullptr || args.results == args.residual) {
    return cudaErrorInvalidValue;
  }
  Planned planned;
  cudaError_t status = PlanProduct(args, &planned);
  if (status != cudaSuccess) return status;
  const GemmPlan& plan = planned.plan;
  const Product product = ProductOf(args, planned);
  const Queue on = QueueOf(queue, planned);
  if (const Wide wide = WideOf(args.format, plan.kernel);
      wide.function != nullptr) {
    status = LaunchWide(on, wide, plan, product);
  } else {
    const Kernel kernel = KernelOf(args.format, plan.kernel);
    status = LaunchKernel(on,
                          {dim3(static_cast<unsigned>(plan.blocks)),
                           kernel.threads, plan.shared_bytes, kernel.phase},
                          kernel.function, product);
  }
  if (status != cudaSuccess || !planned.adds_apart()) return status;

  const size_t elements = size_t{1} * args.rows * args.outputs;
  // Overlaps only its own launch: it waits for the sums.
  return LaunchKernel(
      on, {BlocksFor(elements, kReduceThreads), kReduceThreads},
      plan.apart == Apart::kChains ? ReduceKernel<kChains> : ReduceKernel<1>,
      product.results, args.results, args.scales, args.residual, elements,
      args.outputs, planned.order);
}

}  // namespace nacre::kernels::cuda
