// What nvcc knows by itself, for CUDA source that is compiled as C++ for the
// emulated device: include it before the source (gcc's -include). Shared memory
// is what a kernel declares as `extern __shared__ uint4 shared[]`.

#ifndef TESTS_KERNELS_CUDA_EMULATION_LANGUAGE_H_
#define TESTS_KERNELS_CUDA_EMULATION_LANGUAGE_H_

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "tests/kernels/cuda/emulation/machine.h"
#include "tests/kernels/cuda/emulation/runtime.h"

#undef __global__
#undef __device__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __syncwarp nacre::kernels::cuda::emulation::WarpBarrier
#define __syncthreads nacre::kernels::cuda::emulation::BlockBarrier
#define cudaLaunchKernelEx nacre::kernels::cuda::emulation::LaunchOnDevice

// NOLINTBEGIN: names and conversions of the language
struct EmulatedThreadIndex {
  struct X {
    operator int() const { return nacre::kernels::cuda::emulation::Thread(); }
  } x;
};
inline EmulatedThreadIndex threadIdx;
inline dim3 blockIdx, gridDim, blockDim;

using std::max;
using std::min;

inline float __uint_as_float(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline float __int_as_float(int32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t __float_as_uint(float value) {
  return std::bit_cast<uint32_t>(value);
}
inline uint64_t __shfl_xor_sync(unsigned, uint64_t value, int distance) {
  return nacre::kernels::cuda::emulation::ShuffleXor(value, distance);
}
inline float __shfl_xor_sync(unsigned, float value, int distance) {
  return __uint_as_float(
      static_cast<uint32_t>(nacre::kernels::cuda::emulation::ShuffleXor(
          uint64_t{__float_as_uint(value)}, distance)));
}
inline int __any_sync(unsigned, int predicate) {
  uint64_t any = predicate != 0;
  for (int distance = 16; distance > 0; distance /= 2) {
    any |= nacre::kernels::cuda::emulation::ShuffleXor(any, distance);
  }
  return any != 0;
}
inline int __reduce_max_sync(unsigned, int value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = std::max(
        value, static_cast<int>(nacre::kernels::cuda::emulation::ShuffleXor(
                   static_cast<uint32_t>(value), distance)));
  }
  return value;
}
inline int __reduce_min_sync(unsigned lanes, int value) {
  return ~__reduce_max_sync(lanes, ~value);
}
// Bytes of a (0 to 3) and b (4 to 7), as the selector's nibbles name them.
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const auto byte =
        static_cast<uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xff);
    result |= byte << (8 * i);
  }
  return result;
}
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute,
                                 int value) {
  return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                attribute, value);
}
// NOLINTEND

namespace nacre::kernels::cuda {
namespace {

// Of the kernels of one source file.
constexpr size_t kSharedVectors = (256 << 10) / sizeof(uint4);
[[maybe_unused]] alignas(128) uint4 shared[kSharedVectors];

}  // namespace

namespace emulation {
namespace {

// A block finds garbage in shared memory and may touch what it asked for.
template <typename Body>
void RunGrid(const dim3& blocks, int threads, size_t shared_bytes,
             const Body& body) {
  constexpr unsigned char kUntouched = 0xff;  // NaN
  auto* const bytes = reinterpret_cast<unsigned char*>(shared);
  gridDim = blocks;
  blockDim = dim3(static_cast<unsigned>(threads));
  std::memset(bytes, kUntouched, sizeof(shared));
  for (unsigned z = 0; z < blocks.z; ++z) {
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) {
        blockIdx = dim3(x, y, z);
        std::memset(bytes, kUntouched, shared_bytes);
        RunBlock(threads, [&](int) { body(); });
      }
    }
  }
  // Each byte is what the one before it is.
  const auto* const rest = bytes + shared_bytes;
  const size_t count = sizeof(shared) - shared_bytes;
  if (count > 0 &&
      (rest[0] != kUntouched || std::memcmp(rest, rest + 1, count - 1) != 0)) {
    std::fprintf(stderr, "a kernel wrote behind its shared memory\n");
    std::exit(1);
  }
}

template <typename Parameter>
void CheckArgument(const Parameter& argument) {
  if constexpr (std::is_pointer_v<Parameter>) CheckDevicePointer(argument);
}

template <typename... Parameters, typename... Arguments>
cudaError_t LaunchOnDevice(const cudaLaunchConfig_t* config,
                           void (*kernel)(Parameters...),
                           Arguments&&... arguments) {
  const cudaError_t status =
      CheckLaunch(*config, reinterpret_cast<const void*>(kernel));
  if (status != cudaSuccess) return status;
  std::tuple<Parameters...> values(
      static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  std::apply([](const auto&... each) { (CheckArgument(each), ...); }, values);
  Enqueue([grid = config->gridDim,
           threads = static_cast<int>(config->blockDim.x),
           bytes = config->dynamicSmemBytes, kernel, values] {
    RunGrid(grid, threads, bytes, [&] { std::apply(kernel, values); });
  });
  return cudaSuccess;
}

}  // namespace
}  // namespace emulation
}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_EMULATION_LANGUAGE_H_
