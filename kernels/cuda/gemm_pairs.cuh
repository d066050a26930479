// What becomes of pairs of outputs of the product with few rows
// (gemm_skinny.cuh), and that product as a block computes it.

#ifndef KERNELS_CUDA_GEMM_PAIRS_CUH_
#define KERNELS_CUDA_GEMM_PAIRS_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/gemm_layout.h"
#include "kernels/cuda/gemm_pairs.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_skinny.cuh"
#include "kernels/cuda/gemm_skinny_inputs.cuh"
#include "kernels/cuda/gemm_skinny_results.cuh"
#include "kernels/cuda/gemm_weights.cuh"
#include "kernels/cuda/head_in_cache.cuh"
#include "kernels/cuda/kv_address.cuh"
#include "kernels/cuda/math.cuh"

namespace nacre::kernels::cuda {
namespace {  // only gemm_pairs.cu and persistent.cu include this

// Where pairs of outputs go. `To` has, of a row, a Place that does not depend
// on outputs, and says what becomes of a pair.
template <typename To>
struct PairedResults {
  static constexpr int kPairs = kTileOutputs / 2;  // of a tile

  To to;

  __device__ __forceinline__ static int RowOfThread() {
    return threadIdx.x % kSkinnyGroupThreads / kPairs;
  }

  __device__ __forceinline__ typename To::Place FindPlace(
      const Product& product) const {
    const int row = RowOfThread();
    return to.FindPlace(row < product.rows ? row : 0);
  }

  template <typename Weights, int kRowTiles>
  __device__ __forceinline__ void StoreTile(const Product& product,
                                            const SkinnyShare& share, int tile,
                                            const typename To::Place& place,
                                            const float4* tile_sums) const {
    const int row = RowOfThread();
    if (row >= product.rows) return;
    const int pair = threadIdx.x % kPairs;
    const int column = FirstOutput(tile, product.pairs_apart) + pair;
    const GemmOrder& order = product.order;
    float2 sums = {
        TileSum<kRowTiles>(order, share, pair, row, tile_sums),
        TileSum<kRowTiles>(order, share, pair + kPairs, row, tile_sums)};
    if (product.counters != nullptr) {
      float* const parts =
          product.parts +
          (static_cast<size_t>(share.slice) * product.rows + row) *
              product.outputs +
          column;
      __stcg(parts, sums.x);
      __stcg(parts + product.pairs_apart, sums.y);
      return;
    }
    Finish<Weights>(product, row, column, sums, place);
  }

  // Of the last block.
  template <typename Weights, typename Here>
  __device__ __forceinline__ void AddSlices(const Here& here,
                                            const Product& product,
                                            int tiles) const {
    ForLastElements<Weights, kPairs>(
        here, product, tiles, [&](int tile, int row, int pair) {
          // First: it is on its way meanwhile.
          const typename To::Place place = to.FindPlace(row);
          const int column = FirstOutput(tile, product.pairs_apart) + pair;
          const float* const parts =
              product.parts + static_cast<size_t>(row) * product.outputs +
              column;
          Finish<Weights>(product, row, column,
                          {SliceSum(product, parts),
                           SliceSum(product, parts + product.pairs_apart)},
                          place);
        });
  }

 private:
  template <typename Weights>
  __device__ __forceinline__ void Finish(
      const Product& product, int row, int column, float2 sums,
      const typename To::Place& place) const {
    if (Weights::kRowScales) {
      sums.x *= product.row_scales[column];
      sums.y *= product.row_scales[column + product.pairs_apart];
    }
    to.Store(product, row, column, sums, place);
  }
};

struct Gate {
  struct Place {};

  uint16_t* gated;

  __device__ __forceinline__ Place FindPlace(int) const { return {}; }
  __device__ __forceinline__ void Store(const Product& product, int row,
                                        int column, float2 sums, Place) const {
    gated[static_cast<size_t>(row) * product.pairs_apart + column] =
        RoundToBF16(Gated(sums.x, sums.y));
  }

  bool operator==(const Gate&) const = default;
};

// Element: of the cache.
template <typename Element>
struct RotateTo {
  using Place = int2;  // of FindBlock

  RotateOutputs of;

  __device__ __forceinline__ Place FindPlace(int row) const {
    return FindBlock(of.kv, RowPath(of.rows, row), of.rows.positions[row]);
  }
  __device__ __forceinline__ void Store(const Product& product, int row,
                                        int column, float2 sums,
                                        Place place) const {
    const int half = product.pairs_apart;
    const int head = column / (2 * half);
    const int j = column % (2 * half);
    if (of.bias != nullptr) {
      sums.x += of.bias[column];
      sums.y += of.bias[column + half];
    }
    const int kv_head = head - of.num_heads;
    if (kv_head >= of.kv.num_kv_heads) {
      const HeadInCache<Element> cache(of.kv, place,
                                       kv_head - of.kv.num_kv_heads);
      cache.StoreValue(j, sums.x);
      cache.StoreValue(j + half, sums.y);
      return;
    }
    const size_t angle = static_cast<size_t>(row) * half + j;
    const Pair turned = Rotate(sums.x, sums.y, of.cos[angle], of.sin[angle]);
    if (kv_head >= 0) {
      const HeadInCache<Element> cache(of.kv, place, kv_head);
      cache.StoreKey(j, turned.first);
      cache.StoreKey(j + half, turned.second);
      return;
    }
    float* const query =
        product.results + static_cast<size_t>(row) * product.outputs + column;
    query[0] = turned.first;
    query[half] = turned.second;
  }

  bool operator==(const RotateTo&) const = default;
};

template <typename Here, typename Weights, int kRows, typename To>
__device__ __forceinline__ void MultiplyPairs(const Here& here,
                                              const Product& product,
                                              const To& to) {
  MultiplyFewRows<Weights, kRows>(here, product, CopiedInputs(),
                                  PairedResults<To>{to});
}

constexpr int kNormedRows = 8;  // at most

template <typename Here, typename Weights, typename To>
__device__ __forceinline__ void MultiplyNormedPairs(const Here& here,
                                                    const Product& product,
                                                    const NormedInputs& inputs,
                                                    const To& to) {
  MultiplyFewRows<Weights, kNormedRows>(here, product, inputs,
                                        PairedResults<To>{to});
}

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_PAIRS_CUH_
