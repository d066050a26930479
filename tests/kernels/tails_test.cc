// Rows with tails, the nodes of token trees, on the reference and on every SIMD
// target of this machine.

#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/tail_checks.h"

namespace nacre::kernels {
namespace {

// Around the edges of blocks and of splits.
const std::vector<int> kLengths = {0, 1, 15, 16, 33, 60, 63, 64, 65, 129, 250};

void ExpectTreesAreChains(Backend* backend, const TailShape& shape) {
  uint32_t seed = 1;
  for (const int length : kLengths) {
    const int nodes = 1 + static_cast<int>(seed * 23 % 64);
    TreesInSlots trees(backend, shape, {length, length + 7}, {nodes, 5}, seed);
    trees.ExpectBitsOfChains();
    if (::testing::Test::HasFatalFailure()) return;
    trees.ExpectBitsOfKeptPaths();
    if (::testing::Test::HasFatalFailure()) return;
    ++seed;
  }
}

TEST(ReferenceTailsTest, NodesHaveTheBitsOfTheirChains) {
  const auto backend = MakeBackend("reference");
  for (const DType type : kKvTypes) {
    ExpectTreesAreChains(backend.get(), {6, 2, 2, type});
  }
}

using CpuTailsTest = EveryTargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, CpuTailsTest,
                         ::testing::ValuesIn(SupportedSimdTargets()),
                         SimdTargetName);

TEST_P(CpuTailsTest, NodesHaveTheBitsOfTheirChains) {
  const auto backend = MakeBackend("cpu");
  for (const DType type : kKvTypes) {
    for (const int heads_per_kv_head : {1, 4, 7}) {
      ExpectTreesAreChains(backend.get(), {64, 2, heads_per_kv_head, type});
      if (HasFatalFailure()) return;
    }
    ExpectTreesAreChains(backend.get(), {80, 1, 2, type});
    if (HasFatalFailure()) return;
  }
}

// Windows that begin before the tree, in it, and after a node.
TEST_P(CpuTailsTest, WindowsReachIntoPaths) {
  const auto backend = MakeBackend("cpu");
  for (const int window : {1, 3, 17, 64, 100}) {
    for (const DType type : kKvTypes) {
      TailShape shape = {48, 2, 3, type};
      shape.rule.window = window;
      shape.rule.soft_cap = window == 17 ? 1.5f : 0.0f;
      ExpectTreesAreChains(backend.get(), shape);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CpuTailsTest, BlocksMayHaveAnySize) {
  const auto backend = MakeBackend("cpu");
  for (const int block_size : {1, 7, 24, 32, 64}) {
    for (const DType type : kKvTypes) {
      ExpectTreesAreChains(backend.get(), {48, 2, 3, type, block_size});
      if (HasFatalFailure()) return;
    }
  }
}

// More sequences than there are tiles in a group, each with a large tree.
TEST_P(CpuTailsTest, TreesOfManySequencesStandInOneBatch) {
  const auto backend = MakeBackend("cpu", "auto", AllowedCores(2));
  for (const DType type : {DType::kBF16, DType::kInt8}) {
    TreesInSlots trees(backend.get(), {34, 2, 3, type},
                       {1, 15, 16, 63, 65, 129, 200, 257, 300},
                       {64, 1, 2, 33, 7, 64, 16, 64, 3}, 99);
    trees.ExpectBitsOfChains();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace nacre::kernels
