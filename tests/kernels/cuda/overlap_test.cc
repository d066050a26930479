// Kernels that overlap on the emulated device: what waits as it should computes
// what kernels one after another do, and what does not is found.

#include "tests/kernels/cuda/emulation/language.h"
// The language comes first.
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {

constexpr int kBlocks = 6;
constexpr int kThreads = 64;
constexpr int kValues = kBlocks * kThreads;
constexpr int kLaunches = 30;

__device__ int ThisThread() {
  return static_cast<int>(blockIdx.x) * kThreads + threadIdx.x;
}

// Block b takes what block b + 1 of the kernel before wrote.
__device__ int ItsNeighbour() { return (ThisThread() + kThreads) % kValues; }

__global__ void AddOne(const int* from, int* to) {
  LaunchDependents();
  WaitForPrevious();
  to[ThisThread()] = from[ItsNeighbour()] + 1;
}

__global__ void ReadsTooEarly(const int* from, int* to) {
  const int value = from[ItsNeighbour()];
  WaitForPrevious();
  to[ThisThread()] = value + 1;
}

// Its own values are right, but the kernel before has yet to read what was
// there.
__global__ void WritesTooEarly(const int* from, int* to) {
  to[ThisThread()] = -1;
  WaitForPrevious();
  to[ThisThread()] = from[ItsNeighbour()] + 1;
}

__global__ void CopiesTooEarly(const int* from, int* to) {
  extern __shared__ uint4 shared[];
  const auto* const first =
      reinterpret_cast<const char*>(from + (ItsNeighbour() - threadIdx.x % 4));
  if (threadIdx.x % 4 == 0) {
    CopyVector(shared + threadIdx.x / 4, first, true);
  }
  CommitCopies();
  WaitForPrevious();
  WaitCopies<0>();
  __syncthreads();
  to[ThisThread()] = reinterpret_cast<const int*>(shared)[threadIdx.x] + 1;
}

// Half of the threads of a block.
__global__ void SomeNeverWait(const int* from, int* to) {
  if (threadIdx.x % 2 == 0) WaitForPrevious();
  to[ThisThread()] = from[ItsNeighbour()] + 1;
}

// What nothing on the stream writes may be copied before the wait, and barriers
// may stand on both sides of it.
__global__ void PrefetchesWeights(const int* from, int* to,
                                  const int* weights) {
  extern __shared__ uint4 shared[];
  if (threadIdx.x % 4 == 0) {
    CopyVector(shared + threadIdx.x / 4,
               reinterpret_cast<const char*>(weights + threadIdx.x), true);
  }
  CommitCopies();
  __syncthreads();
  WaitForPrevious();
  const int value = from[ItsNeighbour()];
  WaitCopies<0>();
  __syncthreads();
  to[ThisThread()] = value + reinterpret_cast<const int*>(shared)[threadIdx.x];
}

using Step = void (*)(const int*, int*);

class OverlapTest : public testing::Test {
 protected:
  OverlapTest() {
    emulation::ResetDevice();
    emulation::copies = emulation::Copies::kLate;
    for (int** const memory : {&buffers_[0], &buffers_[1], &weights_}) {
      EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(memory), kBytes),
                cudaSuccess);
    }
    const std::vector<int> ones(kValues, 1);
    EXPECT_EQ(cudaMemcpy(weights_, ones.data(), kBytes, cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  ~OverlapTest() override {
    for (int* const memory : {buffers_[0], buffers_[1], weights_}) {
      cudaFree(memory);
    }
    emulation::ResetDevice();
  }

  // What kLaunches of them make of zeros, AddOne in every second place.
  std::vector<int> Run(Step kernel, uint32_t seed, bool overlap = true) {
    const Grid grid = {dim3(kBlocks), kThreads, kThreads * sizeof(int)};
    for (int* const memory : buffers_) {
      EXPECT_EQ(cudaMemset(memory, 0, kBytes), cudaSuccess);
    }
    emulation::SeedOverlap(seed);
    const Queue queue = {nullptr, overlap};
    for (int i = 0; i < kLaunches; ++i) {
      const int* const from = buffers_[i % 2];
      int* const to = buffers_[(i + 1) % 2];
      const cudaError_t status =
          i % 2 == 0 ? LaunchKernel(queue, grid, AddOne, from, to)
          : kernel == nullptr
              ? LaunchKernel(queue, grid, PrefetchesWeights, from, to, weights_)
              : LaunchKernel(queue, grid, kernel, from, to);
      EXPECT_EQ(status, cudaSuccess);
    }
    std::vector<int> values(kValues);
    EXPECT_EQ(
        cudaMemcpy(values.data(), buffers_[0], kBytes, cudaMemcpyDeviceToHost),
        cudaSuccess);
    return values;
  }

  static constexpr size_t kBytes = kValues * sizeof(int);
  const std::vector<int> right_ = std::vector<int>(kValues, kLaunches);
  int* buffers_[2] = {};
  int* weights_ = nullptr;
};

TEST_F(OverlapTest, KernelsThatWaitComputeTheSame) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(Run(AddOne, seed), right_) << seed;
    EXPECT_EQ(Run(nullptr, seed), right_) << seed;
  }
  EXPECT_EQ(emulation::counts.early_kernels, emulation::counts.kernels);
}

TEST_F(OverlapTest, WhatIsTouchedBeforeTheWaitIsWrong) {
  for (const Step kernel : {ReadsTooEarly, WritesTooEarly, CopiesTooEarly}) {
    for (const auto when :
         {emulation::Copies::kEarly, emulation::Copies::kLate}) {
      emulation::copies = when;
      EXPECT_NE(Run(kernel, 1), right_);
    }
    // One after another nothing shows.
    EXPECT_EQ(Run(kernel, 1, /*overlap=*/false), right_);
  }
}

TEST_F(OverlapTest, AThreadThatNeverWaitsEndsTheProgram) {
  EXPECT_EXIT(Run(SomeNeverWait, 1), testing::ExitedWithCode(1),
              "a thread ended without WaitForPrevious");
  EXPECT_EQ(Run(SomeNeverWait, 1, /*overlap=*/false), right_);
}

TEST_F(OverlapTest, ASeedDecidesWhatOverlaps) {
  std::set<std::vector<int>> results;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<int> result = Run(ReadsTooEarly, seed);
    EXPECT_EQ(Run(ReadsTooEarly, seed), result);
    results.insert(result);
  }
  EXPECT_GT(results.size(), 10u);
}

// The waits of AddOne, as if they stood at its end.
TEST_F(OverlapTest, AWaitCanBeTakenOut) {
  emulation::settings.late_wait = reinterpret_cast<const void*>(&AddOne);
  EXPECT_NE(Run(AddOne, 1), right_);
}

// What is no kernel is done before a kernel starts.
TEST_F(OverlapTest, OnlyKernelsBehindKernelsStartEarly) {
  const Grid grid = {dim3(kBlocks), kThreads};
  EXPECT_EQ(cudaMemsetAsync(buffers_[0], 0, kBytes, nullptr), cudaSuccess);
  EXPECT_EQ(LaunchKernel({nullptr, true}, grid, ReadsTooEarly, buffers_[0],
                         buffers_[1]),
            cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_TRUE(emulation::counts.early_kernels.empty());
}

}  // namespace
}  // namespace nacre::kernels::cuda
