// What the copy engine of compute capability 9.0 is told of a matrix: tiles of
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

// Of a bf16 matrix [rows, inputs] at a multiple of 16 bytes, inputs a multiple
// of 8; tiles have 64 inputs and `tile_rows` rows, up to 256. Errors are
// CUDA's, cudaErrorNotSupported where the driver has no such engine.
inline cudaError_t MapRows(const void* matrix, int rows, int inputs,
                           int tile_rows, TensorMap* map) {
  static_assert(sizeof(CUtensorMap) == sizeof(TensorMap));
  const EncodeTiled encode = FindEncodeTiled();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(inputs),
                              static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {2 * sizes[0]};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(tile_rows)};
  const cuuint32_t steps[] = {1, 1};
  CUtensorMap encoded = {};  // compared byte by byte
  const CUresult result = encode(
      &encoded, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(matrix),
      sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return cudaErrorInvalidValue;
  std::memcpy(map, &encoded, sizeof(encoded));
  return cudaSuccess;
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_TENSOR_MAP_H_
