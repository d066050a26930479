// The CUDA source of the matrix product, compiled as C++, on an emulated device
// with a CUDA runtime of this file: its indices, its waits and barriers, its
// limits of shared memory and its batch invariance are checked where there is
// no GPU. gemm_test.cu runs the same checks on a real one.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

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

#include "kernels/cuda/gemm.cu"  // NOLINT: the code under test
#include "tests/kernels/cuda/gemm_checks.h"

namespace nacre::kernels::cuda {
namespace {

constexpr unsigned char kUntouched = 0xee;
constexpr size_t kSharedVectors = (256 << 10) / sizeof(uint4);
alignas(128) uint4 shared[kSharedVectors];

// The device.
int multiprocessors = 6;
int shared_limit = 227 << 10;

std::set<const void*> launched;  // kernels

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
  launched.insert(kernel);
  if (kernel == reinterpret_cast<const void*>(ReduceKernel)) {
    RunGrid(config, [&] {
      ReduceKernel(
          *static_cast<const float**>(args[0]), *static_cast<float**>(args[1]),
          *static_cast<const float**>(args[2]), *static_cast<size_t*>(args[3]),
          *static_cast<int*>(args[4]), *static_cast<int*>(args[5]));
    });
  } else {
    const auto function = reinterpret_cast<void (*)(Product)>(
        reinterpret_cast<uintptr_t>(kernel));
    RunGrid(config, [&] { function(*static_cast<Product*>(args[0])); });
  }
  return cudaSuccess;
}

constexpr GemmKernel kKernels[] = {GemmKernel::kSkinny8, GemmKernel::kSkinny16,
                                   GemmKernel::k32x32,   GemmKernel::k32x64,
                                   GemmKernel::k128x32,  GemmKernel::k128x64,
                                   GemmKernel::k128x128};

bool Launched(GemmFormat format, GemmKernel kernel) {
  return launched.count(reinterpret_cast<const void*>(
             KernelOf(format, kernel).function)) > 0;
}

// Every edge: one output, ragged tiles and blocks, more tiles than
// multiprocessors, warps without a chain, several slices.
constexpr Shape kSkinnyShapes[] = {{1, 8},     {16, 64},   {17, 72},  {40, 200},
                                   {15, 1032}, {36, 2600}, {20, 4104}};

std::vector<int> UpTo(int most) {
  std::vector<int> counts(most);
  for (int i = 0; i < most; ++i) counts[i] = i + 1;
  return counts;
}

class GemmEmulatedTest : public testing::TestWithParam<GemmFormat> {
 protected:
  void SetUp() override {
    failures = 0;
    multiprocessors = 6;
    shared_limit = 227 << 10;
    emulation::copies = emulation::Copies::kLate;
    launched.clear();
  }
  void TearDown() override { EXPECT_EQ(failures, 0); }
};

// 1 to 16 rows.
TEST_P(GemmEmulatedTest, FewRows) {
  for (const Shape& shape : kSkinnyShapes) {
    CheckShape(GetParam(), shape, {1, 7, 8, 9}, 16, 7);
  }
  CheckShape(GetParam(), {33, 136}, UpTo(16), 16, 7);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::kSkinny8));
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::kSkinny16));
}

TEST_P(GemmEmulatedTest, FewRowsWhoseCopiesLandEarly) {
  emulation::copies = emulation::Copies::kEarly;
  for (const Shape& shape : {Shape{40, 200}, Shape{36, 2600}}) {
    CheckShape(GetParam(), shape, {3, 12}, 16, 7);
  }
}

TEST_P(GemmEmulatedTest, OneMultiprocessor) {
  multiprocessors = 1;
  CheckShape(GetParam(), {200, 72}, {5, 16}, 16, 8);
  CheckShape(GetParam(), {40, 2056}, {5, 16}, 16, 8);
}

// Small tiles, as where outputs are few for the device.
TEST_P(GemmEmulatedTest, EveryNumberOfRowsUpTo64) {
  multiprocessors = 100;
  CheckShape(GetParam(), {40, 136}, UpTo(64), 65, 9);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k32x32));
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k32x64));
}

// Chains of more than a block, two slices, a ragged last block and tile.
TEST_P(GemmEmulatedTest, SlicesApart) {
  multiprocessors = 100;
  CheckShape(GetParam(), {36, 2120}, {1, 16, 30, 50}, 65, 10);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k32x32));
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k32x64));
}

TEST_P(GemmEmulatedTest, LargeTiles) {
  multiprocessors = 1;
  CheckShape(GetParam(), {130, 584}, {1, 32, 33, 64}, 100, 11);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k128x32));
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k128x64));
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k128x128));
}

TEST_P(GemmEmulatedTest, LargeTilesWhoseCopiesLandEarly) {
  emulation::copies = emulation::Copies::kEarly;
  multiprocessors = 1;
  CheckShape(GetParam(), {20, 776}, {1, 32, 64}, 70, 11);
}

// More rows than are computed with slices apart: one after another, and sums of
// slices added in place.
TEST_P(GemmEmulatedTest, SlicesOneAfterAnother) {
  multiprocessors = 1;
  Case test(GetParam(), {18, 2056}, 300, 12);
  const std::vector<float> all = test.Run(0, 300);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k128x128));
  CheckAgainstDouble(test, all);
  multiprocessors = 100;
  for (const int rows : {1, 40, 100}) CheckRows(test, all, 300 - rows, rows);
}

// More than one group of tiles of rows, the last with fewer (FindTile).
TEST_P(GemmEmulatedTest, GroupsOfRowTiles) {
  multiprocessors = 100;
  CheckShape(GetParam(), {40, 72}, {1, 513}, 600, 15);
}

TEST_P(GemmEmulatedTest, TilesWhereSharedMemoryIsSmall) {
  // Activations of a slice do not fit: few rows take tiles, with the same bits.
  Case test(GetParam(), {20, 2120}, 16, 13);
  const std::vector<float> all = test.Run(0, 16);
  launched.clear();
  shared_limit = 99 << 10;
  for (const int rows : {1, 9, 16}) CheckRows(test, all, 0, rows);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k32x32));
  EXPECT_FALSE(Launched(GetParam(), GemmKernel::kSkinny8));
}

TEST_P(GemmEmulatedTest, RefusesWhatDoesNotFit) {
  shared_limit = 32 << 10;
  Case test(GetParam(), {16, 64}, 1, 14);
  EXPECT_EQ(Gemm(test.Args(0, 1), nullptr), cudaErrorInvalidValue);
}

INSTANTIATE_TEST_SUITE_P(Formats, GemmEmulatedTest, testing::ValuesIn(kFormats),
                         [](const auto& info) {
                           return std::string(NameOf(info.param));
                         });

TEST(GemmEmulatedHostTest, WorkspacesAndRefusals) {
  failures = 0;
  CheckWorkspaces();
  CheckRefusals();
  EXPECT_EQ(failures, 0);
}

// Whatever a plan may say there is a kernel for.
TEST(GemmEmulatedHostTest, KernelsOfAllPlans) {
  for (const GemmFormat format : kFormats) {
    std::set<const void*> functions;
    for (const GemmKernel kernel : kKernels) {
      functions.insert(
          reinterpret_cast<const void*>(KernelOf(format, kernel).function));
    }
    EXPECT_EQ(functions.size(), std::size(kKernels));
    EXPECT_EQ(functions.count(nullptr), 0u);
  }
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
