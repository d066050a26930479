// Products of bf16 weights with inputs that are rounded to bf16 as well
// (--weights bf16a16), for every SIMD target of this machine.

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/aligned_allocator.h"
#include "kernels/cpu/dense_matrix.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels {
namespace {

using CpuRoundedTest = EveryTargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, CpuRoundedTest,
                         ::testing::ValuesIn(SupportedSimdTargets()),
                         SimdTargetName);

std::vector<float> MatMul(Backend& backend, const std::vector<float>& x,
                          int rows, const HostMatrix& w) {
  const auto packed = backend.Pack({w});
  EXPECT_TRUE(packed.ok()) << packed.status();
  std::vector<float> y(static_cast<size_t>(rows) * w.rows, NAN);
  backend.MatMul(x.data(), rows, **packed, y.data());
  return y;
}

TEST_P(CpuRoundedTest, AgreesWithTheReferenceOnAwkwardSizes) {
  const auto cpu = MakeBackend("cpu", "bf16a16");
  const auto reference = MakeBackend("reference", "bf16a16");
  for (const int cols : kAwkwardSizes) {
    for (const int outputs : kAwkwardSizes) {
      const auto x = RandomFloats(static_cast<size_t>(kMaxRows) * cols, 1);
      for (const DType dtype : {DType::kBF16, DType::kF32}) {
        const UnalignedMatrix w(
            RandomFloats(static_cast<size_t>(outputs) * cols, 2), outputs, cols,
            dtype);
        const auto expected = MatMul(*reference, x, kMaxRows, w.host());
        const auto actual = MatMul(*cpu, x, kMaxRows, w.host());
        // Every product is below 1.02.
        const double tolerance = SumTolerance(cols) * cols * 1.02;
        for (size_t i = 0; i < actual.size(); ++i) {
          ASSERT_NEAR(actual[i], expected[i], tolerance)
              << cols << " inputs, output " << i % outputs << " of " << outputs;
        }
      }
    }
  }
}

// The rounding is there: other inputs between the same bf16 values change
// nothing, and without it they do.
TEST_P(CpuRoundedTest, OnlyTheRoundedInputsCount) {
  const auto x = RandomFloats(100, 1);
  std::vector<float> rounded = x;
  for (float& value : rounded) value = FromBF16(ToBF16(value));
  const UnalignedMatrix w(RandomFloats(7 * 100, 2), 7, 100, DType::kBF16);
  for (const char* kind : {"cpu", "reference"}) {
    const auto backend = MakeBackend(kind, "bf16a16");
    EXPECT_EQ(MatMul(*backend, x, 1, w.host()),
              MatMul(*backend, rounded, 1, w.host()));
    const auto exact = MakeBackend(kind, "bf16");
    EXPECT_NE(MatMul(*exact, x, 1, w.host()),
              MatMul(*exact, rounded, 1, w.host()));
    EXPECT_NE(backend->numerics_id(), exact->numerics_id());
  }
}

TEST_P(CpuRoundedTest, RowsHaveTheSameBitsInEveryBatch) {
  const auto backend = MakeBackend("cpu", "bf16a16");
  for (const int cols : kAwkwardSizes) {
    const int outputs = 344;
    const auto x = RandomFloats(static_cast<size_t>(kMaxRows) * cols, 1);
    const UnalignedMatrix w(
        RandomFloats(static_cast<size_t>(outputs) * cols, 2), outputs, cols,
        DType::kBF16);
    const auto packed = backend->Pack({w.host()});
    ASSERT_TRUE(packed.ok());
    std::vector<float> alone(static_cast<size_t>(kMaxRows) * outputs);
    for (int row = 0; row < kMaxRows; ++row) {
      backend->MatMul(x.data() + row * cols, 1, **packed,
                      alone.data() + row * outputs);
    }
    for (int rows = 2; rows <= kMaxRows; ++rows) {
      const int first = kMaxRows - rows;
      std::vector<float> together(static_cast<size_t>(rows) * outputs);
      backend->MatMul(x.data() + first * cols, rows, **packed, together.data());
      ASSERT_EQ(std::memcmp(together.data(), alone.data() + first * outputs,
                            together.size() * sizeof(float)),
                0)
          << rows << " rows of " << cols << " inputs";
    }
  }
}

TEST_P(CpuRoundedTest, WhatIsNoNumberStaysInItsRow) {
  const auto backend = MakeBackend("cpu", "bf16a16");
  const UnalignedMatrix w(RandomFloats(5 * 40, 2), 5, 40, DType::kBF16);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    auto x = RandomFloats(3 * 40, 1);
    x[40 + 17] = bad;
    const auto y = MatMul(*backend, x, 3, w.host());
    for (int i = 0; i < 15; ++i) EXPECT_EQ(std::isfinite(y[i]), i / 5 != 1);
  }
}

// But for numbers below 2^-126, so the numerics id tells them apart all the
// same.
TEST_P(CpuRoundedTest, ProductsOfPairsHaveTheBitsOfThePortable) {
  GemmKernels pairs = PortableGemmKernels();
  if (!UsePairProducts(&pairs)) {
    GTEST_SKIP() << "all code of this target is portable here";
  }
  const auto run_all = [](int count, absl::FunctionRef<void(int, int)> task) {
    task(0, count);
  };
  const RunRanges run = run_all;  // which does not own it
  const auto multiply = [&](const GemmKernels& kernels, int rows, int cols) {
    const int outputs = 100;
    const auto x = RandomFloats(static_cast<size_t>(rows) * cols, 1, 1e4f);
    const auto values = RandomFloats(static_cast<size_t>(outputs) * cols, 2);
    const HostMatrix w = {DType::kF32, values.data(), outputs, cols};
    HostArena memory;
    const auto matrix = DenseMatrix::Create(
        StackedWeights({&w, 1}), WeightType::kBF16A16, kernels, run, &memory);
    EXPECT_TRUE(matrix.ok()) << matrix.status();
    const auto packed =
        hwy::AllocateAligned<char>((*matrix)->ActivationBytes(rows));
    (*matrix)->PackActivations(x.data(), rows, 0, (*matrix)->num_tiles(rows),
                               packed.get());
    std::vector<float> y(static_cast<size_t>(rows) * outputs);
    (*matrix)->Multiply(packed.get(), rows, 0, (*matrix)->num_units(),
                        y.data());
    return y;
  };
  EXPECT_EQ(ChooseGemmKernels().multiply_rounded, pairs.multiply_rounded);
  EXPECT_NE(MakeBackend("cpu", "bf16a16")->numerics_id().find("-pairs-"),
            std::string::npos);
  EXPECT_EQ(MakeBackend("cpu", "bf16")->numerics_id().find("-pairs-"),
            std::string::npos);
  for (const int rows : {1, 2, 3, 4, 5, 6, 7, 13, 33}) {
    for (const int cols : {1, 2, 7, 8, 15, 16, 17, 63, 172, 1000}) {
      const auto expected = multiply(PortableGemmKernels(), rows, cols);
      const auto actual = multiply(pairs, rows, cols);
      ASSERT_EQ(std::memcmp(actual.data(), expected.data(),
                            expected.size() * sizeof(float)),
                0)
          << rows << " rows of " << cols << " inputs";
    }
  }
}

}  // namespace
}  // namespace nacre::kernels
