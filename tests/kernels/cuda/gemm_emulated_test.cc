// The CUDA source of the matrix product, compiled as C++, on an emulated
// device: its indices, its waits and barriers, its limits of shared memory and
// its batch invariance are checked where there is no GPU. gemm_test.cu runs the
// same checks on a real one.

#include "tests/kernels/cuda/emulation/language.h"
// The language comes first.
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/gemm.cu"  // NOLINT: the code under test
#include "tests/kernels/cuda/gemm_checks.h"

namespace nacre::kernels::cuda {
namespace {

using emulation::settings;

constexpr GemmKernel kKernels[] = {
    GemmKernel::kSkinny8,    GemmKernel::kSkinny16,   GemmKernel::k32x32,
    GemmKernel::k32x64,      GemmKernel::k128x32,     GemmKernel::k128x64,
    GemmKernel::k128x128,    GemmKernel::kWide64x32,  GemmKernel::kWide64x64,
    GemmKernel::kWide128x32, GemmKernel::kWide128x64, GemmKernel::kWide128x128};

const void* FunctionOf(GemmFormat format, GemmKernel kernel) {
  const auto wide = WideOf(format, kernel).function;
  return wide != nullptr
             ? reinterpret_cast<const void*>(wide)
             : reinterpret_cast<const void*>(KernelOf(format, kernel).function);
}

bool Launched(GemmFormat format, GemmKernel kernel) {
  return emulation::counts.kernels.count(FunctionOf(format, kernel)) > 0;
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
    emulation::ResetDevice();
    emulation::copies = emulation::Copies::kLate;
    settings.major = 8;
  }
  void TearDown() override { EXPECT_EQ(failures, 0); }
};

// 1 to 16 rows.
TEST_P(GemmEmulatedTest, FewRows) {
  for (const Shape& shape : kSkinnyShapes) {
    CheckShape(GetParam(), shape, {1, 2, 3, 8, 9}, 16, 7);
  }
  CheckShape(GetParam(), {33, 136}, UpTo(16), 16, 7);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::kSkinny8));
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::kSkinny16));
}

TEST_P(GemmEmulatedTest, FewRowsWhoseCopiesLandEarly) {
  emulation::copies = emulation::Copies::kEarly;
  for (const Shape& shape : {Shape{40, 200}, Shape{36, 2600}}) {
    CheckShape(GetParam(), shape, {1, 3, 12}, 16, 7);
  }
}

TEST_P(GemmEmulatedTest, OneMultiprocessor) {
  settings.multiprocessors = 1;
  CheckShape(GetParam(), {200, 72}, {5, 16}, 16, 8);
  CheckShape(GetParam(), {40, 2056}, {5, 16}, 16, 8);
}

// Small tiles, as where outputs are few for the device.
TEST_P(GemmEmulatedTest, EveryNumberOfRowsUpTo64) {
  settings.multiprocessors = 100;
  CheckShape(GetParam(), {40, 136}, UpTo(64), 65, 9);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k32x32));
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k32x64));
}

// Chains of more than a block, two slices, a ragged last block and tile.
TEST_P(GemmEmulatedTest, SlicesApart) {
  settings.multiprocessors = 100;
  CheckShape(GetParam(), {36, 2120}, {1, 16, 30, 50}, 65, 10);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k32x32));
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k32x64));
}

// Blocks of one tile after another, or of all at once; the order in which they
// come is another one each time.
TEST_P(GemmEmulatedTest, TheLastBlockAddsSlices) {
  for (const int multiprocessors : {1, 6, 100}) {
    settings.multiprocessors = multiprocessors;
    for (const Shape& shape : {Shape{36, 2600}, Shape{130, 4104}}) {
      Case test(GetParam(), shape, 16, 17);
      const std::vector<float> all = test.Run(0, 16);
      for (const int rows : {1, 7, 9, 16}) CheckRows(test, all, 0, rows);
    }
  }
}

TEST_P(GemmEmulatedTest, NoKernelAddsWhatTheLastBlockDoes) {
  Case test(GetParam(), {36, 2600}, 17, 18);
  const auto launches = [&](int rows) {
    emulation::counts.launches = 0;
    test.Run(0, rows);
    return emulation::counts.launches;
  };
  EXPECT_EQ(launches(16), 2);
  test.SetLastAdds(true);
  EXPECT_EQ(launches(1), 1);
  EXPECT_EQ(launches(16), 1);
  EXPECT_EQ(launches(17), 2);  // tiles
}

// Of halves of heads, and of gate and up; in all kinds of tiles and slices.
TEST_P(GemmEmulatedTest, OutputsInPairs) {
  settings.multiprocessors = 3;
  CheckPairs(GetParam(), {96, 2056}, 24, {1, 9, 17, 40}, 19);
  CheckPairs(GetParam(), {80, 136}, 40, {3, 16, 32, 70}, 20);
  settings.multiprocessors = 1;
  CheckPairs(GetParam(), {208, 72}, 104, {33, 130}, 21);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k128x128));
}

TEST_P(GemmEmulatedTest, LargeTiles) {
  settings.multiprocessors = 1;
  CheckShape(GetParam(), {130, 584}, {1, 32, 33, 64}, 100, 11);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k128x32));
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k128x64));
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k128x128));
}

TEST_P(GemmEmulatedTest, LargeTilesWhoseCopiesLandEarly) {
  emulation::copies = emulation::Copies::kEarly;
  settings.multiprocessors = 1;
  CheckShape(GetParam(), {20, 776}, {1, 32, 64}, 70, 11);
}

// More rows than are computed with slices apart: one after another, and sums of
// slices added in place.
TEST_P(GemmEmulatedTest, SlicesOneAfterAnother) {
  settings.multiprocessors = 1;
  Case test(GetParam(), {18, 2056}, 300, 12);
  const std::vector<float> all = test.Run(0, 300);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k128x128));
  CheckAgainstDouble(test, all);
  settings.multiprocessors = 100;
  for (const int rows : {1, 40, 100}) CheckRows(test, all, 300 - rows, rows);
}

// More than one group of tiles of rows, the last with fewer (FindTile).
TEST_P(GemmEmulatedTest, GroupsOfRowTiles) {
  settings.multiprocessors = 100;
  CheckShape(GetParam(), {40, 72}, {1, 513}, 600, 15);
}

TEST_P(GemmEmulatedTest, TilesWhereSharedMemoryIsSmall) {
  // Activations of a slice do not fit: few rows take tiles, with the same bits.
  Case test(GetParam(), {20, 2120}, 16, 13);
  const std::vector<float> all = test.Run(0, 16);
  emulation::counts.kernels.clear();
  settings.shared_limit = 80 << 10;
  for (const int rows : {1, 9, 16}) CheckRows(test, all, 0, rows);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::k32x32));
  EXPECT_FALSE(Launched(GetParam(), GemmKernel::kSkinny8));
}

TEST_P(GemmEmulatedTest, RefusesWhatDoesNotFit) {
  settings.shared_limit = 32 << 10;
  Case test(GetParam(), {16, 64}, 1, 14);
  EXPECT_EQ(Gemm(test.Args(0, 1), {}), cudaErrorInvalidValue);
}

// Products of warpgroups.
class GemmWideTest : public GemmEmulatedTest {
 protected:
  void SetUp() override {
    GemmEmulatedTest::SetUp();
    settings.major = 9;
  }
};

TEST_P(GemmWideTest, EveryNumberOfRowsUpTo64) {
  settings.multiprocessors = 100;
  CheckShape(GetParam(), {40, 136}, UpTo(64), 65, 9);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::kWide64x32));
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::kWide64x64));
  EXPECT_FALSE(Launched(GetParam(), GemmKernel::k32x32));
}

// Chains of more than a block, two slices, a ragged last block and tile; each
// stage of shared memory is filled again and again.
TEST_P(GemmWideTest, SlicesApart) {
  settings.multiprocessors = 100;
  CheckShape(GetParam(), {72, 2120}, {1, 16, 30, 50}, 65, 10);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::kWide64x32));
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::kWide64x64));
}

TEST_P(GemmWideTest, OutputsInPairs) {
  settings.multiprocessors = 3;
  CheckPairs(GetParam(), {96, 2056}, 24, {17, 40}, 19);
  CheckPairs(GetParam(), {80, 136}, 40, {32, 70}, 20);
  settings.multiprocessors = 1;
  CheckPairs(GetParam(), {208, 72}, 104, {33, 130}, 21);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::kWide128x128));
}

TEST_P(GemmWideTest, LargeTiles) {
  settings.multiprocessors = 1;
  for (const auto copies :
       {emulation::Copies::kLate, emulation::Copies::kEarly}) {
    emulation::copies = copies;
    CheckShape(GetParam(), {130, 776}, {1, 32, 33, 64}, 140, 11);
  }
  const bool bf16 = GetParam() == GemmFormat::kBf16;
  EXPECT_EQ(Launched(GetParam(), GemmKernel::kWide128x32), bf16);
  EXPECT_EQ(Launched(GetParam(), GemmKernel::kWide128x64), bf16);
  EXPECT_EQ(Launched(GetParam(), GemmKernel::kWide64x32), !bf16);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::kWide128x128));
}

TEST_P(GemmWideTest, SlicesOneAfterAnother) {
  settings.multiprocessors = 1;
  Case test(GetParam(), {18, 2056}, 300, 12);
  const std::vector<float> all = test.Run(0, 300);
  EXPECT_TRUE(Launched(GetParam(), GemmKernel::kWide128x128));
  CheckAgainstDouble(test, all);
  for (const int rows : {1, 40, 100}) CheckRows(test, all, 300 - rows, rows);
  // The bits are those of the other kernels.
  settings.major = 8;
  CheckRows(test, all, 0, 300);
}

INSTANTIATE_TEST_SUITE_P(Formats, GemmWideTest, testing::ValuesIn(kFormats),
                         [](const auto& info) {
                           return std::string(NameOf(info.param));
                         });

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
      functions.insert(FunctionOf(format, kernel));
    }
    EXPECT_EQ(functions.size(), std::size(kKernels));
    EXPECT_EQ(functions.count(nullptr), 0u);
  }
}

}  // namespace
}  // namespace nacre::kernels::cuda
