// How a kernel gets at weights of each format. It copies 16-output x 64-input
// tiles into shared memory, from where a lane feeds the tensor cores.
// Activations lie as bf16 weights do.
//
// Weights are the 16-row operand of the tensor cores, activation rows the 8
// columns, so 1 to 8 rows are the same instructions. An instruction adds 16
// inputs that follow each other, for every kernel and format.

#ifndef KERNELS_CUDA_GEMM_WEIGHTS_CUH_
#define KERNELS_CUDA_GEMM_WEIGHTS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/bf16_pairs.cuh"
#include "kernels/cuda/gemm_layout.h"
#include "kernels/cuda/gemm_order.h"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {

// Vectors of 8 rows x 64 inputs of bf16.
inline constexpr int kRowTileVectors = 64;
inline constexpr int kSteps = kBlockInputs / 16;  // m16n8k16 of a block

// What a kernel is launched with.
struct Product {
  const char* weights;
  const float* row_scales;
  const char* activations;
  float* results;  // [rows, outputs], or [slices, rows, outputs] to be summed
  const float* residual;  // added to what is not to be summed; may be null
  // Of SkinnyKernel, where blocks of the same outputs count themselves and the
  // last one sums what all have in `parts` [slices, rows, outputs]; else null.
  float* parts;
  unsigned* counters;
  GemmOrder order;
  int outputs;
  int pairs_apart;  // gemm_layout.h
  int inputs;
  int rows;
  Apart apart;  // what has blocks and results of its own

  bool operator==(const Product&) const = default;
};

// A lane's share of a tile of weights: the first operand of every step, two
// steps a half.
struct Fragments {
  uint32_t halves[2][2][4];
};

// Rows of bf16 lie in tiles of 8 rows x 64 inputs, as Bf16Slot says.

// Copies kRows rows x 64 inputs of a bf16 matrix, from first_row on; each of
// kThreads threads copies a vector of every kThreads / 8-th row.
template <int kRows, int kThreads>
__device__ __forceinline__ void CopyBf16(uint4* shared, const char* matrix,
                                         int first_row, int rows, int inputs,
                                         int block, int thread) {
  constexpr int kStep = kThreads / 8;
  static_assert(kStep == 4 || kStep % 8 == 0);
  const int column = thread % 8;
  uint4* const to = shared + Bf16Slot(thread / 8, column);
  uint4* const odd = shared + Bf16Slot(thread / 8, column ^ 4);
  const int input = block * kBlockInputs + column * kVectorInputs;
  const int row = first_row + thread / 8;
  const size_t stride = size_t{2} * inputs;
  const char* from = matrix + row * stride + size_t{2} * input;
#pragma unroll
  for (int i = 0; i < kRows / kStep; ++i) {
    const bool inside = row + i * kStep < rows && input < inputs;
    // Four rows on, other vectors are swapped.
    uint4* const slot = kStep == 4 && i % 2 == 1 ? odd : to;
    CopyVector(slot + i * kStep * 8, inside ? from : matrix, inside);
    from += kStep * stride;
  }
}

// Blocks are copied as they are.
template <int kBlockVectors>
struct PackedWeights {
  static constexpr int kVectors = kBlockVectors;

  // One block of kTiles tiles, a share of it for each of kThreads threads.
  template <int kTiles, int kThreads>
  __device__ static void Copy(uint4* shared, const Product& product, int tile,
                              int block, int thread) {
    constexpr int kWarps = kThreads / 32;
    const int lane = thread % 32;
#pragma unroll
    for (int first = 0; first < kTiles; first += kWarps) {
      const int of = first + thread / 32;
      if (of >= kTiles) break;
      // After the last tile: that one again, whose results are not stored.
      const int last = (product.outputs - 1) / kTileOutputs;
      const int from_tile = kTiles == 1 ? tile : min(tile + of, last);
      // 32 bits count blocks of a kilobyte.
      const auto at =
          static_cast<uint32_t>(from_tile * product.order.blocks + block);
      const char* const from = product.weights + lane * sizeof(uint4) +
                               at * (kVectors * sizeof(uint4));
#pragma unroll
      for (int i = 0; i < kVectors; i += 32) {
        if (i + lane < kVectors) {
          CopyVector(shared + of * kVectors + i + lane,
                     from + i * sizeof(uint4), true);
        }
      }
    }
  }

  // What a lane has of 32 inputs of a byte, as it is stored: of outputs lane /
  // 4 and lane / 4 + 8.
  struct Words {
    uint2 low;
    uint2 high;
  };
  __device__ static Words LoadWords(const uint4* tile, int half, int lane) {
    const auto* const words = reinterpret_cast<const uint2*>(tile);
    return {words[half * 64 + lane], words[half * 64 + 32 + lane]};
  }

 protected:
  // Two steps.
  template <typename Pairs>
  __device__ static void Widen(const Words& words, const Pairs& pairs_of,
                               uint32_t (&a)[2][4]) {
    const Bf16Pairs pairs[4] = {pairs_of(words.low.x), pairs_of(words.high.x),
                                pairs_of(words.low.y), pairs_of(words.high.y)};
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      a[step][0] = pairs[2 * step].first;
      a[step][1] = pairs[2 * step + 1].first;
      a[step][2] = pairs[2 * step].second;
      a[step][3] = pairs[2 * step + 1].second;
    }
  }
};

// Of each format: kGroups of a block's inputs, each with a scale for every
// output (0: no such scales); kRowScales, one scale for all inputs.
struct Bf16Weights : PackedWeights<2 * kRowTileVectors> {
  static constexpr GemmFormat kFormat = GemmFormat::kBf16;
  static constexpr int kGroups = 0;
  static constexpr bool kRowScales = false;

  // Two steps: inputs 32 half to 32 half + 31.
  __device__ static void LoadHalf(const uint4* tile, int half, int lane,
                                  uint32_t (&a)[2][4]) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      LoadMatrices(a[step],
                   tile + Bf16Slot(lane % 16, 4 * half + 2 * step + lane / 16));
    }
  }
};

struct Int8Weights
    : PackedWeights<(kBlockWeightBytes + kBlockScaleBytes) / sizeof(uint4)> {
  static constexpr GemmFormat kFormat = GemmFormat::kInt8;
  static constexpr int kGroups = 1;
  static constexpr bool kRowScales = false;

  __device__ static void Widen(const Words& words, uint32_t (&a)[2][4]) {
    PackedWeights::Widen(
        words, [](uint32_t word) { return PairsOfInt8(word); }, a);
  }
  __device__ static void LoadHalf(const uint4* tile, int half, int lane,
                                  uint32_t (&a)[2][4]) {
    Widen(LoadWords(tile, half, lane), a);
  }

  // Of outputs lane / 4 and lane / 4 + 8: two bf16.
  __device__ static uint32_t Scales(const uint4* tile, int /*group*/,
                                    int lane) {
    return reinterpret_cast<const uint32_t*>(
        tile)[kBlockWeightBytes / sizeof(uint32_t) + lane / 4];
  }
};

struct Int4Weights
    : PackedWeights<PackedBlockBytes(GemmFormat::kInt4) / sizeof(uint4)> {
  static constexpr GemmFormat kFormat = GemmFormat::kInt4;
  static constexpr int kGroups = 2;
  static constexpr bool kRowScales = false;

  // What a lane has of 32 inputs, as it is stored: of outputs lane / 4 and
  // lane / 4 + 8.
  using Words = uint2;
  __device__ static Words LoadWords(const uint4* tile, int half, int lane) {
    return reinterpret_cast<const uint2*>(tile)[half * 32 + lane];
  }
  __device__ static void Widen(const Words& words, uint32_t (&a)[2][4]) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      a[step][0] = PairOfInt4(words.x >> (8 * step));
      a[step][1] = PairOfInt4(words.y >> (8 * step));
      a[step][2] = PairOfInt4(words.x >> (8 * step + 4));
      a[step][3] = PairOfInt4(words.y >> (8 * step + 4));
    }
  }
  __device__ static void LoadHalf(const uint4* tile, int half, int lane,
                                  uint32_t (&a)[2][4]) {
    Widen(LoadWords(tile, half, lane), a);
  }

  // Of a half, as int8's.
  __device__ static uint32_t Scales(const uint4* tile, int group, int lane) {
    return reinterpret_cast<const uint32_t*>(
        tile)[(kInt4WeightBytes + group * kBlockScaleBytes) /
                  static_cast<int>(sizeof(uint32_t)) +
              lane / 4];
  }
};

struct Fp8Weights : PackedWeights<kBlockWeightBytes / sizeof(uint4)> {
  static constexpr GemmFormat kFormat = GemmFormat::kFp8;
  static constexpr int kGroups = 0;
  static constexpr bool kRowScales = true;

  __device__ static void Widen(const Words& words, uint32_t (&a)[2][4]) {
    PackedWeights::Widen(
        words, [](uint32_t word) { return PairsOfFp8(word); }, a);
  }
  __device__ static void LoadHalf(const uint4* tile, int half, int lane,
                                  uint32_t (&a)[2][4]) {
    Widen(LoadWords(tile, half, lane), a);
  }
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_WEIGHTS_CUH_
