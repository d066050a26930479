#include "tests/benchmarks/gpu_limits.h"

#include <dlfcn.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_library.h"
#include "tests/benchmarks/machine_limits.h"

namespace nacre::kernels::cuda {
namespace {

constexpr int kLaunches = 4;  // timed together: waiting costs microseconds

// Memory of the device, freed with the object.
class Memory {
 public:
  explicit Memory(size_t bytes) : error_(cudaMalloc(&data_, bytes)) {}
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }
  cudaError_t error() const { return error_; }

 private:
  void* data_ = nullptr;
  cudaError_t error_;
};

// Median of the seconds of one launch.
cudaError_t Time(int repetitions, const std::function<cudaError_t()>& launch,
                 double* seconds) {
  std::vector<double> samples;
  for (int i = 0; i <= repetitions; ++i) {
    const double start = Seconds();
    for (int j = 0; j < kLaunches; ++j) {
      const cudaError_t error = launch();
      if (error != cudaSuccess) return error;
    }
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) return error;
    if (i > 0) samples.push_back((Seconds() - start) / kLaunches);
  }
  *seconds = Median(samples);
  return cudaSuccess;
}

// cuBLAS, if this machine has it: nothing of ours is linked with it.
class Cublas {
 public:
  Cublas() {
    std::string error;
    library_ = OpenCudaLibrary("cublas", &error);
    if (library_ == nullptr) return;
    const auto create =
        reinterpret_cast<Create>(dlsym(library_, "cublasCreate_v2"));
    product_ = reinterpret_cast<Product>(dlsym(library_, "cublasGemmEx"));
    if (create == nullptr || product_ == nullptr || create(&handle_) != 0) {
      handle_ = nullptr;
    }
  }
  // The library stays: it may have threads.
  ~Cublas() {
    if (handle_ == nullptr) return;
    const auto destroy =
        reinterpret_cast<Destroy>(dlsym(library_, "cublasDestroy_v2"));
    if (destroy != nullptr) destroy(handle_);
  }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  bool is_there() const { return handle_ != nullptr; }

  // c = a b, all of them bf16 [size, size].
  bool Multiply(int size, const void* a, const void* b, void* c) const {
    constexpr int kTransposed = 1;
    constexpr int kAsItIs = 0;
    constexpr int kBF16 = 14;       // CUDA_R_16BF
    constexpr int kFloatSums = 68;  // CUBLAS_COMPUTE_32F
    constexpr int kAnyAlgorithm = -1;
    const float one = 1;
    const float zero = 0;
    return product_(handle_, kTransposed, kAsItIs, size, size, size, &one, a,
                    kBF16, size, b, kBF16, size, &zero, c, kBF16, size,
                    kFloatSums, kAnyAlgorithm) == 0;
  }

 private:
  using Create = int (*)(void** handle);
  using Destroy = int (*)(void* handle);
  using Product = int (*)(void* handle, int, int, int m, int n, int k,
                          const void* alpha, const void* a, int a_type, int lda,
                          const void* b, int b_type, int ldb, const void* beta,
                          void* c, int c_type, int ldc, int compute, int how);

  void* library_ = nullptr;
  void* handle_ = nullptr;
  Product product_ = nullptr;
};

cudaError_t MeasureCublas(const GpuLimitsPlan& plan, double* rate) {
  if (plan.cublas_size == 0) return cudaSuccess;
  const Cublas cublas;
  if (!cublas.is_there()) return cudaSuccess;
  const size_t size = static_cast<size_t>(plan.cublas_size);
  // Random numbers: zeros would need less power, and run faster.
  std::vector<uint16_t> values(size * size);
  uint32_t state = 1;
  for (uint16_t& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<uint16_t>(((state >> 16) & 0x81ff) | 0x3d80);
  }
  const size_t bytes = values.size() * sizeof(uint16_t);
  const Memory a(bytes);
  const Memory b(bytes);
  const Memory c(bytes);
  for (const Memory* memory : {&a, &b}) {
    if (memory->error() != cudaSuccess) return memory->error();
    const cudaError_t error = cudaMemcpy(memory->data(), values.data(), bytes,
                                         cudaMemcpyHostToDevice);
    if (error != cudaSuccess) return error;
  }
  if (c.error() != cudaSuccess) return c.error();
  double seconds = 0;
  const cudaError_t error = Time(
      plan.repetitions,
      [&] {
        return cublas.Multiply(plan.cublas_size, a.data(), b.data(), c.data())
                   ? cudaSuccess
                   : cudaErrorNotSupported;
      },
      &seconds);
  if (error == cudaErrorNotSupported)
    return cudaSuccess;  // then it is no limit
  const double each = static_cast<double>(plan.cublas_size);
  if (error == cudaSuccess) *rate = 2 * each * each * each / seconds;
  return error;
}

}  // namespace

cudaError_t MeasureGpuLimits(const GpuLimitsPlan& plan, GpuLimits* limits) {
  GpuLimits measured;
  int device = 0;
  int multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors,
                                 cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  double seconds = 0;
  {
    const Memory from(plan.bytes);
    const Memory to(plan.bytes);
    if (from.error() != cudaSuccess) return from.error();
    if (to.error() != cudaSuccess) return to.error();
    error = cudaMemset(from.data(), 0x5a, plan.bytes);
    if (error != cudaSuccess) return error;
    const double bytes = static_cast<double>(plan.bytes);
    error = Time(
        plan.repetitions,
        [&] {
          return ReadAll(
              nullptr, multiprocessors, static_cast<const uint4*>(from.data()),
              plan.bytes / sizeof(uint4), static_cast<uint32_t*>(to.data()));
        },
        &seconds);
    if (error != cudaSuccess) return error;
    measured.read = bytes / seconds;
    error = Time(
        plan.repetitions,
        [&] {
          return cudaMemcpyAsync(to.data(), from.data(), plan.bytes,
                                 cudaMemcpyDeviceToDevice, nullptr);
        },
        &seconds);
    if (error != cudaSuccess) return error;
    measured.copy = 2 * bytes / seconds;
    constexpr int kBlocks = 4;  // of a multiprocessor
    constexpr double kOperations = 2.0 * 16 * 8 * 16;
    const MultiplyGrid grid = {kBlocks * multiprocessors};
    error = Time(
        plan.repetitions,
        [&] {
          return MultiplyFromRegisters(nullptr, grid, plan.multiply_steps,
                                       static_cast<uint32_t*>(to.data()));
        },
        &seconds);
    if (error != cudaSuccess) return error;
    measured.mma = kOperations * kProducts * MultiplyGrid::kWarps *
                   grid.blocks * plan.multiply_steps / seconds;
  }
  error = MeasureCublas(plan, &measured.cublas);
  if (error == cudaSuccess) *limits = measured;
  return error;
}

}  // namespace nacre::kernels::cuda
