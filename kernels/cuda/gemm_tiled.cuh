// The product with more than 16 rows, and with fewer where SkinnyKernel's
// shared memory does not fit. A block computes a tile of outputs x rows and
// streams both operands through shared memory, a block of 64 inputs a stage. Up
// to 64 rows every weight still comes from memory once; activations come from
// the cache again for every tile. A warp goes through the chains one after
// another. Beside the sum of the present one, it keeps what the chains before
// it add up to.

#ifndef KERNELS_CUDA_GEMM_TILED_CUH_
#define KERNELS_CUDA_GEMM_TILED_CUH_

#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "kernels/cuda/gemm_block.cuh"
#include "kernels/cuda/gemm_order.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_weights.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {  // only gemm.cu includes this

// The tile that a block computes.
struct TileAt {
  int output;  // in tiles of the matrix
  int row;     // in rows
  int part;    // 0 where it computes all
  int first;   // block of inputs
  int end;     // block of inputs; not after `first`: nothing to compute
};

// Blocks that run at the same time should share operands in the cache: groups
// of 8 tiles of rows go through the outputs together.
template <typename Tile>
__device__ __forceinline__ TileAt FindTile(const Product& product) {
  constexpr int kGroup = 8;
  const GemmOrder& order = product.order;
  const int output_tiles =
      (product.outputs + Tile::kOutputs - 1) / Tile::kOutputs;
  const int row_tiles = (product.rows + Tile::kRows - 1) / Tile::kRows;
  const int parts = PartsOf(order, product.apart);
  const int index = blockIdx.x / parts;
  const int group = index / (kGroup * output_tiles) * kGroup;
  const int in_group = index % (kGroup * output_tiles);
  const int group_rows = min(kGroup, row_tiles - group);
  TileAt tile = {in_group / group_rows * Tile::kOutputTiles,
                 (group + in_group % group_rows) * Tile::kRows,
                 static_cast<int>(blockIdx.x) % parts, 0, order.blocks};
  if (product.apart == Apart::kNothing) return tile;
  const int chains = parts / order.slices;
  tile.first = tile.part / chains * order.slice_blocks;
  tile.end = min(order.blocks, tile.first + order.slice_blocks);
  if (product.apart == Apart::kChains) {
    tile.first += tile.part % chains * order.chain_blocks;
    tile.end = min(tile.end, tile.first + order.chain_blocks);
  }
  return tile;
}

// Where one of a lane's sums of 16 outputs x 8 rows goes. The next one of the
// same output is a row on; the other two are of the other output of its pair.
struct SumsAt {
  int output;
  int row;
  int rows;  // of the product
  int outputs;

  __device__ __forceinline__ bool Has(int next) const {
    return output < outputs && row + next < rows;
  }
  __device__ __forceinline__ size_t At(int next) const {
    return static_cast<size_t>(row + next) * outputs + output;
  }
};

__device__ __forceinline__ float2 LoadSums(const float* from,
                                           const SumsAt& at) {
  float2 sums = {};
  if (at.Has(0)) sums.x = from[at.At(0)];
  if (at.Has(1)) sums.y = from[at.At(1)];
  return sums;
}

__device__ __forceinline__ void StoreSumsAt(float* to, const SumsAt& at,
                                            const float2& sums) {
  if (at.Has(0)) to[at.At(0)] = sums.x;
  if (at.Has(1)) to[at.At(1)] = sums.y;
}

__device__ __forceinline__ float2 Plus(const float2& a, const float2& b) {
  return {a.x + b.x, a.y + b.y};
}

// Writes a warp's sums of a slice, or of a part, or adds them to those of the
// slices before. Reads come before all writes: so they do not wait for each
// other.
template <typename Weights, int kOutputTiles, int kRowTiles>
__device__ __forceinline__ void StoreSums(
    const Product& product, int slice, int part, int first_tile, int first_row,
    float4 (&sum)[kOutputTiles][kRowTiles]) {
  const bool whole =
      product.apart == Apart::kNothing && slice == product.order.slices - 1;
  const bool add = product.apart == Apart::kNothing && slice > 0;
  const float* const residual = whole ? product.residual : nullptr;
  float* const results =
      product.results + size_t{1} * part * product.rows * product.outputs;
#pragma unroll
  for (int i = 0; i < 2 * kOutputTiles; ++i) {
    int lane = threadIdx.x % 32;
    // Keeps the compiler from computing addresses long before, in registers
    // that the loop over blocks, or the sums of other outputs, need.
    asm volatile("" : "+r"(lane));
    const int other = i % 2;  // of a pair
    const int output = FirstOutput(first_tile + i / 2, product.pairs_apart) +
                       other * product.pairs_apart + lane / 4;
    const auto at = [&](int j) {
      return SumsAt{output, first_row + j * 8 + lane % 4 * 2, product.rows,
                    product.outputs};
    };
    float2 of[kRowTiles];
#pragma unroll
    for (int j = 0; j < kRowTiles; ++j) {
      const float4& all = sum[i / 2][j];
      of[j] = other == 0 ? float2{all.x, all.y} : float2{all.z, all.w};
    }
    if (add) {
      float2 before[kRowTiles];
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) before[j] = LoadSums(results, at(j));
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) of[j] = Plus(before[j], of[j]);
    }
    if (whole && Weights::kRowScales) {
      const float scale =
          output < product.outputs ? product.row_scales[output] : 0;
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) {
        of[j] = {of[j].x * scale, of[j].y * scale};
      }
    }
    if (residual != nullptr) {
      float2 added[kRowTiles];
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) added[j] = LoadSums(residual, at(j));
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) of[j] = Plus(of[j], added[j]);
    }
#pragma unroll
    for (int j = 0; j < kRowTiles; ++j) StoreSumsAt(results, at(j), of[j]);
  }
}

// Of shared memory: a block of weights, and one of rows after it.
template <typename Weights, typename Tile>
constexpr int kTiledStageVectors =
    Tile::kOutputTiles* Weights::kVectors + Tile::kRows / 8 * kRowTileVectors;

// Copies of all threads, into the stages.
template <typename Weights, typename Tile>
struct TiledCopies {
  const Product& product;
  const TileAt& tile;
  uint4* stages;

  __device__ __forceinline__ void CopyWeights(int block, int stage) const {
    Weights::template Copy<Tile::kOutputTiles, Tile::kThreads>(
        stages + stage * kTiledStageVectors<Weights, Tile>, product,
        tile.output, block, threadIdx.x);
  }
  __device__ __forceinline__ void CopyRows(int block, int stage) const {
    CopyBf16<Tile::kRows, Tile::kThreads>(
        stages + stage * kTiledStageVectors<Weights, Tile> +
            Tile::kOutputTiles * Weights::kVectors,
        product.activations, tile.row, product.rows, product.inputs, block,
        threadIdx.x);
  }
};

// Adds a chain's sums to what the chains before it add up to.
template <int kOutputTiles, int kRowTiles>
__device__ __forceinline__ void AddChain(
    bool first_chain, const float4 (&sum)[kOutputTiles][kRowTiles],
    float4 (&total)[kOutputTiles][kRowTiles]) {
#pragma unroll
  for (int i = 0; i < kOutputTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kRowTiles; ++j) {
      float4& to = total[i][j];
      const float4& chain = sum[i][j];
      if (first_chain) {
        to = chain;
      } else {
        to = {to.x + chain.x, to.y + chain.y, to.z + chain.z, to.w + chain.w};
      }
    }
  }
}

template <int kOutputTiles, int kRowTiles>
__device__ __forceinline__ void Clear(float4 (&sum)[kOutputTiles][kRowTiles]) {
#pragma unroll
  for (int i = 0; i < kOutputTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kRowTiles; ++j) sum[i][j] = {0, 0, 0, 0};
  }
}

template <typename Weights, typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    TiledKernel(const Product product) {
  constexpr int kStages = kTiledStages<Weights, Tile>;
  extern __shared__ uint4 shared[];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int warp_output = warp % Tile::kOutputWarps * Tile::kWarpOutputTiles;
  const int warp_row = warp / Tile::kOutputWarps * Tile::kWarpRowTiles;
  const GemmOrder& order = product.order;
  const TileAt tile = FindTile<Tile>(product);
  const int first = tile.first;
  const int end = tile.end;

  const TiledCopies<Weights, Tile> copies = {product, tile, shared};

  LaunchDependents();
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (first + stage < end) copies.CopyWeights(first + stage, stage);
  }
  WaitForPrevious();
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (first + stage < end) copies.CopyRows(first + stage, stage);
    CommitCopies();
  }

  float4 total[Tile::kWarpOutputTiles][Tile::kWarpRowTiles] = {};
  float4 sum[Tile::kWarpOutputTiles][Tile::kWarpRowTiles] = {};
  int slice = 0;
  int slice_end = min(end, first + order.slice_blocks);
  int chain_end = min(slice_end, first + order.chain_blocks);
  bool first_chain = true;
  int stage = 0;
  for (int block = first; block < end; ++block) {
    WaitCopies<kStages - 2>();
    __syncthreads();  // copies of all are there, the last stage is read
    const int refilled = stage == 0 ? kStages - 1 : stage - 1;
    if (const int ahead = block + kStages - 1; ahead < end) {
      copies.CopyWeights(ahead, refilled);
      copies.CopyRows(ahead, refilled);
    }
    CommitCopies();
    const uint4* const weights =
        shared + stage * kTiledStageVectors<Weights, Tile>;
    MultiplyBlock<Weights>(weights + warp_output * Weights::kVectors,
                           weights + Tile::kOutputTiles * Weights::kVectors +
                               warp_row * kRowTileVectors,
                           product.rows - tile.row - 8 * warp_row, INT_MAX,
                           lane, sum);
    stage = stage == kStages - 1 ? 0 : stage + 1;

    if (block + 1 < chain_end) continue;
    AddChain(first_chain, sum, total);
    first_chain = false;
    if (block + 1 == slice_end) {
      StoreSums<Weights>(product, slice, tile.part, tile.output + warp_output,
                         tile.row + warp_row * 8, total);
      ++slice;
      slice_end = min(end, slice_end + order.slice_blocks);
      first_chain = true;
    }
    chain_end = min(slice_end, block + 1 + order.chain_blocks);
    Clear(sum);
  }
  WaitCopies<0>();  // no copy may be under way when the block ends
}

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_TILED_CUH_
