// The CUDA source of the skinny matrix product, compiled as C++, on an emulated
// device with a CUDA runtime of this file: its indices, its waits and barriers,
// its limits of shared memory and its batch invariance are checked where there
// is no GPU. skinny_gemm_test.cu runs the same checks on a real one.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/emulation/machine.h"

// What nvcc knows by itself.
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

namespace {

struct ThreadIndex {
  struct X {
    operator int() const {  // NOLINT: reads like the built-in
      return nacre::kernels::cuda::emulation::Thread();
    }
  } x;
} threadIdx;
dim3 blockIdx, gridDim;

using std::max;
using std::min;

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute,
                                 int value) {
  return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                attribute, value);
}

}  // namespace

#include "kernels/cuda/skinny_gemm.cu"  // NOLINT: the code under test
#include "tests/kernels/cuda/skinny_gemm_checks.h"

namespace nacre::kernels::cuda {
namespace {

constexpr unsigned char kUntouched = 0xee;
constexpr size_t kSharedVectors = (256 << 10) / sizeof(uint4);
alignas(128) uint4 shared[kSharedVectors];

// The device.
int multiprocessors = 6;
int shared_limit = 227 << 10;

// A block finds garbage in shared memory and may touch what it asked for.
template <typename Body>
void RunGrid(const cudaLaunchConfig_t& config, const Body& body) {
  auto* const bytes = reinterpret_cast<unsigned char*>(shared);
  gridDim = config.gridDim;
  for (unsigned block = 0; block < config.gridDim.x; ++block) {
    std::memset(bytes, kUntouched, sizeof(shared));
    blockIdx.x = block;
    emulation::RunBlock(config.blockDim.x, [&](int) { body(); });
    EXPECT_TRUE(
        std::all_of(bytes + config.dynamicSmemBytes, bytes + sizeof(shared),
                    [](unsigned char byte) { return byte == kUntouched; }));
  }
}

cudaError_t LaunchKernel(const cudaLaunchConfig_t& config, const void* kernel,
                         void** args) {
  if (config.dynamicSmemBytes > static_cast<size_t>(shared_limit)) {
    return cudaErrorInvalidValue;
  }
  const auto is = [&](auto* function) {
    return kernel == reinterpret_cast<const void*>(function);
  };
  if (is(MultiplyKernel<1>)) {
    RunGrid(config,
            [&] { MultiplyKernel<1>(*static_cast<Product*>(args[0])); });
  } else if (is(MultiplyKernel<2>)) {
    RunGrid(config,
            [&] { MultiplyKernel<2>(*static_cast<Product*>(args[0])); });
  } else if (is(ReduceKernel)) {
    RunGrid(config, [&] {
      ReduceKernel(*static_cast<const float**>(args[0]),
                   *static_cast<float**>(args[1]),
                   *static_cast<size_t*>(args[2]), *static_cast<int*>(args[3]));
    });
  } else {
    return cudaErrorInvalidDeviceFunction;
  }
  return cudaSuccess;
}

// Every edge: one output, ragged tiles and blocks, more tiles than
// multiprocessors, warps without a block, several slices.
constexpr Shape kShapes[] = {{1, 8},     {16, 64},   {17, 72},  {40, 200},
                             {15, 1032}, {36, 2600}, {20, 4104}};

void CheckShapes() {
  for (const Shape& shape : kShapes) CheckShape(shape, 7);
  EXPECT_EQ(failures, 0);
}

class SkinnyGemmEmulatedTest : public testing::Test {
 protected:
  void SetUp() override {
    failures = 0;
    multiprocessors = 6;
    shared_limit = 227 << 10;
    emulation::copies = emulation::Copies::kLate;
  }
};

TEST_F(SkinnyGemmEmulatedTest, CopiesLandLate) { CheckShapes(); }

TEST_F(SkinnyGemmEmulatedTest, CopiesLandEarly) {
  emulation::copies = emulation::Copies::kEarly;
  CheckShapes();
}

TEST_F(SkinnyGemmEmulatedTest, OneMultiprocessor) {
  multiprocessors = 1;
  CheckShape({200, 72}, 8);
  CheckShape({40, 2056}, 8);
  EXPECT_EQ(failures, 0);
}

TEST_F(SkinnyGemmEmulatedTest, TwoPassesWhereSharedMemoryIsSmall) {
  // 16 rows would be refused: they need 160 KB here, 8 rows 120 KB.
  shared_limit = 130 << 10;
  CheckShape({24, 7176}, 8);
  EXPECT_EQ(failures, 0);
}

TEST_F(SkinnyGemmEmulatedTest, RefusesWhatDoesNotFit) {
  shared_limit = 48 << 10;
  Case test({16, 64}, 9);
  EXPECT_EQ(SkinnyGemm(test.Args(0, 1), nullptr), cudaErrorInvalidValue);
}

TEST_F(SkinnyGemmEmulatedTest, SlicesAndRefusals) {
  CheckSplits();
  CheckRefusals();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace nacre::kernels::cuda

// The CUDA runtime of the emulated device, as much as is used.
using nacre::kernels::cuda::multiprocessors;
using nacre::kernels::cuda::shared_limit;

extern "C" {

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config,
                                const void* kernel, void** args) {
  return nacre::kernels::cuda::LaunchKernel(*config, kernel, args);
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int value) {
  return value <= shared_limit ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = multiprocessors;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = shared_limit;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  std::memset(data, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                       cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* devices) {
  *devices = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int) {
  return cudaErrorNotSupported;
}

const char* cudaGetErrorString(cudaError_t) { return "emulated error"; }

}  // extern "C"
