#include "kernels/cuda/gemm_order.h"

#include "gtest/gtest.h"

namespace nacre::kernels::cuda {
namespace {

// Deciding bits, they must not change unnoticed.
TEST(GemmOrderTest, SlicesOfShapesThatModelsHave) {
  const struct {
    int outputs, inputs, slices, chain_blocks;
  } expected[] = {{4096, 4096, 1, 8},  {14336, 4096, 1, 8},
                  {4096, 14336, 4, 7}, {128256, 4096, 1, 8},
                  {1024, 4096, 4, 2},  {16, 64, 1, 1},
                  {8192, 8192, 2, 8},  {2048, 2048, 2, 2},
                  {6656, 17920, 5, 7}, {17920, 6656, 2, 7}};
  for (const auto& [outputs, inputs, slices, chain_blocks] : expected) {
    const GemmOrder order = GemmOrderOf(outputs, inputs);
    EXPECT_EQ(order.slices, slices) << outputs << " x " << inputs;
    EXPECT_EQ(order.chain_blocks, chain_blocks) << outputs << " x " << inputs;
  }
}

// No slice is empty, and chains cover a slice.
TEST(GemmOrderTest, PartsCoverTheWhole) {
  for (int outputs = 1; outputs < 6000; outputs += 97) {
    for (int inputs = 8; inputs < 40000; inputs += 312) {
      const GemmOrder order = GemmOrderOf(outputs, inputs);
      ASSERT_EQ(order.blocks, (inputs + 63) / 64);
      ASSERT_GE(order.slices * order.slice_blocks, order.blocks);
      ASSERT_LT((order.slices - 1) * order.slice_blocks, order.blocks);
      ASSERT_LE(order.slice_blocks, kMaxSliceBlocks);
      ASSERT_GE(kChains * order.chain_blocks, order.slice_blocks);
    }
  }
}

}  // namespace
}  // namespace nacre::kernels::cuda
