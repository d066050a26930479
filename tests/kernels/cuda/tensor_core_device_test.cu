// A GPU's tensor cores against the emulated one: random products of every
// class, alone and in chains, bit by bit. Skipped without a GPU of sm_90.
//
// --write FOLDER: makes the files that tests/data/kernels has of an H200.

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/primitives.cuh"
#include "tests/kernels/cuda/cuda_testing.h"
#include "tests/kernels/cuda/emulation/tensor_core.h"
#include "tests/kernels/cuda/tensor_core_cases.h"

namespace nacre::kernels::cuda {
namespace {

constexpr int kTiles = 9600;      // 1600 of each class, 1.2 million sums
constexpr int kGoldenTiles = 24;  // four of each

__device__ uint32_t PairAt(const uint16_t* from) {
  return from[0] | static_cast<uint32_t>(from[1]) << 16;
}

// A block is a warp and has a tile. Left matrices by rows, right ones by
// columns, both of one step after another; sums by rows.
__global__ void TileKernel(const uint16_t* left, const uint16_t* right,
                           int steps, float* sums) {
  const int group = threadIdx.x / 4;
  const int pair = threadIdx.x % 4 * 2;
  float* const tile = sums + blockIdx.x * kTileSums + group * kTileColumns;
  float* const below = tile + 8 * kTileColumns;
  float4 sum = {tile[pair], tile[pair + 1], below[pair], below[pair + 1]};
  for (int step = 0; step < steps; ++step) {
    const int number = blockIdx.x * steps + step;
    const uint16_t* const row =
        left + (number * kTileRows + group) * kTileInputs + pair;
    const uint16_t* const low_row = row + 8 * kTileInputs;
    const uint16_t* const column =
        right + (number * kTileColumns + group) * kTileInputs + pair;
    MultiplyAdd(sum, PairAt(row), PairAt(low_row), PairAt(row + 8),
                PairAt(low_row + 8), PairAt(column), PairAt(column + 8));
  }
  tile[pair] = sum.x;
  tile[pair + 1] = sum.y;
  below[pair] = sum.z;
  below[pair + 1] = sum.w;
}

// The operands of `tiles` tiles as the kernel takes them.
struct Operands {
  Operands(int tiles, int steps) {
    for (int number = 0; number < tiles; ++number) {
      const TensorCoreTile tile(number);
      for (int step = 0; step < steps; ++step) {
        for (int i = 0; i < kTileRows * kTileInputs; ++i) {
          left.push_back(tile.Left(step, i / kTileInputs, i % kTileInputs));
        }
        for (int i = 0; i < kTileColumns * kTileInputs; ++i) {
          right.push_back(tile.Right(step, i % kTileInputs, i / kTileInputs));
        }
      }
      for (int i = 0; i < kTileSums; ++i) {
        starts.push_back(tile.Start(i / kTileColumns, i % kTileColumns));
      }
    }
  }

  std::vector<uint16_t> left;
  std::vector<uint16_t> right;
  std::vector<uint32_t> starts;
};

template <typename T>
void Upload(const std::vector<T>& values, const DeviceBuffer& to) {
  Check(cudaMemcpy(to.as(), values.data(), to.bytes(), cudaMemcpyHostToDevice),
        "upload");
}

std::vector<uint32_t> DeviceSums(const Operands& operands, int steps) {
  DeviceBuffer left(sizeof(uint16_t) * operands.left.size());
  DeviceBuffer right(sizeof(uint16_t) * operands.right.size());
  DeviceBuffer sums(sizeof(uint32_t) * operands.starts.size());
  Upload(operands.left, left);
  Upload(operands.right, right);
  Upload(operands.starts, sums);
  const auto tiles = static_cast<unsigned>(operands.starts.size() / kTileSums);
  TileKernel<<<tiles, 32>>>(left.as<uint16_t>(), right.as<uint16_t>(), steps,
                            sums.as<float>());
  Check(cudaGetLastError(), "TileKernel");
  std::vector<uint32_t> results(operands.starts.size());
  Check(cudaMemcpy(results.data(), sums.as(), sums.bytes(),
                   cudaMemcpyDeviceToHost),
        "download");
  return results;
}

emulation::Factors FactorsAt(const uint16_t* bits) {
  emulation::Factors factors;
  for (int i = 0; i < kTileInputs; ++i) factors.Set(i, bits[i]);
  return factors;
}

std::vector<uint32_t> EmulatedSums(const Operands& operands, int steps) {
  std::vector<uint32_t> sums = operands.starts;
  for (size_t i = 0; i < sums.size(); ++i) {
    const size_t tile = i / kTileSums;
    const size_t row = i % kTileSums / kTileColumns;
    const size_t column = i % kTileColumns;
    for (int step = 0; step < steps; ++step) {
      const size_t number = tile * steps + step;
      const size_t left = (number * kTileRows + row) * kTileInputs;
      const size_t right = (number * kTileColumns + column) * kTileInputs;
      sums[i] = emulation::FusedSum(FactorsAt(&operands.left[left]),
                                    FactorsAt(&operands.right[right]), sums[i]);
    }
  }
  return sums;
}

// How many sums differ.
int Compare(int steps) {
  const Operands operands(kTiles, steps);
  const std::vector<uint32_t> device = DeviceSums(operands, steps);
  const std::vector<uint32_t> emulated = EmulatedSums(operands, steps);
  int different = 0;
  for (size_t i = 0; i < device.size(); ++i) {
    if (device[i] == emulated[i]) continue;
    if (++different > 10) continue;
    const int tile = static_cast<int>(i / kTileSums);
    std::printf("tile %d (%s), element %d: %08x on the GPU, %08x emulated\n",
                tile, kCaseClassNames[TensorCoreTile(tile).case_class()],
                static_cast<int>(i % kTileSums), device[i], emulated[i]);
  }
  std::printf("chains of %d: %d of %zu sums differ\n", steps, different,
              device.size());
  return different;
}

void Write(const std::string& path, int steps) {
  const std::vector<uint32_t> sums =
      DeviceSums(Operands(kGoldenTiles, steps), steps);
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr || std::fwrite(sums.data(), sizeof(uint32_t), sums.size(),
                                     file) != sums.size()) {
    std::fprintf(stderr, "%s cannot be written\n", path.c_str());
    std::exit(1);
  }
  std::fclose(file);
}

int Main(int argc, char** argv) {
  cudaDeviceProp properties = {};
  if (!HasDevice()) {
    std::printf("skipped: no CUDA device\n");
    return kSkipExitCode;
  }
  PrintDevice();
  Check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  if (properties.major != 9) {
    std::printf("skipped: no GPU of sm_90\n");
    return kSkipExitCode;
  }
  if (argc == 3 && std::strcmp(argv[1], "--write") == 0) {
    const std::string folder = argv[2];
    Write(folder + "/tensor_core_device.u32", 1);
    Write(folder + "/tensor_core_device_chains.u32", 4);
    return 0;
  }
  int different = 0;
  for (const int steps : {1, 4, 32}) different += Compare(steps);
  std::printf("%s\n", different == 0 ? "PASSED" : "FAILED");
  return different == 0 ? 0 : 1;
}

}  // namespace
}  // namespace nacre::kernels::cuda

int main(int argc, char** argv) {
  return nacre::kernels::cuda::Main(argc, argv);
}
