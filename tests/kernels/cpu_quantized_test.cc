// Products with int8 and int4 weights of the CPU backend: against the reference
// backend, the same bits in every batch, for every SIMD target of this machine.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/aligned_allocator.h"
#include "hwy/targets.h"
#include "kernels/cpu/quantized_gemm.h"
#include "kernels/cpu/quantized_matrix.h"
#include "kernels/cpu/stacked_weights.h"
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

// Byte by byte what packing one group at a time gives.
TEST_P(CpuQuantizedTest, TilesArePackedAsTheirGroups) {
  QuantizedGemmKernels kernels = ChooseQuantizedGemmKernels();
  if (kernels.pack_int8 == nullptr) GTEST_SKIP() << "packed by groups alone";
  const auto pack = [&](const std::vector<float>& x, int rows, int cols) {
    const std::vector<float> values(static_cast<size_t>(cols), 1.0f);
    const HostMatrix w = {DType::kF32, values.data(), 1, cols};
    const auto run_all = [](int count, absl::FunctionRef<void(int, int)> task) {
      task(0, count);
    };
    HostArena memory;
    const auto matrix = QuantizedMatrix::Create(
        StackedWeights({&w, 1}),
        type() == "int8" ? WeightType::kInt8 : WeightType::kInt4, kernels,
        RunRanges(run_all), &memory);
    EXPECT_TRUE(matrix.ok()) << matrix.status();
    std::vector<char> packed((*matrix)->ActivationBytes(rows));
    (*matrix)->PackActivations(x.data(), rows, 0, (*matrix)->num_tiles(rows),
                               packed.data());
    return packed;
  };
  QuantizedGemmKernels by_groups = kernels;
  by_groups.pack_int8 = by_groups.pack_int4 = nullptr;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int rows : {1, 2, 3, 4, 5, 6, 7, 11}) {
    for (const int cols : {1, 15, 31, 32, 63, 64, 100, 172, 256}) {
      for (const float magnitude : {1.0f, 1e38f, 1e-30f, 1e-38f, 0.0f}) {
        auto x = RandomFloats(rows * cols, rows + cols, magnitude);
        x[x.size() / 2] *= -3.0f;  // infinite, if it was at the end
        if (cols == 100) {
          x[7] = kInfinity;
          x[x.size() - 1] = std::numeric_limits<float>::quiet_NaN();
          x[x.size() / 3] = -kInfinity;
        }
        const auto actual = pack(x, rows, cols);
        std::swap(kernels, by_groups);
        EXPECT_EQ(actual, pack(x, rows, cols))
            << rows << " x " << cols << ", " << magnitude;
        std::swap(kernels, by_groups);
      }
    }
  }
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

// The numerics id does not tell the code that runs from the portable one.
TEST_P(CpuQuantizedTest, CodeForOneKindOfCpuGivesTheBitsOfThePortable) {
  const int64_t target = std::get<0>(GetParam());
  if (target != HWY_AVX2 && target != HWY_AVX3 && target != HWY_AVX3_DL &&
      target != HWY_NEON) {
    GTEST_SKIP() << "all code of this target is portable";
  }
  const WeightType weight_type =
      type() == "int8" ? WeightType::kInt8 : WeightType::kInt4;
  const auto run_all = [](int count, absl::FunctionRef<void(int, int)> task) {
    task(0, count);
  };
  const RunRanges run = run_all;  // which does not own it
  const auto multiply = [&](const QuantizedGemmKernels& kernels, int rows,
                            int cols) {
    const int outputs = 100;
    // Every magnitude at its largest: where 16 bits would overflow.
    auto x = RandomFloats(static_cast<size_t>(rows) * cols, 1);
    auto values = RandomFloats(static_cast<size_t>(outputs) * cols, 2);
    for (size_t i = 0; i < x.size(); i += 3) x[i] = 1;
    for (size_t i = 0; i < values.size() / 2; ++i) {
      values[i] = i / cols % 2 == 0 ? 1.0f : -1.0f;
    }
    const HostMatrix w = {DType::kF32, values.data(), outputs, cols};
    HostArena memory;
    const auto matrix = QuantizedMatrix::Create(
        StackedWeights({&w, 1}), weight_type, kernels, run, &memory);
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
  const QuantizedGemmKernels portable = PortableQuantizedGemmKernels();
  std::vector<QuantizedGemmKernels> others = {ChooseQuantizedGemmKernels()};
  EXPECT_NE(others[0].multiply_int8, portable.multiply_int8);
  EXPECT_NE(others[0].multiply_int4, portable.multiply_int4);
  // What a CPU with less would choose.
  if (target != HWY_AVX2) {
    others.push_back(portable);
    ASSERT_TRUE(target == HWY_NEON ? UseNeonKernels(&others.back())
                                   : UseAvx2Kernels(&others.back()));
  }
  for (const int rows : {1, 2, 3, 4, 5, 6, 13}) {
    for (const int cols : {1, 63, 172, 1000}) {
      const std::vector<float> expected = multiply(portable, rows, cols);
      for (const QuantizedGemmKernels& kernels : others) {
        const std::vector<float> actual = multiply(kernels, rows, cols);
        ASSERT_EQ(std::memcmp(actual.data(), expected.data(),
                              expected.size() * sizeof(float)),
                  0)
            << rows << " rows of " << cols << " inputs";
      }
    }
  }
}

TEST_P(CpuQuantizedTest, WeightsAreQuantizedAsDefined) {
  const WeightType weight_type =
      type() == "int8" ? WeightType::kInt8 : WeightType::kInt4;
  const auto quantize = weight_type == WeightType::kInt8
                            ? ChooseQuantizedGemmKernels().weights_int8
                            : ChooseQuantizedGemmKernels().weights_int4;
  const int group = QuantizedGroupSize(weight_type);
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::vector<float> values = RandomFloats(group, seed);
    const float unit = std::ldexp(1.0f, static_cast<int>(seed % 290) - 160);
    for (float& value : values) {
      if (seed % 3 == 0) value = std::round(value * 4) / 4;  // ties
      value *= unit;  // down to zeros, up to 2^129
    }
    const bool is_finite =
        std::all_of(values.begin(), values.end(),
                    [](float value) { return std::isfinite(value); });
    if (!is_finite) continue;
    std::vector<int8_t> expected(group);
    std::vector<int8_t> actual(group, 99);
    const float expected_scale =
        QuantizeWeights(values.data(), weight_type, expected.data());
    ASSERT_EQ(quantize(values.data(), actual.data()), expected_scale) << seed;
    ASSERT_EQ(actual, expected) << "seed " << seed;
  }
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (int i = 0; i < group; ++i) {
      std::vector<float> values = RandomFloats(group, 1);
      values[i] = bad;
      std::vector<int8_t> integers(group);
      EXPECT_TRUE(std::isnan(quantize(values.data(), integers.data())))
          << bad << " at " << i;
    }
  }
}

TEST_P(CpuQuantizedTest, TheNumericsIdNamesTheType) {
  EXPECT_THAT(MakeBackend("cpu", type())->numerics_id(),
              ::testing::HasSubstr("-" + type()));
}

}  // namespace
}  // namespace nacre::kernels
