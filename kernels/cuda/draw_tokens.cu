#include <cuda_runtime.h>

#include <cstdint>

#include "common/philox.h"
#include "common/token_draw.h"
#include "kernels/cuda/draw_tokens.h"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kTokens = 4;  // of a thread: what one block of noise is for
constexpr int kPart = kTokens * kThreads;  // tokens of a block

__device__ __forceinline__ uint64_t Larger(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

// Of all threads of the block; thread 0 has it.      warp_keys [kWarps], shared
__device__ __forceinline__ uint64_t BlockLargest(uint64_t key,
                                                 uint64_t* warp_keys) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    key = Larger(key, __shfl_xor_sync(kAllLanes, key, distance));
  }
  if (threadIdx.x % 32 == 0) warp_keys[threadIdx.x / 32] = key;
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) {
      key = Larger(key, warp_keys[warp]);
    }
  }
  return key;
}

// One block for each pair of a draw (x) and a part of its row (y). `vector`:
// rows are aligned to 16 bytes.
__global__ void __launch_bounds__(kThreads)
    PartKernel(const float* logits, int cols, const DeviceDraw* draws,
               uint64_t* keys, bool vector) {
  extern __shared__ uint4 shared[];
  LaunchDependents();
  WaitForPrevious();
  const TokenDraw draw = draws[blockIdx.x].draw;
  const int first = kPart * blockIdx.y + kTokens * threadIdx.x;
  const int count = draw.vocab_limit - first;
  uint64_t largest = 0;
  if (count > 0) {
    const size_t row = draws[blockIdx.x].row;
    const float4 four = LoadFour(logits + row * cols + first, count, vector);
    uint32_t noise[kTokens] = {};
    if (draw.temperature > 0.0f) {
      FillNoise(draw.seed, static_cast<uint32_t>(draw.position),
                static_cast<uint32_t>(first / kTokens), NoisePurpose::kSample,
                noise);
    }
    const float values[kTokens] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      if (i >= count) continue;
      largest = Larger(
          largest, DrawKey(draw.temperature, values[i], noise[i], first + i));
    }
  }
  largest = BlockLargest(largest, reinterpret_cast<uint64_t*>(shared));
  if (threadIdx.x == 0) {
    keys[size_t{gridDim.y} * blockIdx.x + blockIdx.y] = largest;
  }
}

// One block a draw.
__global__ void __launch_bounds__(kThreads)
    MergeKernel(const uint64_t* keys, int parts, int32_t* ids) {
  extern __shared__ uint4 shared[];
  LaunchDependents();
  WaitForPrevious();
  const uint64_t* const row = keys + static_cast<size_t>(parts) * blockIdx.x;
  uint64_t largest = 0;
  for (int part = threadIdx.x; part < parts; part += kThreads) {
    largest = Larger(largest, row[part]);
  }
  largest = BlockLargest(largest, reinterpret_cast<uint64_t*>(shared));
  if (threadIdx.x == 0) ids[blockIdx.x] = DrawnId(largest);
}

}  // namespace

int DrawParts(int cols) {
  return static_cast<int>(BlocksFor(static_cast<size_t>(cols), kPart).x);
}

cudaError_t DrawTokens(const Queue& queue, const DrawArgs& args) {
  const bool vector =
      args.cols % 4 == 0 &&
      reinterpret_cast<uintptr_t>(args.logits) % sizeof(float4) == 0;
  const int parts = DrawParts(args.cols);
  const auto count = static_cast<unsigned>(args.count);
  constexpr size_t shared_bytes = kWarps * sizeof(uint64_t);
  const cudaError_t status = LaunchKernel(
      queue,
      {dim3(count, static_cast<unsigned>(parts)), kThreads, shared_bytes},
      PartKernel, args.logits, args.cols, args.draws, args.keys, vector);
  if (status != cudaSuccess) return status;
  return LaunchKernel(queue, {dim3(count), kThreads, shared_bytes}, MergeKernel,
                      static_cast<const uint64_t*>(args.keys), parts, args.ids);
}

}  // namespace nacre::kernels::cuda
