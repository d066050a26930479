// Products with int8 and int4 weights of the CPU backend: against the reference
// backend, the same bits in every batch, for every SIMD target of this machine.

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/cpu/quantized_gemm.h"
#include "kernels/quantization.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels {
namespace {

class CpuQuantizedTest
    : public ::testing::TestWithParam<std::tuple<int64_t, const char*>> {
 protected:
  std::string type() const { return std::get<1>(GetParam()); }

 private:
  ForcedTarget target_{std::get<0>(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    Targets, CpuQuantizedTest,
    ::testing::Combine(::testing::ValuesIn(SupportedSimdTargets()),
                       ::testing::Values("int8", "int4")),
    [](const auto& info) {
      return std::string(hwy::TargetName(std::get<0>(info.param))) + "_" +
             std::get<1>(info.param);
    });

std::vector<float> MatMul(Backend& backend, const std::vector<float>& x,
                          int rows, absl::Span<const HostMatrix> parts) {
  const auto packed = backend.Pack(parts);
  EXPECT_TRUE(packed.ok()) << packed.status();
  std::vector<float> y(static_cast<size_t>(rows) * (*packed)->rows(), NAN);
  backend.MatMul(x.data(), rows, **packed, y.data());
  return y;
}

TEST_P(CpuQuantizedTest, AgreesWithTheReferenceOnAwkwardSizes) {
  const auto cpu = MakeBackend("cpu", type());
  const auto reference = MakeBackend("reference", type());
  for (const int cols : kAwkwardSizes) {
    for (const int outputs : {1, 17, 31, 32, 33, 100, 344}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const int rows = 13;
        const auto x = RandomFloats(static_cast<size_t>(rows) * cols, 1);
        const UnalignedMatrix w(
            RandomFloats(static_cast<size_t>(outputs) * cols, 2), outputs, cols,
            dtype);
        const auto expected = MatMul(*reference, x, rows, {w.host()});
        const auto actual = MatMul(*cpu, x, rows, {w.host()});
        // Values are at most 1, so magnitudes at most cols.
        const double tolerance = SumTolerance(cols) * cols;
        for (size_t i = 0; i < actual.size(); ++i) {
          ASSERT_NEAR(actual[i], expected[i], tolerance)
              << "row " << i / outputs << " output " << i % outputs << " of "
              << outputs << " x " << cols;
        }
      }
    }
  }
}

TEST_P(CpuQuantizedTest, IsNearThePlainProduct) {
  const int cols = 1000;
  const int outputs = 64;
  const auto x = RandomFloats(cols, 1);
  const auto values = RandomFloats(outputs * cols, 2);
  const HostMatrix w = {DType::kF32, values.data(), outputs, cols};
  const auto exact = MatMul(*MakeBackend("reference"), x, 1, {w});
  const auto actual = MatMul(*MakeBackend("cpu", type()), x, 1, {w});
  double error = 0;
  double size = 0;
  for (int o = 0; o < outputs; ++o) {
    error += std::pow(actual[o] - exact[o], 2);
    size += std::pow(exact[o], 2);
  }
  // Uniform errors of half a step, of 1/127 and of 1/8 of the largest value.
  EXPECT_LT(std::sqrt(error / size), type() == "int8" ? 0.008 : 0.09);
  EXPECT_GT(error, 0);
}

TEST_P(CpuQuantizedTest, RowsHaveTheSameBitsInEveryBatch) {
  const auto cpu = MakeBackend("cpu", type());
  for (const int cols : {1, 63, 64, 172, 1000}) {
    for (const int outputs : {17, 344}) {
      const int max_rows = 70;  // more tiles than pass together
      const auto x = RandomFloats(static_cast<size_t>(max_rows) * cols, 1);
      const UnalignedMatrix w(
          RandomFloats(static_cast<size_t>(outputs) * cols, 2), outputs, cols,
          DType::kBF16);
      const auto packed = cpu->Pack({w.host()});
      ASSERT_TRUE(packed.ok());
      std::vector<float> alone(static_cast<size_t>(max_rows) * outputs);
      for (int row = 0; row < max_rows; ++row) {
        cpu->MatMul(x.data() + row * cols, 1, **packed,
                    alone.data() + row * outputs);
      }
      for (int rows = 2; rows <= max_rows; ++rows) {
        const int first = max_rows - rows;
        std::vector<float> together(static_cast<size_t>(rows) * outputs);
        cpu->MatMul(x.data() + first * cols, rows, **packed, together.data());
        ASSERT_EQ(std::memcmp(together.data(), alone.data() + first * outputs,
                              together.size() * sizeof(float)),
                  0)
            << rows << " rows, " << outputs << " x " << cols;
      }
    }
  }
}

TEST_P(CpuQuantizedTest, ThreadsChangeNoBit) {
  const std::vector<int> cores = AllowedCores(4);
  if (cores.size() < 2) GTEST_SKIP() << "this process has one core";
  const int rows = 20;
  const int cols = 688;
  const int outputs = 1000;
  const auto x = RandomFloats(rows * cols, 1);
  const UnalignedMatrix w(RandomFloats(outputs * cols, 2), outputs, cols,
                          DType::kBF16);
  const auto one = MatMul(*MakeBackend("cpu", type()), x, rows, {w.host()});
  const auto many =
      MatMul(*MakeBackend("cpu", type(), cores), x, rows, {w.host()});
  EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)),
            0);
}

TEST_P(CpuQuantizedTest, ActivationsAreQuantizedAsDefined) {
  const QuantizedGemmKernels kernels = ChooseQuantizedGemmKernels();
  const int count = type() == "int8" ? 64 : 32;
  for (const float magnitude : {1.0f, 1e30f, 1e-30f, 1e-38f, 0.0f}) {
    for (uint32_t seed = 0; seed < 200; ++seed) {
      const auto values = RandomFloats(count, seed, magnitude);
      std::vector<int8_t> expected(count);
      std::vector<int8_t> actual(count);
      const float scale =
          QuantizeActivations(values.data(), count, expected.data());
      ASSERT_EQ(kernels.quantize(values.data(), count, actual.data()), scale);
      ASSERT_EQ(actual, expected) << magnitude << " seed " << seed;
    }
  }
  // Halves, which round to even.
  std::vector<float> halves(count);
  for (int i = 0; i < count; ++i) halves[i] = static_cast<float>(i) - 15.5f;
  halves[count - 1] = 127.0f;
  std::vector<int8_t> expected(count);
  std::vector<int8_t> actual(count);
  QuantizeActivations(halves.data(), count, expected.data());
  kernels.quantize(halves.data(), count, actual.data());
  EXPECT_EQ(actual, expected);
}

TEST_P(CpuQuantizedTest, WhatIsNotFiniteSpoilsItsRowOnly) {
  const int cols = 100;
  const UnalignedMatrix w(RandomFloats(5 * cols, 2), 5, cols, DType::kF32);
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    auto x = RandomFloats(2 * cols, 1);
    x[99] = bad;
    const auto y = MatMul(*MakeBackend("cpu", type()), x, 2, {w.host()});
    for (int o = 0; o < 5; ++o) {
      EXPECT_TRUE(std::isnan(y[o]));
      EXPECT_TRUE(std::isfinite(y[5 + o]));
    }
  }
}

TEST_P(CpuQuantizedTest, NamesAWeightThatIsNotFinite) {
  for (const char* kind : {"cpu", "reference"}) {
    std::vector<float> values(3 * 70, 1.0f);
    values[70 + 68] = -std::numeric_limits<float>::infinity();
    const auto packed =
        MakeBackend(kind, type())
            ->Pack({HostMatrix{DType::kF32, values.data(), 3, 70}});
    ASSERT_EQ(packed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(packed.status().message(), ::testing::HasSubstr("[1, 68]"));
    EXPECT_THAT(packed.status().message(), ::testing::HasSubstr("-inf"));
  }
}

TEST_P(CpuQuantizedTest, StackedWeightsEqualTheirPartsOneByOne) {
  const int cols = 100;
  const auto x = RandomFloats(3 * cols, 1);
  const UnalignedMatrix q(RandomFloats(18 * cols, 2), 18, cols, DType::kBF16);
  const UnalignedMatrix k(RandomFloats(27 * cols, 3), 27, cols, DType::kF32);
  const auto cpu = MakeBackend("cpu", type());
  const auto both = MatMul(*cpu, x, 3, {q.host(), k.host()});
  const auto first = MatMul(*cpu, x, 3, {q.host()});
  const auto second = MatMul(*cpu, x, 3, {k.host()});
  for (int row = 0; row < 3; ++row) {
    for (int o = 0; o < 18; ++o) {
      EXPECT_EQ(both[row * 45 + o], first[row * 18 + o]);
    }
    for (int o = 0; o < 27; ++o) {
      EXPECT_EQ(both[row * 45 + 18 + o], second[row * 27 + o]);
    }
  }
}

// The numerics id does not tell a CPU with VNNI from one without: the two kinds
// of code must agree in every bit. Only AVX-512 targets use VNNI.
TEST_P(CpuQuantizedTest, CodeWithAndWithoutVnniGivesTheSameBits) {
  const int64_t target = std::get<0>(GetParam());
  if (target != HWY_AVX2 && target != HWY_AVX3 && target != HWY_AVX3_DL) {
    GTEST_SKIP() << "a target without fused multiply-adds, or not of x86";
  }
  const auto multiply = [this](int cols) {
    const int rows = 13;
    const int outputs = 100;
    const auto x = RandomFloats(static_cast<size_t>(rows) * cols, 1);
    const UnalignedMatrix w(
        RandomFloats(static_cast<size_t>(outputs) * cols, 2), outputs, cols,
        DType::kF32);
    return MatMul(*MakeBackend("cpu", type()), x, rows, {w.host()});
  };
  const std::vector<int> sizes = {1, 63, 172, 1000};
  std::vector<std::vector<float>> here;
  for (const int cols : sizes) here.push_back(multiply(cols));
  const ForcedTarget plain(HWY_AVX2);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::vector<float> there = multiply(sizes[i]);
    ASSERT_EQ(
        std::memcmp(here[i].data(), there.data(), there.size() * sizeof(float)),
        0)
        << sizes[i] << " inputs";
  }
}

TEST_P(CpuQuantizedTest, TheNumericsIdNamesTheType) {
  EXPECT_THAT(MakeBackend("cpu", type())->numerics_id(),
              ::testing::HasSubstr("-" + type()));
}

}  // namespace
}  // namespace nacre::kernels
