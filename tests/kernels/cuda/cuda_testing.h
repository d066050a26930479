// What the GPU tests and benchmarks share. Needs CUDA only: they also run on
// machines that have nothing else of ours.

#ifndef TESTS_KERNELS_CUDA_CUDA_TESTING_H_
#define TESTS_KERNELS_CUDA_CUDA_TESTING_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace nacre::kernels::cuda {

inline constexpr int kSkipExitCode = 77;  // CTest's SKIP_RETURN_CODE

// Ends the program when a call of CUDA failed.
inline void Check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

inline bool HasDevice() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

// Prints which device the numbers are of; returns its multiprocessors.
inline int PrintDevice() {
  cudaDeviceProp properties = {};
  Check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("%s, compute capability %d.%d, %d multiprocessors, %d MB of L2\n",
              properties.name, properties.major, properties.minor,
              properties.multiProcessorCount, properties.l2CacheSize >> 20);
  return properties.multiProcessorCount;
}

// Owns device memory.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t bytes) : bytes_(bytes) {
    Check(cudaMalloc(&data_, bytes), "cudaMalloc");
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { cudaFree(data_); }

  template <typename T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

// Counter-based random word.
inline
#ifdef __CUDACC__
    __host__ __device__
#endif
        uint64_t
        RandomWord(uint64_t seed, uint64_t index) {
  uint64_t x = seed * 0x9e3779b97f4a7c15 + index + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// bf16 bits of either sign and of magnitude 1/16 to 1.
inline
#ifdef __CUDACC__
    __host__ __device__
#endif
        uint16_t
        RandomBf16(uint64_t seed, uint64_t index) {
  const uint64_t word = RandomWord(seed, index);
  const auto sign = static_cast<uint16_t>(word & 0x8000);
  const auto mantissa = static_cast<uint16_t>(word & 0x7f);
  const auto exponent = static_cast<uint16_t>(123 + (word >> 32) % 4);
  return sign | exponent << 7 | mantissa;
}

inline float Bf16ToFloat(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_CUDA_TESTING_H_
