// The product with 1 to 16 rows, bound by reading weights. One block per
// multiprocessor stays for the whole product. It keeps one slice of the
// activations in shared memory and walks over tiles of 16 outputs. A group of 8
// warps has a tile, and a block one group or two. Each warp owns a chain and
// fetches its weights into a ring of its own with 16-byte asynchronous copies.
// It fetches kilobytes in a row, several stages ahead, across the ends of
// tiles. Nothing but the sum at the end of a tile makes the warps of a group
// wait for each other. Activations are fetched beside the weights of the first
// tile.

#ifndef KERNELS_CUDA_GEMM_SKINNY_CUH_
#define KERNELS_CUDA_GEMM_SKINNY_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/gemm_block.cuh"
#include "kernels/cuda/gemm_order.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_skinny_inputs.cuh"
#include "kernels/cuda/gemm_skinny_results.cuh"
#include "kernels/cuda/gemm_weights.cuh"
#include "kernels/cuda/last_block.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {  // only gemm.cu, gemm_pairs.cuh and persistent.cu include this

// Walks over the (tile, block) pairs of one warp in the order of their use.
struct Cursor {
  int tile;
  int block = 0;  // of this warp

  __device__ void Advance(int blocks, int tile_step) {
    if (++block == blocks) {
      block = 0;
      tile += tile_step;
    }
  }
};

// Of a block, its number in the grid.
__device__ __forceinline__ SkinnyShare FindShare(const GemmOrder& order,
                                                 int number, int chain) {
  SkinnyShare share;
  share.slice = number % order.slices;
  share.slice_blocks =
      min(order.slice_blocks, order.blocks - share.slice * order.slice_blocks);
  share.first_block =
      share.slice * order.slice_blocks + chain * order.chain_blocks;
  share.blocks = max(0, min(order.chain_blocks,
                            share.slice_blocks - chain * order.chain_blocks));
  return share;
}

// Copies of a warp, into its ring and to the activations that it keeps.
template <typename Weights>
struct SkinnyCopies {
  const Product& product;
  uint4* ring;
  uint4* kept;
  int first_block;
  int lane;

  __device__ __forceinline__ void CopyWeights(const Cursor& at,
                                              int stage) const {
    Weights::template Copy<1, 32>(ring + stage * Weights::kVectors, product,
                                  at.tile, first_block + at.block, lane);
  }
  // Four rows at a time; zeros past the last input.
  __device__ __forceinline__ void CopyActivations(int block) const {
    const int column = lane % 8;
    const int input =
        (first_block + block) * kBlockInputs + column * kVectorInputs;
    const bool inside = input < product.inputs;
    uint4* const to = kept + block * product.rows * 8;
    for (int row = lane / 8; row < product.rows; row += 4) {
      const size_t at = static_cast<size_t>(row) * product.inputs + input;
      CopyVector(to + Bf16Slot(row, column),
                 product.activations + (inside ? 2 * at : 0), inside);
    }
  }
};

// A warp's part of a block. kCopied: of what it keeps, it copies its chain's.
template <typename Weights, int kRows, bool kCopied>
struct SkinnyWarp {
  static constexpr int kGroups = kSkinnyGroups<Weights>;
  static constexpr int kRowTiles = (kRows + 7) / 8;
  static constexpr int kStages = kSkinnyStages<Weights, kRows>;
  static constexpr int kRingVectors = kStages * Weights::kVectors;
  static constexpr int kSumVectors = kChains * kRowTiles * 32;  // of a tile

  int lane = threadIdx.x % 32;
  int chain = threadIdx.x / 32 % kChains;
  int group = threadIdx.x / kSkinnyGroupThreads;
  SkinnyShare share;
  // Of the groups of all blocks of this slice.
  int first_tile;
  int tile_step;
  int tiles;
  int kept_vectors;  // of a block of activations
  uint4* ring;
  uint4* sums;  // of the group, twice
  uint4*
      kept;  // activations of the chain, which follow those of the one before

  template <typename Here>
  __device__ __forceinline__ SkinnyWarp(const Here& here,
                                        const Product& product)
      : share(FindShare(product.order, here.index().x, chain)),
        kept_vectors(product.rows * 8) {
    const int walkers = here.grid().x / product.order.slices;
    first_tile = here.index().x / product.order.slices + group * walkers;
    tile_step = kGroups * walkers;
    tiles = (product.outputs + kTileOutputs - 1) / kTileOutputs;
    ring = here.shared + threadIdx.x / 32 * kRingVectors;
    sums = AllSums(here.shared) + group * 2 * kSumVectors;
    kept = AllKept(here.shared) +
           chain * product.order.chain_blocks * kept_vectors;
  }

  // Of all groups, and of all chains.
  __device__ __forceinline__ static uint4* AllSums(uint4* shared) {
    return shared + kGroups * kChains * kRingVectors;
  }
  __device__ __forceinline__ static uint4* AllKept(uint4* shared) {
    return AllSums(shared) + kGroups * 2 * kSumVectors;
  }

  // Weights as far as the ring goes, for its first kStages - 1 stages.
  __device__ __forceinline__ Cursor
  FillRing(const SkinnyCopies<Weights>& copies) const {
    Cursor ahead{share.blocks == 0 ? tiles : first_tile};
#pragma unroll
    for (int stage = 0; stage < kStages - 1; ++stage) {
      if (ahead.tile < tiles) copies.CopyWeights(ahead, stage);
      if constexpr (!kCopied) CommitCopies();
      ahead.Advance(share.blocks, tile_step);
    }
    return ahead;
  }

  // Activations of these stages; where groups share them, all there are.
  template <typename Here>
  __device__ __forceinline__ void FetchActivations(
      const Here& here, const SkinnyCopies<Weights>& copies) const {
    if constexpr (kGroups > 1) {
      for (int block = group; block < share.blocks; block += kGroups) {
        copies.CopyActivations(block);
      }
      CommitCopies();
      WaitCopies<0>();
      here.Meet();
    }
#pragma unroll
    for (int stage = 0; stage < kStages - 1; ++stage) {
      if (kGroups == 1 && stage < share.blocks) copies.CopyActivations(stage);
      CommitCopies();
    }
  }

  // Writes its sums of a tile to shared memory; fetches ahead meanwhile.
  __device__ __forceinline__ void MultiplyTile(
      const SkinnyCopies<Weights>& copies, int* stage, Cursor* ahead,
      float4* tile_sums) const {
    float4 sum[1][kRowTiles] = {};
    for (int block = 0; block < share.blocks; ++block) {
      WaitCopies<kStages - 2>();
      __syncwarp();  // copies of all lanes are there, the last stage is read
      const int refilled = *stage == 0 ? kStages - 1 : *stage - 1;
      if (ahead->tile < tiles) {
        copies.CopyWeights(*ahead, refilled);
        if (kCopied && kGroups == 1 && ahead->tile == first_tile) {
          copies.CopyActivations(ahead->block);
        }
      }
      CommitCopies();
      ahead->Advance(share.blocks, tile_step);
      MultiplyBlock<Weights>(ring + *stage * Weights::kVectors,
                             kept + block * kept_vectors, 8 * kRowTiles,
                             copies.product.rows - 1, lane, sum);
      *stage = *stage == kStages - 1 ? 0 : *stage + 1;
    }
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      tile_sums[(chain * kRowTiles + i) * 32 + lane] = sum[0][i];
    }
  }
};

// A block; `inputs` says where rows come from, `results` what becomes of a
// tile's sums.
template <typename Weights, int kRows, typename Here, typename Inputs,
          typename Results>
__device__ __forceinline__ void MultiplyFewRows(const Here& here,
                                                const Product& product,
                                                const Inputs& inputs,
                                                const Results& results) {
  using Warp = SkinnyWarp<Weights, kRows, Inputs::kCopied>;
  const Warp warp(here, product);
  const SkinnyCopies<Weights> copies = {product, warp.ring, warp.kept,
                                        warp.share.first_block, warp.lane};
  Cursor ahead = warp.FillRing(copies);
  auto begun = inputs.Begin();
  here.WaitForPrevious();
  // Not before: the kernels after this one would come to the multiprocessors
  // while those before it still need them.
  here.LaunchDependents();
  if constexpr (Inputs::kCopied) {
    warp.FetchActivations(here, copies);
  } else {
    inputs.template Write<Warp::kGroups>(here, product, warp.share.slice,
                                         &begun, warp.AllKept(here.shared),
                                         reinterpret_cast<float*>(warp.sums));
  }
  const auto place = results.FindPlace(product);

  int stage = 0;
  int buffer = 0;
  for (int tile = warp.first_tile; tile < warp.tiles; tile += warp.tile_step) {
    // Two buffers: a warp writes the next tile's while another reads these.
    auto* const tile_sums =
        reinterpret_cast<float4*>(warp.sums + buffer * Warp::kSumVectors);
    warp.MultiplyTile(copies, &stage, &ahead, tile_sums);
    if constexpr (Warp::kGroups == 1) {
      here.Meet();  // sums of all chains are there
    } else {
      GroupBarrier<kSkinnyGroupThreads>(warp.group);
    }
    results.template StoreTile<Weights, Warp::kRowTiles>(
        product, warp.share, tile, place, tile_sums);
    buffer ^= 1;
  }
  WaitCopies<0>();  // no copy may be under way when the block ends
  if (product.counters == nullptr) return;
  auto* const last = reinterpret_cast<bool*>(here.shared);
  here.Meet();  // all sums are written, and the rings are not needed
  if (threadIdx.x == 0) {
    *last = ComesLast(product.counters + here.index().x / product.order.slices,
                      product.order.slices);
  }
  here.Meet();  // all know
  if (*last) results.template AddSlices<Weights>(here, product, warp.tiles);
}

template <typename Here, typename Weights, int kRows>
__device__ __forceinline__ void MultiplySkinny(const Here& here,
                                               const Product& product) {
  MultiplyFewRows<Weights, kRows>(here, product, CopiedInputs(),
                                  PlainResults());
}

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_SKINNY_CUH_
