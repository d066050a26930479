// Stands in for kernels/cuda/bulk_copies.cuh where kernels are compiled for the
// emulated device.

#ifndef TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_BULK_COPIES_CUH_
#define TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_BULK_COPIES_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/shared_barriers.cuh"
#include "kernels/cuda/tensor_map.h"
#include "tests/kernels/cuda/emulation/machine.h"

namespace nacre::kernels::cuda {

inline void CopyBlocks(uint4* shared, const TensorMap& map, int block, int tile,
                       uint64_t* barrier) {
  for (int i = 0; i < map.copied; ++i) {
    const size_t at = static_cast<size_t>(tile + i) * map.inputs + block;
    emulation::CopyBulk(
        reinterpret_cast<char*>(shared) + i * map.block_bytes,
        static_cast<const char*>(map.matrix) + at * map.block_bytes,
        map.block_bytes, tile + i < map.rows ? map.block_bytes : 0, /*row=*/0,
        barrier);
  }
}

inline void CopyTile(uint4* shared, const TensorMap& map, int input, int row,
                     uint64_t* barrier) {
  constexpr int kRowBytes = 128;
  const int inside = map.inputs - input < 64 ? map.inputs - input : 64;
  for (int i = 0; i < map.copied; ++i) {
    char* const to = reinterpret_cast<char*>(shared) + i * kRowBytes;
    const char* const from =
        static_cast<const char*>(map.matrix) +
        2 * (static_cast<size_t>(row + i) * map.inputs + input);
    emulation::CopyBulk(to, from, kRowBytes,
                        row + i < map.rows ? 2 * inside : 0, i, barrier);
  }
}

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_BULK_COPIES_CUH_
