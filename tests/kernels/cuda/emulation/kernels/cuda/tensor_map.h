// Stands in for kernels/cuda/tensor_map.h on the emulated device.

#ifndef TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_TENSOR_MAP_H_
#define TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_TENSOR_MAP_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace nacre::kernels::cuda {

struct alignas(64) TensorMap {
  const void* matrix = nullptr;
  int rows = 0;    // or tiles
  int inputs = 0;  // or blocks
  int copied = 0;  // rows or tiles
  int block_bytes = 0;
  uint64_t rest[13] = {};

  bool operator==(const TensorMap&) const = default;
};

inline bool HasTensorMaps() { return true; }

inline cudaError_t MapRows(const void* matrix, int rows, int inputs,
                           int tile_rows, TensorMap* map) {
  if (reinterpret_cast<uintptr_t>(matrix) % 16 != 0 || inputs % 8 != 0 ||
      tile_rows > 256) {
    return cudaErrorInvalidValue;
  }
  *map = {matrix, rows, inputs, tile_rows};
  return cudaSuccess;
}

inline cudaError_t MapBlocks(const void* weights, int tiles, int blocks,
                             int block_bytes, int copied, TensorMap* map) {
  if (reinterpret_cast<uintptr_t>(weights) % 16 != 0 || block_bytes % 16 != 0 ||
      block_bytes > 2048 || copied > 256) {
    return cudaErrorInvalidValue;
  }
  *map = {weights, tiles, blocks, copied, block_bytes};
  return cudaSuccess;
}

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_TENSOR_MAP_H_
