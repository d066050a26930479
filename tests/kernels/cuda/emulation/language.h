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
#include <utility>

#include "tests/kernels/cuda/emulation/grid.h"
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
inline dim3& blockIdx = nacre::kernels::cuda::emulation::block_index;
inline dim3& blockDim = nacre::kernels::cuda::emulation::block_shape;
inline dim3& gridDim = nacre::kernels::cuda::emulation::grid_shape;

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
inline int __syncthreads_or(int predicate) {
  return nacre::kernels::cuda::emulation::BlockBarrierOr(predicate != 0);
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
// Among the blocks of a launch.
inline void __threadfence() { nacre::kernels::cuda::emulation::Fence(); }
inline unsigned atomicInc(unsigned* counter, unsigned most) {
  nacre::kernels::cuda::emulation::Announce();
  const unsigned before = *counter;
  *counter = before >= most ? 0 : before + 1;
  return before;
}
template <typename Value>
void __stcg(Value* to, Value value) {
  nacre::kernels::cuda::emulation::StoreForOthers(to, &value, sizeof(Value));
}
template <typename Value>
Value __ldcg(const Value* from) {
  return *from;
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
// NOLINTEND

namespace nacre::kernels::cuda {
namespace {

// Of the kernels of one source file. What launches them is a template of their
// parameters' types: kernels of two files must differ in these, or they would
// get each other's.
constexpr size_t kSharedVectors = (256 << 10) / sizeof(uint4);
[[maybe_unused]] alignas(128) uint4 shared[kSharedVectors];

}  // namespace

namespace emulation {
namespace {

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
  KernelLaunch launch;
  launch.kernel = reinterpret_cast<const void*>(kernel);
  launch.blocks = config->gridDim;
  launch.threads = static_cast<int>(config->blockDim.x);
  launch.shared_bytes = config->dynamicSmemBytes;
  launch.overlaps = MayOverlap(*config);
  launch.together = IsCooperative(*config);
  launch.thread = [kernel, values] { std::apply(kernel, values); };
  launch.shared = reinterpret_cast<unsigned char*>(shared);
  launch.shared_size = sizeof(shared);
  EnqueueKernel(std::move(launch), config->stream);
  return cudaSuccess;
}

}  // namespace
}  // namespace emulation
}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_EMULATION_LANGUAGE_H_
