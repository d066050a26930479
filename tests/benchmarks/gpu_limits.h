// What a GPU can do at most, measured: the denominators of bench_gpu.
//
// Thread-compatible, on CUDA's current device.

#ifndef TESTS_BENCHMARKS_GPU_LIMITS_H_
#define TESTS_BENCHMARKS_GPU_LIMITS_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace nacre::kernels::cuda {

struct GpuLimits {
  double read = 0;    // bytes a second
  double copy = 0;    // bytes a second, those read and those written
  double mma = 0;     // bf16 operations a second of mma.sync, from registers
  double cublas = 0;  // of cuBLAS on 8192 x 8192 matrices; 0: it was not found

  double bf16() const { return mma > cublas ? mma : cublas; }
};

struct GpuLimitsPlan {
  size_t bytes = size_t{2} << 30;  // more than any cache; a multiple of 128 KB
  int multiply_steps = 20000;
  int cublas_size = 8192;  // 0: not asked
  int repetitions = 7;
};

// Medians. An error is CUDA's; then `limits` is unchanged.
cudaError_t MeasureGpuLimits(const GpuLimitsPlan& plan, GpuLimits* limits);

// gpu_limits.cu. They queue one kernel.
// Reads 16 * count bytes once; count is a multiple of kReadVectors.
inline constexpr int kReadVectors = 4096;
cudaError_t ReadAll(cudaStream_t stream, int multiprocessors,
                    const uint4* values, size_t count, uint32_t* sink);
// `steps` times kProducts products of m16n8k16 in each warp.
inline constexpr int kProducts = 8;
struct MultiplyGrid {
  int blocks = 0;
  static constexpr int kWarps = 8;  // of a block
};
cudaError_t MultiplyFromRegisters(cudaStream_t stream, const MultiplyGrid& grid,
                                  int steps, uint32_t* sink);

}  // namespace nacre::kernels::cuda

#endif  // TESTS_BENCHMARKS_GPU_LIMITS_H_
