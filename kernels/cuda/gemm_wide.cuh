// The product with more than 16 rows where a warpgroup multiplies as one
// (compute capability 9.0). As with TiledKernel, a block computes a tile of
// outputs x rows. It streams both operands through shared memory, a block of 64
// inputs a stage. Weights may have more stages than rows. A warp of its own
// asks the copy engine for them. Each warpgroup has 64 outputs, and goes at its
// own pace. Its products run while it waits for the next stage. bf16 weights
// are multiplied from shared memory; the others pass through registers, where
// they become bf16.

#ifndef KERNELS_CUDA_GEMM_WIDE_CUH_
#define KERNELS_CUDA_GEMM_WIDE_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/bulk_copies.cuh"
#include "kernels/cuda/gemm_order.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_tiled.cuh"
#include "kernels/cuda/gemm_weights.cuh"
#include "kernels/cuda/gemm_wide_sums.cuh"
#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/shared_barriers.cuh"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/wide_products.cuh"
#include "kernels/cuda/wide_shared.cuh"

namespace nacre::kernels::cuda {
namespace {  // only gemm.cu includes this

struct WideArgs {
  Product product;
  TensorMap weights;
  TensorMap rows;

  bool operator==(const WideArgs&) const = default;
};

#if NACRE_WIDE_PRODUCTS

// Where a block keeps what.
template <typename Weights, typename Tile>
struct WideMemory {
  static constexpr int kStages = kWideStages<Weights, Tile>;
  static constexpr int kRowStages = kWideRowStages<Weights, Tile>;
  static constexpr int kRowVectors = Tile::kRows * 8;
  static constexpr int kWeightVectors = Tile::kOutputTiles * Weights::kVectors;
  static constexpr int kStageBytes =
      (kRowVectors + kWeightVectors) * static_cast<int>(sizeof(uint4));

  uint4* rows;     // [row stages]
  uint4* weights;  // [stages]
  uint64_t* full;  // [stages]: copies are there, those of rows, too
  uint64_t* free;  // [stages]: products are done

  __device__ __forceinline__ explicit WideMemory(uint4* shared)
      : rows(WideShared(shared)),
        weights(rows + kRowStages * kRowVectors),
        full(reinterpret_cast<uint64_t*>(weights + kStages * kWeightVectors)),
        free(full + kStages) {}
};

// The one thread that asks for copies of all stages.
template <typename Weights, typename Tile>
struct WideProducer {
  using Memory = WideMemory<Weights, Tile>;
  const WideArgs& args;
  const Memory& memory;
  const TileAt& tile;

  __device__ __forceinline__ void CopyWeights(int block, int stage) const {
    uint64_t* const full = memory.full + stage;
    ArriveExpecting(full, Memory::kStageBytes);
    CopyBlocks(memory.weights + stage * Memory::kWeightVectors, args.weights,
               block, tile.output, full);
  }
  // `stage`: of the block's weights.
  __device__ __forceinline__ void CopyRows(int block, int stage,
                                           int row_stage) const {
    CopyTile(memory.rows + row_stage * Memory::kRowVectors, args.rows,
             block * kBlockInputs, tile.row, memory.full + stage);
  }

  // Blocks [first, end). Weights do not wait for the kernel before.
  __device__ __forceinline__ void Run(int first, int end) const {
    constexpr int kStages = Memory::kStages;
    constexpr int kRowStages = Memory::kRowStages;
    const bool copies = threadIdx.x == 32 * Tile::kWarps;
    for (int i = 0; copies && i < min(kStages, end - first); ++i) {
      CopyWeights(first + i, i);
    }
    WaitForPrevious();
    if (!copies) return;
    for (int i = 0; i < min(kRowStages, end - first); ++i) {
      CopyRows(first + i, i, i);
    }
    int stage = 0;
    int row_stage = 0;
    int parity = 0;
    // What `block` leaves is filled.
    for (int block = first; block < end - kRowStages; ++block) {
      WaitPhase(memory.free + stage, parity);
      if (block < end - kStages) CopyWeights(block + kStages, stage);
      const int ahead = stage + kRowStages;
      CopyRows(block + kRowStages, ahead < kStages ? ahead : ahead - kStages,
               row_stage);
      if (++stage == kStages) stage = 0, parity ^= 1;
      if (++row_stage == kRowStages) row_stage = 0;
    }
  }
};

template <typename Weights, typename Tile>
__device__ __forceinline__ void RunConsumer(
    const Product& product, const WideMemory<Weights, Tile>& memory,
    const TileAt& tile) {
  using Memory = WideMemory<Weights, Tile>;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int group_tile = warp / kGroupTiles * kGroupTiles;
  const GemmOrder& order = product.order;
  WideSums<Weights, Tile::kRows / 8> sums(lane, warp % kGroupTiles);
  float4 total[1][Tile::kRows / 8];
  int stage = 0;
  int row_stage = 0;
  int parity = 0;
  int held = -1;  // stage whose products may be under way
  const auto release = [&] {
    if (held >= 0 && lane == 0) Arrive(memory.free + held);
  };
  int block = tile.first;
  for (int slice = 0; block < tile.end; ++slice) {
    const int slice_end = min(tile.end, block + order.slice_blocks);
    for (bool first_chain = true; block < slice_end; first_chain = false) {
      const int chain_end = min(slice_end, block + order.chain_blocks);
      Clear(sums.sum);
#pragma unroll 1
      for (; block < chain_end; ++block) {
        WaitPhase(memory.full + stage, parity);
        // One number where that suffices: int8 has no register for two.
        const int rows_at =
            Memory::kRowStages < Memory::kStages ? row_stage : stage;
        sums.AddBlock(memory.weights + stage * Memory::kWeightVectors +
                          group_tile * Weights::kVectors,
                      memory.rows + rows_at * Memory::kRowVectors);
        release();
        held = stage;
        if (++stage == Memory::kStages) stage = 0, parity ^= 1;
        if (++row_stage == Memory::kRowStages) row_stage = 0;
      }
      WaitProducts<0>();
      TakeSums(sums.sum[0]);
      release();
      held = -1;
      AddChain(first_chain, sums.sum, total);
    }
    int part = tile.part;
    // Else the compiler has it in 64 bits, as StoreSums takes it, all the time:
    // int8 has no register for that.
    asm volatile("" : "+r"(part));
    StoreSums<Weights, 1, Tile::kRows / 8>(product, slice, part,
                                           tile.output + warp, tile.row, total);
  }
}

template <typename Weights, typename Tile>
__device__ __forceinline__ void MultiplyWide(const WideArgs& args,
                                             uint4* shared) {
  const Product& product = args.product;
  const TileAt tile = FindTile<Tile>(product);
  const WideMemory<Weights, Tile> memory(shared);
  LaunchDependents();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < memory.kStages; ++stage) {
      MakeBarrier(memory.full + stage, 1);
      MakeBarrier(memory.free + stage, Tile::kWarps);
    }
    ShowBarriers();
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) / 32 >= Tile::kWarps) {
    if constexpr (Tile::kMovesRegisters) LeaveRegisters<40>();  // of 168
    WideProducer<Weights, Tile>{args, memory, tile}.Run(tile.first, tile.end);
  } else {
    if constexpr (Tile::kMovesRegisters) TakeRegisters<232>();
    WaitForPrevious();  // for what sums are added to
    RunConsumer<Weights, Tile>(product, memory, tile);
  }
}

#endif  // NACRE_WIDE_PRODUCTS

template <typename Weights, typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    WideKernel(const __grid_constant__ WideArgs args) {
#if NACRE_WIDE_PRODUCTS
  extern __shared__ uint4 shared[];
  MultiplyWide<Weights, Tile>(args, shared);
#else
  __trap();
#endif
}

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_WIDE_CUH_
