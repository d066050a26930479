#include "kernels/cuda/gemm_plan.h"

#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace nacre::kernels::cuda {
namespace {

constexpr GemmDevice kH200 = {132, 227 << 10};
constexpr GemmDevice kWideH200 = {132, 227 << 10, true};
constexpr GemmDevice kA100 = {108, 163 << 10};
constexpr GemmDevice kSmall = {84, 99 << 10};  // sm_86

GemmPlan Plan(int outputs, int inputs, int rows,
              const GemmDevice& device = kH200,
              GemmFormat format = GemmFormat::kBf16) {
  const std::optional<GemmPlan> plan =
      PlanGemm(format, GemmOrderOf(outputs, inputs), outputs, rows, device);
  EXPECT_TRUE(plan.has_value());
  return plan.value_or(GemmPlan{});
}

TEST(GemmPlanTest, KernelFollowsTheRows) {
  EXPECT_EQ(Plan(14336, 4096, 1).kernel, GemmKernel::kSkinny8);
  EXPECT_EQ(Plan(14336, 4096, 8).kernel, GemmKernel::kSkinny8);
  EXPECT_EQ(Plan(14336, 4096, 9).kernel, GemmKernel::kSkinny16);
  EXPECT_EQ(Plan(14336, 4096, 17).kernel, GemmKernel::k128x32);
  EXPECT_EQ(Plan(14336, 4096, 64).kernel, GemmKernel::k128x64);
  EXPECT_EQ(Plan(14336, 4096, 65).kernel, GemmKernel::k128x128);
  EXPECT_EQ(Plan(4096, 4096, 512).kernel, GemmKernel::k128x128);
}

TEST(GemmPlanTest, FewOutputsMakeSmallTiles) {
  EXPECT_EQ(Plan(4096, 4096, 32).kernel, GemmKernel::k32x32);
  EXPECT_EQ(Plan(4096, 4096, 64).kernel, GemmKernel::k32x64);
  EXPECT_EQ(Plan(4096, 4096, 64).blocks, 128);
  EXPECT_EQ(Plan(4096, 4096, 256).kernel, GemmKernel::k128x64);
}

TEST(GemmPlanTest, SlicesAreApartUntilRowsFillTheDevice) {
  EXPECT_EQ(Plan(4096, 14336, 16).apart, Apart::kSlices);
  EXPECT_EQ(Plan(4096, 14336, 256).apart, Apart::kSlices);
  EXPECT_EQ(Plan(4096, 14336, 257).apart, Apart::kNothing);
  EXPECT_EQ(Plan(4096, 4096, 16).apart, Apart::kNothing);
  EXPECT_EQ(Plan(4096, 14336, 64).blocks, 32 * 4);
}

TEST(GemmPlanTest, WideKernelFollowsTheRows) {
  const auto plan = [](int outputs, int inputs, int rows) {
    return Plan(outputs, inputs, rows, kWideH200);
  };
  EXPECT_EQ(plan(14336, 4096, 16).kernel, GemmKernel::kSkinny16);
  EXPECT_EQ(plan(14336, 4096, 17).kernel, GemmKernel::kWide128x32);
  EXPECT_EQ(plan(14336, 4096, 33).kernel, GemmKernel::kWide128x64);
  EXPECT_EQ(plan(14336, 4096, 65).kernel, GemmKernel::kWide128x128);
  EXPECT_EQ(plan(4096, 4096, 512).kernel, GemmKernel::kWide128x128);
}

TEST(GemmPlanTest, ChainsAreApartWhereWideTilesAreFew) {
  const auto plan = [](int outputs, int inputs, int rows,
                       GemmFormat format = GemmFormat::kFp8) {
    return Plan(outputs, inputs, rows, kWideH200, format);
  };
  EXPECT_EQ(plan(4096, 4096, 17).apart, Apart::kChains);
  EXPECT_EQ(plan(4096, 4096, 64).apart, Apart::kChains);
  EXPECT_EQ(plan(4096, 4096, 64).blocks, 64 * 8);
  EXPECT_EQ(plan(4096, 4096, 65).apart, Apart::kNothing);
  EXPECT_EQ(plan(4096, 14336, 64).apart, Apart::kSlices);
  EXPECT_EQ(plan(14336, 4096, 64).apart, Apart::kNothing);
  EXPECT_EQ(plan(4096, 4096, 64, GemmFormat::kBf16).apart, Apart::kNothing);
}

TEST(GemmPlanTest, OneSkinnyBlockAMultiprocessor) {
  EXPECT_EQ(Plan(14336, 4096, 1).blocks, 132);
  EXPECT_EQ(Plan(4096, 14336, 1).blocks, 33 * 4);
  EXPECT_EQ(Plan(100, 64, 1).blocks, 7);
}

template <typename Tile>
double KilobytesOfWide(int vectors) {
  return (WideStages<Tile>(vectors) - 1) * Tile::kOutputTiles * vectors *
         Tile::kBlocks / 64.0;
}

// Kilobytes of weights that a multiprocessor waits for while it multiplies one
// stage: with up to 8 rows, 16, 32 (wide, then narrow tiles), 64 (likewise) and
// more.
std::vector<double> OnTheirWay(GemmFormat format) {
  const int vectors = WeightVectors(format);
  const auto skinny = [&](int rows) {
    return (SkinnyStages(vectors, rows) - 1) * vectors * kChains *
           SkinnyGroups(vectors) / 64.0;
  };
  const bool bf16 = format == GemmFormat::kBf16;
  return {skinny(8),
          skinny(16),
          KilobytesOfWide<Wide128x32>(vectors),
          bf16 ? KilobytesOfWide<Wide64x32>(vectors)
               : KilobytesOfWide<Shallow64x32>(vectors),
          KilobytesOfWide<Wide128x64>(vectors),
          bf16 ? KilobytesOfWide<Wide64x64>(vectors)
               : KilobytesOfWide<Shallow64x64>(vectors),
          KilobytesOfWide<Wide128x128>(vectors)};
}

// As docs/roofline.md has them. To read as fast as it can, an H200 needs 48.
TEST(GemmPlanTest, EnoughWeightsAreOnTheirWay) {
  using Kilobytes = std::vector<double>;
  EXPECT_EQ(OnTheirWay(GemmFormat::kBf16),
            (Kilobytes{64, 64, 128, 88, 112, 88, 80}));
  EXPECT_EQ(OnTheirWay(GemmFormat::kFp8),
            (Kilobytes{64, 48, 88, 96, 88, 60, 56}));
  EXPECT_EQ(OnTheirWay(GemmFormat::kInt8),
            (Kilobytes{49.5, 49.5, 90.75, 86.625, 82.5, 49.5, 49.5}));
  EXPECT_EQ(OnTheirWay(GemmFormat::kInt4),
            (Kilobytes{63, 54, 49.5, 67.5, 49.5, 54, 49.5}));
  for (const GemmFormat format : {GemmFormat::kBf16, GemmFormat::kInt8,
                                  GemmFormat::kFp8, GemmFormat::kInt4}) {
    for (const double kilobytes : OnTheirWay(format)) EXPECT_GE(kilobytes, 48);
  }
}

// Each wide tile has the blocks that are meant for it: a multiprocessor has
// 228 KB, of which each block takes one more.
template <typename Tile>
void ExpectBlocksFit(GemmFormat format) {
  const int vectors = WeightVectors(format);
  const int stage = Tile::kOutputTiles * vectors;
  const int bytes = 16 * (WideStages<Tile>(vectors) * (stage + 1) +
                          WideRowStages<Tile>(vectors) * Tile::kRows * 8) +
                    kWideAlignment;
  EXPECT_LE(Tile::kBlocks * (bytes + 1024), 228 << 10);
  // Rows are copied while others are multiplied.
  EXPECT_GE(WideRowStages<Tile>(vectors), 3);
}

TEST(GemmPlanTest, WideBlocksFitSideBySide) {
  for (const GemmFormat format : {GemmFormat::kBf16, GemmFormat::kInt8,
                                  GemmFormat::kFp8, GemmFormat::kInt4}) {
    ExpectBlocksFit<Wide128x32>(format);
    ExpectBlocksFit<Wide128x64>(format);
    ExpectBlocksFit<Wide128x128>(format);
    if (format == GemmFormat::kBf16) {
      ExpectBlocksFit<Wide64x32>(format);
      ExpectBlocksFit<Wide64x64>(format);
    } else {
      ExpectBlocksFit<Shallow64x32>(format);
      ExpectBlocksFit<Shallow64x64>(format);
    }
  }
}

// Of every format, and one block on a multiprocessor.
TEST(GemmPlanTest, FewRowsHaveTheirKernel) {
  for (const GemmFormat format : {GemmFormat::kBf16, GemmFormat::kInt8,
                                  GemmFormat::kFp8, GemmFormat::kInt4}) {
    for (int rows = 1; rows <= 16; ++rows) {
      for (const int inputs : {64, 2048, 4096, 14336}) {
        const GemmPlan plan = Plan(4096, inputs, rows, kH200, format);
        EXPECT_EQ(plan.kernel,
                  rows <= 8 ? GemmKernel::kSkinny8 : GemmKernel::kSkinny16);
        EXPECT_GT(2 * plan.shared_bytes, size_t{228} << 10);
      }
    }
  }
}

TEST(GemmPlanTest, FallsBackToWhatFitsInSharedMemory) {
  EXPECT_EQ(Plan(14336, 4096, 8, kA100).kernel, GemmKernel::kSkinny8);
  // 224 KB would be needed.
  EXPECT_EQ(Plan(14336, 4096, 16, kA100).kernel, GemmKernel::k128x32);
  EXPECT_EQ(Plan(14336, 4096, 1, kSmall).kernel, GemmKernel::kSkinny8);
  EXPECT_EQ(Plan(14336, 4096, 8, kSmall).kernel, GemmKernel::k128x32);
  EXPECT_EQ(Plan(14336, 4096, 500, kSmall).kernel, GemmKernel::k128x64);
}

TEST(GemmPlanTest, NothingFitsInTooLittle) {
  EXPECT_FALSE(
      PlanGemm(GemmFormat::kBf16, GemmOrderOf(64, 64), 64, 1, {8, 32 << 10})
          .has_value());
}

// Every plan fits, stages suffice for a pipeline, and small tiles fit wherever
// CUDA runs.
TEST(GemmPlanTest, SharedMemoryOfAllFormats) {
  for (const GemmFormat format : {GemmFormat::kBf16, GemmFormat::kInt8,
                                  GemmFormat::kFp8, GemmFormat::kInt4}) {
    for (const GemmDevice& device :
         {kH200, kWideH200, kA100, kSmall, {4, 48 << 10}}) {
      for (int rows = 1; rows < 700; rows += 13) {
        for (const int inputs : {64, 4096, 14336}) {
          const GemmPlan plan = Plan(4096, inputs, rows, device, format);
          EXPECT_GT(plan.shared_bytes, 0u);
          EXPECT_LE(plan.shared_bytes,
                    static_cast<size_t>(device.shared_bytes));
          EXPECT_GE(plan.blocks, 1);
        }
      }
    }
    const int vectors = WeightVectors(format);
    EXPECT_GE(TiledStages<Tile128x128>(vectors), 4);
    EXPECT_GE(TiledStages<Tile128x64>(vectors), 4);
    EXPECT_GE(TiledStages<Tile128x32>(vectors), 4);
    EXPECT_GE(TiledStages<Tile32x64>(vectors), 4);
    EXPECT_GE(TiledStages<Tile32x32>(vectors), 4);
  }
}

}  // namespace
}  // namespace nacre::kernels::cuda
