#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/skinny_gemm.h"

// How it reaches the memory limit. One block per multiprocessor stays for the
// whole product: it keeps one slice of the inputs and walks over tiles of 16
// outputs. Each warp owns every eighth block of 64 inputs and fetches its
// weights into a ring of its own with 16-byte asynchronous copies, whole
// 128-byte lines at a time, several stages ahead, across the ends of tiles;
// nothing but the sum at the end of a tile makes warps wait for each other.
// Activations are fetched beside the weights of the first tile and stay in
// shared memory.
//
// Weights are the 16-row operand of the tensor cores, activation rows the 8
// columns, so 1 to 8 rows are the same instructions. The sum over inputs does
// not care which input is called which, as long as both operands agree: a
// thread's 16 contiguous bytes (8 inputs) serve as its fragments of two
// instructions, and operands need no transposition on the way.

namespace nacre::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kTileOutputs = 16;
constexpr int kBlockInputs = 64;     // one 128-byte line of bf16
constexpr int kMaxSliceBlocks = 64;  // of activations in shared memory
constexpr int kStages = 5;
constexpr int kVectorInputs = 8;  // bf16 of a 16-byte copy
// A tile x block of weights in 16-byte vectors: [half of the block 2]
// [outputs 0-7, 8-15][lane].
constexpr int kStageVectors = kTileOutputs * kBlockInputs / kVectorInputs;
// Tiles of a slice that keep large chips busy, and inputs worth a slice.
constexpr int kEnoughTiles = 256;
constexpr int kMinSliceBlocks = 16;
constexpr int kReduceThreads = 256;

// Rows are padded with zeros to kRowTiles * 8.
template <int kRowTiles>
struct Shared {
  // [half][row tile][lane] vectors of one block of activations.
  static constexpr int kActivationVectors = 2 * kRowTiles * 32;
  static constexpr int kSumVectors = kWarps * kRowTiles * 32;  // one tile's

  static size_t Bytes(int slice_blocks) {
    const size_t blocks = (slice_blocks + kWarps - 1) / kWarps * kWarps;
    return 16 * (kWarps * kStages * kStageVectors + 2 * kSumVectors +
                 blocks * kActivationVectors);
  }
};

struct Product {
  const char* weights;
  const char* activations;
  float* results;  // [rows, outputs], or [splits, rows, outputs] to be summed
  int outputs;
  int inputs;
  int rows;
  int splits;
  int slice_blocks;
};

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

template <int kRowTiles>
__global__ void __launch_bounds__(kThreads, 1)
    MultiplyKernel(const Product product) {
  extern __shared__ uint4 shared[];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  uint4* const ring = shared + warp * kStages * kStageVectors;
  uint4* const sums = shared + kWarps * kStages * kStageVectors;
  uint4* const kept = sums + 2 * Shared<kRowTiles>::kSumVectors;

  const int split = blockIdx.x % product.splits;
  const int first_tile = blockIdx.x / product.splits;
  const int tile_step = gridDim.x / product.splits;
  const int tiles = (product.outputs + kTileOutputs - 1) / kTileOutputs;
  const int first_block = split * product.slice_blocks + warp;
  const int end_block = min((split + 1) * product.slice_blocks,
                            (product.inputs + kBlockInputs - 1) / kBlockInputs);
  const int blocks = max(0, (end_block - first_block + kWarps - 1) / kWarps);
  const size_t stride = size_t{2} * product.inputs;  // bytes of a matrix row

  // A copy of the warp takes 4 rows x 128 bytes: lane l row l / 8, vector l
  // % 8.
  const int copy_row = lane / 8;
  const int copy_half = lane % 8 / 4;
  // Fragments lie in the order of the lanes that read them. The second half
  // swaps neighbouring rows: else copies of one row would meet in a bank.
  const auto slot = [&](int row) { return (row ^ copy_half) * 4 + lane % 4; };
  const auto copy_weights = [&](const Cursor& at, int stage) {
    const int input =
        (first_block + at.block * kWarps) * kBlockInputs + lane % 8 * 8;
    const char* const column = product.weights + size_t{2} * input;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = i * 4 + copy_row;
      const int output = at.tile * kTileOutputs + row;
      const bool inside = output < product.outputs && input < product.inputs;
      CopyVector(ring + stage * kStageVectors + (copy_half * 2 + i / 2) * 32 +
                     slot(row % 8),
                 inside ? column + output * stride : product.weights, inside);
    }
  };
  const auto activation_block = [&](int block) {
    return kept +
           (block * kWarps + warp) * Shared<kRowTiles>::kActivationVectors;
  };
  const auto copy_activations = [&](int block) {
    const int input =
        (first_block + block * kWarps) * kBlockInputs + lane % 8 * 8;
    const char* const column = product.activations + size_t{2} * input;
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const int row = i * 4 + copy_row;
      const bool inside = row < product.rows && input < product.inputs;
      CopyVector(activation_block(block) +
                     (copy_half * kRowTiles + i / 2) * 32 + slot(row % 8),
                 inside ? column + row * stride : product.activations, inside);
    }
  };

  LaunchDependents();
  Cursor ahead{first_tile};
  if (blocks == 0) ahead.tile = tiles;
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (ahead.tile < tiles) copy_weights(ahead, stage);
    ahead.Advance(blocks, tile_step);
  }
  WaitForPrevious();
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (stage < blocks) copy_activations(stage);
    CommitCopies();
  }

  int stage = 0;
  int buffer = 0;
  for (int tile = first_tile; tile < tiles; tile += tile_step) {
    float4 sum[kRowTiles] = {};
    for (int block = 0; block < blocks; ++block) {
      WaitCopies<kStages - 2>();
      __syncwarp();  // copies of all lanes are there, the last stage is read
      const int refilled = stage == 0 ? kStages - 1 : stage - 1;
      if (ahead.tile < tiles) {
        copy_weights(ahead, refilled);
        if (ahead.tile == first_tile) copy_activations(ahead.block);
      }
      CommitCopies();
      ahead.Advance(blocks, tile_step);

      const uint4* const weights = ring + stage * kStageVectors;
      const uint4* const activations = activation_block(block);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = lane ^ (half * 4);
        const uint4 low = weights[half * 64 + at];
        const uint4 high = weights[half * 64 + 32 + at];
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          const uint4 x = activations[(half * kRowTiles + i) * 32 + at];
          MultiplyAdd(sum[i], low.x, high.x, low.y, high.y, x.x, x.y);
          MultiplyAdd(sum[i], low.z, high.z, low.w, high.w, x.z, x.w);
        }
      }
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }

    // Two buffers: a warp writes the next tile's while another reads these.
    auto* const tile_sums = reinterpret_cast<float4*>(
        sums + buffer * Shared<kRowTiles>::kSumVectors);
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      tile_sums[(warp * kRowTiles + i) * 32 + lane] = sum[i];
    }
    __syncthreads();
    const int output = threadIdx.x % kTileOutputs;
    const int row = threadIdx.x / kTileOutputs;
    const int column = tile * kTileOutputs + output;
    if (row < product.rows && column < product.outputs) {
      // Where the instruction leaves element (output, row).
      const int owner = row / 8 * 32 + output % 8 * 4 + row % 8 / 2;
      const int part = output / 8 * 2 + row % 2;
      const auto* const value =
          reinterpret_cast<const float*>(tile_sums + owner) + part;
      float total = value[0];
#pragma unroll
      for (int other = 1; other < kWarps; ++other) {
        total += value[other * kRowTiles * 32 * 4];
      }
      product
          .results[(size_t{1} * split * product.rows + row) * product.outputs +
                   column] = total;
    }
    buffer ^= 1;
  }
  WaitCopies<0>();  // no copy may be under way when the block ends
}

// results[i] = sum of parts[split][i], in the order of the splits.
__global__ void __launch_bounds__(kReduceThreads)
    ReduceKernel(const float* parts, float* results, size_t elements,
                 int splits) {
  LaunchDependents();
  WaitForPrevious();
  const size_t i = size_t{kReduceThreads} * blockIdx.x + threadIdx.x;
  if (i >= elements) return;
  float total = parts[i];
  for (int split = 1; split < splits; ++split) {
    total += parts[split * elements + i];
  }
  results[i] = total;
}

cudaError_t DeviceAttribute(cudaDeviceAttr attribute, int* value) {
  int device = 0;
  const cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  return cudaDeviceGetAttribute(value, attribute, device);
}

// A launch, with programmatic overlap where the device knows it and it is
// wanted.
struct Launch {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attribute = {};

  Launch(int blocks, int threads, size_t shared_bytes, bool overlap,
         cudaStream_t stream) {
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = overlap ? 1 : 0;
  }
};

struct Device {
  int multiprocessors = 0;
  int shared_bytes = 0;  // a block may have
  int major = 0;         // compute capability
};

cudaError_t ReadDevice(Device* device) {
  const struct {
    cudaDeviceAttr attribute;
    int* value;
  } wanted[] = {
      {cudaDevAttrMultiProcessorCount, &device->multiprocessors},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, &device->shared_bytes},
      {cudaDevAttrComputeCapabilityMajor, &device->major},
  };
  for (const auto& [attribute, value] : wanted) {
    const cudaError_t status = DeviceAttribute(attribute, value);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

template <int kRowTiles>
cudaError_t Multiply(const Product& product, const Device& device, bool overlap,
                     cudaStream_t stream) {
  const size_t bytes = Shared<kRowTiles>::Bytes(product.slice_blocks);
  const cudaError_t status = cudaFuncSetAttribute(
      MultiplyKernel<kRowTiles>, cudaFuncAttributeMaxDynamicSharedMemorySize,
      static_cast<int>(bytes));
  if (status != cudaSuccess) return status;
  const int tiles = (product.outputs + kTileOutputs - 1) / kTileOutputs;
  const int walkers =
      std::min(tiles, std::max(1, device.multiprocessors / product.splits));
  const Launch launch(walkers * product.splits, kThreads, bytes, overlap,
                      stream);
  return cudaLaunchKernelEx(&launch.config, MultiplyKernel<kRowTiles>, product);
}

bool Aligned(const void* pointer) {
  return pointer != nullptr && reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

int Blocks(int inputs) { return (inputs + kBlockInputs - 1) / kBlockInputs; }

}  // namespace

int SkinnyGemmSplits(int outputs, int inputs) {
  const int tiles = (outputs + kTileOutputs - 1) / kTileOutputs;
  const int blocks = Blocks(inputs);
  int splits = (blocks + kMaxSliceBlocks - 1) / kMaxSliceBlocks;
  while (tiles * splits < kEnoughTiles &&
         blocks >= 2 * splits * kMinSliceBlocks) {
    splits *= 2;
  }
  return splits;
}

size_t SkinnyGemmWorkspaceBytes(int outputs, int inputs) {
  const int splits = SkinnyGemmSplits(outputs, inputs);
  if (splits == 1) return 0;
  return sizeof(float) * splits * kSkinnyGemmMaxRows * outputs;
}

cudaError_t SkinnyGemm(const SkinnyGemmArgs& args, cudaStream_t stream) {
  if (args.rows < 1 || args.rows > kSkinnyGemmMaxRows || args.outputs < 1 ||
      args.inputs < kVectorInputs || args.inputs % kVectorInputs != 0 ||
      !Aligned(args.weights) || !Aligned(args.activations) ||
      args.results == nullptr) {
    return cudaErrorInvalidValue;
  }
  const int splits = SkinnyGemmSplits(args.outputs, args.inputs);
  if (splits > 1 && args.workspace == nullptr) return cudaErrorInvalidValue;
  Device device;
  cudaError_t status = ReadDevice(&device);
  if (status != cudaSuccess) return status;

  const bool overlap = args.overlap_previous && device.major >= 9;
  const int slice_blocks = (Blocks(args.inputs) + splits - 1) / splits;
  const bool one_pass = Shared<2>::Bytes(slice_blocks) <=
                        static_cast<size_t>(device.shared_bytes);
  const int pass_rows = one_pass ? kSkinnyGemmMaxRows : kSkinnyGemmMaxRows / 2;
  for (int row = 0; row < args.rows; row += pass_rows) {
    Product product = {};
    product.weights = static_cast<const char*>(args.weights);
    product.activations = static_cast<const char*>(args.activations) +
                          size_t{2} * row * args.inputs;
    float* const results = args.results + size_t{1} * row * args.outputs;
    product.results =
        splits == 1 ? results : static_cast<float*>(args.workspace);
    product.outputs = args.outputs;
    product.inputs = args.inputs;
    product.rows = std::min(pass_rows, args.rows - row);
    product.splits = splits;
    product.slice_blocks = slice_blocks;
    status = product.rows > 8 ? Multiply<2>(product, device, overlap, stream)
                              : Multiply<1>(product, device, overlap, stream);
    if (status != cudaSuccess) return status;
    if (splits == 1) continue;
    const size_t elements = size_t{1} * product.rows * args.outputs;
    // Overlaps only its own launch: it waits for the sums.
    const Launch launch(
        static_cast<int>((elements + kReduceThreads - 1) / kReduceThreads),
        kReduceThreads, 0, overlap, stream);
    status = cudaLaunchKernelEx(&launch.config, ReduceKernel,
                                static_cast<const float*>(product.results),
                                results, elements, splits);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace nacre::kernels::cuda
