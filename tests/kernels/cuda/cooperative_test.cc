// Blocks of one launch that wait for each other on the emulated device: what
// waits as it should computes what it should, and what does not is found.

#include "tests/kernels/cuda/emulation/language.h"
// The language comes first.
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/block_counts.cuh"
#include "kernels/cuda/primitives.cuh"

namespace nacre::kernels::cuda {
namespace {

constexpr int kBlocks = 6;
constexpr int kThreads = 64;
constexpr int kValues = kBlocks * kThreads;
constexpr int kRounds = 12;
constexpr size_t kSharedBytes = kThreads * sizeof(int);

enum class Mistake {
  kNone,
  kNoWait,
  kOneTooFew,    // goes on while one block is missing
  kCountsEarly,  // before all threads have written
  kGoesOnEarly,  // threads but the first know nothing of the wait
  kStoresLate,   // what the others read, after counting
  kTooMany,      // waits for a block more than there are
};

// In each round block b takes what block b + 1 wrote in the round before, and
// adds one. Its own number of rounds lies in shared memory meanwhile.
template <Mistake kMistake>
__global__ void PassAround(int* values, unsigned* counts, unsigned before) {
  extern __shared__ uint4 shared[];
  int* const rounds = reinterpret_cast<int*>(shared) + threadIdx.x;
  *rounds = 0;
  const int own = static_cast<int>(blockIdx.x) * kThreads + threadIdx.x;
  // A thread that another warp has.
  const int other =
      (own + kThreads + kThreads / 2) % kValues / kThreads * kThreads +
      (threadIdx.x + kThreads / 2) % kThreads;
  for (int round = 0; round < kRounds; ++round) {
    int* const to = values + (round + 1) % 2 * kValues;
    const int value = values[round % 2 * kValues + other] + 1;
    if (kMistake != Mistake::kStoresLate) __stcg(to + own, value);
    if (kMistake != Mistake::kCountsEarly) __syncthreads();
    unsigned* const count = counts + round;
    if (threadIdx.x == 0) CountBlock(count);
    if (kMistake == Mistake::kStoresLate) __stcg(to + own, value);
    ++*rounds;
    const unsigned blocks = kMistake == Mistake::kOneTooFew ? gridDim.x - 1
                            : kMistake == Mistake::kTooMany ? gridDim.x + 1
                                                            : gridDim.x;
    if (kMistake != Mistake::kNoWait && threadIdx.x == 0) {
      WaitForBlocks(count, before + blocks);
    }
    if (kMistake != Mistake::kGoesOnEarly) __syncthreads();
  }
  if (*rounds != kRounds) values[own] = -1;
}

// Barriers of the first kThreads threads, and of all. kApart: the two are never
// open at the same time.
template <bool kApart>
__global__ void MeetInGroups(int* values) {
  extern __shared__ uint4 shared[];
  auto* const seen = reinterpret_cast<int*>(shared);
  const int thread = threadIdx.x;
  for (int round = 0; round < kRounds; ++round) {
    if (thread < kThreads) {
      seen[thread] = round;
      GroupBarrier<kThreads>(0);
      if (seen[(thread + 32) % kThreads] != round) values[thread] = -1;
    }
    if (kApart) __syncthreads();
    seen[thread] = -round;
    GroupBarrier<kThreads + 32>(0);
    if (seen[(thread + 32) % (kThreads + 32)] != -round) values[thread] = -1;
    if (kApart) __syncthreads();
  }
}

class CooperativeTest : public testing::Test {
 protected:
  CooperativeTest() {
    emulation::ResetDevice();
    for (void** const memory : {reinterpret_cast<void**>(&values_),
                                reinterpret_cast<void**>(&counts_)}) {
      EXPECT_EQ(cudaMalloc(memory, kBytes), cudaSuccess);
    }
  }
  ~CooperativeTest() override {
    cudaFree(values_);
    cudaFree(counts_);
    emulation::ResetDevice();
  }

  template <typename... Parameters, typename... Arguments>
  static cudaError_t Launch(bool cooperative, int blocks, int threads,
                            size_t shared_bytes, void (*kernel)(Parameters...),
                            Arguments... arguments) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = cooperative ? 1 : 0;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared_bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
  }

  // Whether all values are what as many rounds make of zeros.
  template <Mistake kMistake>
  bool IsRight(uint32_t seed, bool cooperative = true, unsigned before = 0) {
    emulation::SeedOverlap(seed);
    EXPECT_EQ(cudaMemset(values_, 0, kBytes), cudaSuccess);
    const std::vector<unsigned> counts(kRounds, before);
    EXPECT_EQ(cudaMemcpy(counts_, counts.data(), kRounds * sizeof(unsigned),
                         cudaMemcpyHostToDevice),
              cudaSuccess);
    EXPECT_EQ(Launch(cooperative, kBlocks, kThreads, kSharedBytes,
                     PassAround<kMistake>, values_, counts_, before),
              cudaSuccess);
    std::vector<int> values(kValues);
    EXPECT_EQ(cudaMemcpy(values.data(), values_ + kRounds % 2 * kValues,
                         kValues * sizeof(int), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values == std::vector<int>(kValues, kRounds);
  }

  template <Mistake kMistake>
  bool IsEverWrong() {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      if (!IsRight<kMistake>(seed)) return true;
    }
    return false;
  }

  static constexpr size_t kBytes = 2 * kValues * sizeof(int);
  int* values_ = nullptr;
  unsigned* counts_ = nullptr;
};

TEST_F(CooperativeTest, BlocksThatWaitComputeTheSameInAnyOrder) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    EXPECT_TRUE(IsRight<Mistake::kNone>(seed)) << seed;
  }
  EXPECT_EQ(emulation::counts.cooperative_launches, 20);
  EXPECT_EQ(emulation::counts.waited_for.size(), size_t{kRounds});
}

TEST_F(CooperativeTest, WhatDoesNotWaitIsWrong) {
  EXPECT_TRUE(IsEverWrong<Mistake::kNoWait>());
  EXPECT_TRUE(IsEverWrong<Mistake::kOneTooFew>());
  EXPECT_TRUE(IsEverWrong<Mistake::kCountsEarly>());
  EXPECT_TRUE(IsEverWrong<Mistake::kGoesOnEarly>());
  EXPECT_TRUE(IsEverWrong<Mistake::kStoresLate>());
}

TEST_F(CooperativeTest, ACountMayWrapAround) {
  for (const unsigned before : {0x7ffffffeu, 0xfffffffcu, 0xffffffffu}) {
    EXPECT_TRUE(IsRight<Mistake::kNone>(1, true, before)) << before;
  }
}

TEST_F(CooperativeTest, BlocksThatWaitForEverEndTheProgram) {
  EXPECT_EXIT(IsRight<Mistake::kTooMany>(1), testing::ExitedWithCode(1),
              "blocks of a launch wait for each other for ever");
}

// Then one of them may have to end before another one begins.
TEST_F(CooperativeTest, OnlyThoseOfACooperativeLaunchMayWait) {
  EXPECT_EXIT(IsRight<Mistake::kNone>(1, /*cooperative=*/false),
              testing::ExitedWithCode(1),
              "threads wait at a barrier that not all reach");
}

TEST_F(CooperativeTest, AWaitCanBeTakenOut) {
  for (int round = 0; round < kRounds; ++round) {
    emulation::settings.late_count = counts_ + round;
    // Nothing comes after the last.
    EXPECT_EQ(IsEverWrong<Mistake::kNone>(), round < kRounds - 1) << round;
  }
}

TEST_F(CooperativeTest, AllBlocksMustFitAtTheSameTime) {
  const auto launch = [&](int blocks, size_t shared_bytes) {
    return Launch(true, blocks, kThreads, shared_bytes,
                  PassAround<Mistake::kNone>, values_, counts_, 0u);
  };
  emulation::settings.runs_kernels = false;
  EXPECT_EQ(launch(kBlocks, 48 << 10), cudaSuccess);
  EXPECT_EQ(launch(4 * kBlocks, 48 << 10), cudaSuccess);
  EXPECT_EQ(launch(4 * kBlocks + 1, 48 << 10),
            cudaErrorCooperativeLaunchTooLarge);
  // 2048 threads of a multiprocessor.
  EXPECT_EQ(launch(32 * kBlocks, kSharedBytes), cudaSuccess);
  EXPECT_EQ(launch(32 * kBlocks + 1, kSharedBytes),
            cudaErrorCooperativeLaunchTooLarge);
}

TEST_F(CooperativeTest, AGroupMayHaveOtherThreadsEachTime) {
  const auto run = [&](void (*kernel)(int*)) {
    EXPECT_EQ(cudaMemset(values_, 0, kBytes), cudaSuccess);
    EXPECT_EQ(Launch(false, kBlocks, kThreads + 32,
                     (kThreads + 32) * sizeof(int), kernel, values_),
              cudaSuccess);
    std::vector<int> values(kValues);
    EXPECT_EQ(cudaMemcpy(values.data(), values_, kValues * sizeof(int),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  };
  EXPECT_EQ(run(MeetInGroups<true>), std::vector<int>(kValues));
  EXPECT_EXIT(run(MeetInGroups<false>), testing::ExitedWithCode(1),
              "a barrier that others are to open");
}

}  // namespace
}  // namespace nacre::kernels::cuda
