#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/gemm_launch.cuh"
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
namespace {

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
  template <typename Weights>
  __device__ __forceinline__ void AddSlices(const Product& product,
                                            int tiles) const {
    ForLastElements<Weights, kPairs>(
        product, tiles, [&](int tile, int row, int pair) {
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

template <typename Weights, int kRows, typename To>
__global__ void __launch_bounds__(kSkinnyThreads<Weights>, 1)
    SkinnyPairsKernel(const Product product, const To to) {
  extern __shared__ uint4 shared[];
  MultiplyFewRows<Weights, kRows>(product, CopiedInputs(),
                                  PairedResults<To>{to}, shared);
}

constexpr int kNormedRows = 8;  // at most

template <typename Weights, typename To>
__global__ void __launch_bounds__(kSkinnyThreads<Weights>, 1)
    NormedPairsKernel(const Product product, const NormedInputs inputs,
                      const To to) {
  extern __shared__ uint4 shared[];
  MultiplyFewRows<Weights, kNormedRows>(product, inputs, PairedResults<To>{to},
                                        shared);
}

template <typename Weights, typename To>
cudaError_t Launch(const Queue& queue, const Planned& planned,
                   const Product& product, const NormOfInputs* norm,
                   const To& to) {
  const Queue on = QueueOf(queue, planned);
  const Grid grid = {dim3(static_cast<unsigned>(planned.plan.blocks)),
                     kSkinnyThreads<Weights>, planned.plan.shared_bytes};
  const bool few = planned.plan.kernel == GemmKernel::kSkinny8;
  if (norm == nullptr) {
    return LaunchKernel(on, grid,
                        few ? SkinnyPairsKernel<Weights, 8, To>
                            : SkinnyPairsKernel<Weights, 16, To>,
                        product, to);
  }
  if (!few) return cudaErrorInvalidValue;
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
