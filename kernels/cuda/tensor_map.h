// What the copy engine of compute capability 9.0 is told of a matrix. Tiles of
// it come to shared memory in one copy, rows of 64 bf16 in the swizzle of
// Bf16Slot (gemm_layout.h), zeros where the matrix ends.
//
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_TENSOR_MAP_H_
#define KERNELS_CUDA_TENSOR_MAP_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

namespace nacre::kernels::cuda {

// A CUtensorMap; as a kernel's parameter a __grid_constant__.
struct alignas(64) TensorMap {
  uint64_t words[16];

  bool operator==(const TensorMap&) const = default;
};

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// The driver's, or null: it is too old for such an engine.
inline EncodeTiled FindEncodeTiled() {
  static const EncodeTiled encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    const cudaError_t status = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
#else
    const cudaError_t status = cudaGetDriverEntryPoint(
        "cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result);
#endif
    return status == cudaSuccess && result == cudaDriverEntryPointSuccess
               ? reinterpret_cast<EncodeTiled>(function)
               : nullptr;
  }();
  return encode;
}

inline bool HasTensorMaps() { return FindEncodeTiled() != nullptr; }

// Of `dimensions` sizes, the first contiguous, `strides` in bytes of the
// others.
inline cudaError_t Encode(CUtensorMapDataType type, uint32_t dimensions,
                          const void* memory, const cuuint64_t* sizes,
                          const cuuint64_t* strides, const cuuint32_t* box,
                          CUtensorMapSwizzle swizzle, TensorMap* map) {
  static_assert(sizeof(CUtensorMap) == sizeof(TensorMap));
  const EncodeTiled encode = FindEncodeTiled();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint32_t steps[] = {1, 1, 1};
  CUtensorMap encoded = {};  // compared byte by byte
  const CUresult result = encode(
      &encoded, type, dimensions, const_cast<void*>(memory), sizes, strides,
      box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return cudaErrorInvalidValue;
  std::memcpy(map, &encoded, sizeof(encoded));
  return cudaSuccess;
}

// Of a bf16 matrix [rows, inputs] at a multiple of 16 bytes, inputs a multiple
// of 8. Tiles have 64 inputs and `tile_rows` rows, up to 256. Errors are
// CUDA's, cudaErrorNotSupported without HasTensorMaps.
inline cudaError_t MapRows(const void* matrix, int rows, int inputs,
                           int tile_rows, TensorMap* map) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(inputs),
                              static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {2 * sizes[0]};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(tile_rows)};
  return Encode(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, matrix, sizes, strides,
                box, CU_TENSOR_MAP_SWIZZLE_128B, map);
}

// Of packed weights [tiles, blocks] (gemm_layout.h), whose blocks have
// `block_bytes`, a multiple of 16 up to 2048: one block of `copied` tiles at a
// time. Errors as above.
inline cudaError_t MapBlocks(const void* weights, int tiles, int blocks,
                             int block_bytes, int copied, TensorMap* map) {
  const auto bytes = static_cast<cuuint64_t>(block_bytes);
  const cuuint64_t sizes[] = {bytes / 8, static_cast<cuuint64_t>(blocks),
                              static_cast<cuuint64_t>(tiles)};
  const cuuint64_t strides[] = {bytes, bytes * sizes[1]};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(block_bytes / 8), 1,
                            static_cast<cuuint32_t>(copied)};
  return Encode(CU_TENSOR_MAP_DATA_TYPE_INT64, 3, weights, sizes, strides, box,
                CU_TENSOR_MAP_SWIZZLE_NONE, map);
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_TENSOR_MAP_H_
