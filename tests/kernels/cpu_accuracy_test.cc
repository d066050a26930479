// Every op of the CPU backend against the reference backend, for every SIMD
// target of this machine.

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/weight_type.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels {
namespace {

using CpuAccuracyTest = EveryTargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, CpuAccuracyTest,
                         ::testing::ValuesIn(SupportedSimdTargets()),
                         SimdTargetName);

std::vector<float> MatMul(Backend& backend, const std::vector<float>& x,
                          int rows, absl::Span<const HostMatrix> parts) {
  const auto packed = backend.Pack(parts);
  EXPECT_TRUE(packed.ok()) << packed.status();
  std::vector<float> y(static_cast<size_t>(rows) * (*packed)->rows(), NAN);
  backend.MatMul(x.data(), rows, **packed, y.data());
  return y;
}

// Compares with the bound that the magnitudes of the products allow.
void ExpectMatMulsAgree(Backend& cpu, const std::vector<float>& x, int rows,
                        const HostMatrix& w,
                        const std::vector<float>& magnitudes) {
  const auto reference = MakeBackend("reference");
  const std::vector<float> expected = MatMul(*reference, x, rows, {&w, 1});
  const std::vector<float> actual = MatMul(cpu, x, rows, {&w, 1});
  ASSERT_EQ(actual.size(), expected.size());
  const double tolerance = SumTolerance(w.cols);
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * magnitudes[i] + 1e-38)
        << "row " << i / w.rows << " output " << i % w.rows << " of " << w.rows
        << " x " << w.cols;
  }
}

// sum_k |x[i, k]| |w[o, k]| for every output element.
std::vector<float> Magnitudes(std::vector<float> x, int rows,
                              const UnalignedMatrix& w) {
  const HostMatrix host = w.host();
  const size_t count = static_cast<size_t>(host.rows) * host.cols;
  std::vector<float> absolute(count);
  for (size_t i = 0; i < count; ++i) absolute[i] = std::fabs(w.value(i));
  for (float& value : x) value = std::fabs(value);
  const HostMatrix matrix = {DType::kF32, absolute.data(), host.rows,
                             host.cols};
  return MatMul(*MakeBackend("reference"), x, rows, {&matrix, 1});
}

void ExpectMatMulAccurate(int cols, int outputs, DType dtype,
                          const std::string& weights, float x_magnitude) {
  SCOPED_TRACE(testing::Message() << "cols " << cols << " outputs " << outputs
                                  << " weights " << weights);
  const auto x =
      RandomFloats(static_cast<size_t>(kMaxRows) * cols, 1, x_magnitude);
  const UnalignedMatrix w(RandomFloats(static_cast<size_t>(outputs) * cols, 2),
                          outputs, cols, dtype);
  const auto cpu = MakeBackend("cpu", weights);
  ExpectMatMulsAgree(*cpu, x, kMaxRows, w.host(), Magnitudes(x, kMaxRows, w));
}

TEST_P(CpuAccuracyTest, MatMulOfF32WeightsAgreesOnAwkwardSizes) {
  for (const int cols : kAwkwardSizes) {
    for (const int outputs : kAwkwardSizes) {
      ExpectMatMulAccurate(cols, outputs, DType::kF32, "auto", 1.0f);
    }
  }
}

TEST_P(CpuAccuracyTest, MatMulOfBF16WeightsAgreesOnAwkwardSizes) {
  for (const int cols : kAwkwardSizes) {
    for (const int outputs : kAwkwardSizes) {
      ExpectMatMulAccurate(cols, outputs, DType::kBF16, "auto", 1.0f);
    }
  }
}

TEST_P(CpuAccuracyTest, MatMulOfF16WeightsIsExactInTheWeights) {
  ExpectMatMulAccurate(17, 3, DType::kF16, "auto", 1.0f);
  ExpectMatMulAccurate(33, 5, DType::kF16, "f32", 1.0f);
}

TEST_P(CpuAccuracyTest, MatMulKeepsLargeAndDenormalValues) {
  for (const float magnitude : {1e30f, 1e-40f}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      ExpectMatMulAccurate(172, 17, dtype, "auto", magnitude);
    }
  }
}

TEST_P(CpuAccuracyTest, MatMulOfDenormalWeightsKeepsThem) {
  const auto x = RandomFloats(64, 1, 1e6f);
  const UnalignedMatrix w(RandomFloats(5 * 64, 2, 1e-40f), 5, 64, DType::kBF16);
  const auto cpu = MakeBackend("cpu");
  ExpectMatMulsAgree(*cpu, x, 1, w.host(), Magnitudes(x, 1, w));
  EXPECT_NE(MatMul(*cpu, x, 1, {w.host()})[0], 0.0f);
}

TEST_P(CpuAccuracyTest, Bf16OptionRoundsWeightsAsTheReferenceDoes) {
  const int cols = 100;
  const auto x = RandomFloats(cols, 1);
  const auto values = RandomFloats(7 * cols, 2);
  const UnalignedMatrix rounded(values, 7, cols, DType::kBF16);
  const HostMatrix exact = {DType::kF32, values.data(), 7, cols};
  const auto cpu = MakeBackend("cpu", "bf16");
  EXPECT_EQ(MatMul(*cpu, x, 1, {exact}), MatMul(*cpu, x, 1, {rounded.host()}));
  const auto reference = MakeBackend("reference", "bf16");
  EXPECT_EQ(MatMul(*reference, x, 1, {exact}),
            MatMul(*reference, x, 1, {rounded.host()}));
}

TEST_P(CpuAccuracyTest, WideningBF16WeightsChangesNoBit) {
  for (const int cols : kAwkwardSizes) {
    const auto x = RandomFloats(5 * cols, 1);
    const UnalignedMatrix w(RandomFloats(17 * cols, 2), 17, cols, DType::kBF16);
    EXPECT_EQ(MatMul(*MakeBackend("cpu", "auto"), x, 5, {w.host()}),
              MatMul(*MakeBackend("cpu", "f32"), x, 5, {w.host()}));
  }
}

TEST_P(CpuAccuracyTest, StackedWeightsEqualTheirPartsOneByOne) {
  const int cols = 100;
  const auto x = RandomFloats(3 * cols, 1);
  const UnalignedMatrix q(RandomFloats(18 * cols, 2), 18, cols, DType::kBF16);
  const UnalignedMatrix k(RandomFloats(7 * cols, 3), 7, cols, DType::kF32);
  const auto cpu = MakeBackend("cpu");
  const auto both = MatMul(*cpu, x, 3, {q.host(), k.host()});
  const auto first = MatMul(*cpu, x, 3, {q.host()});
  const auto second = MatMul(*cpu, x, 3, {k.host()});
  for (int row = 0; row < 3; ++row) {
    for (int o = 0; o < 18; ++o) {
      EXPECT_EQ(both[row * 25 + o], first[row * 18 + o]);
    }
    for (int o = 0; o < 7; ++o) {
      EXPECT_EQ(both[row * 25 + 18 + o], second[row * 7 + o]);
    }
  }
}

TEST_P(CpuAccuracyTest, InfiniteInputsDoNotMeetThePadding) {
  // 17 inputs and 3 outputs: blocks and panels are padded. inf * 0 is NaN.
  std::vector<float> x(17, INFINITY);
  const UnalignedMatrix w(std::vector<float>(3 * 17, 1.0f), 3, 17,
                          DType::kBF16);
  EXPECT_THAT(MatMul(*MakeBackend("cpu"), x, 1, {w.host()}),
              ::testing::Each(INFINITY));
}

TEST_P(CpuAccuracyTest, EmbedCopiesRowsOfEveryType) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const int cols = 19;
    const UnalignedMatrix table(RandomFloats(11 * cols, 5), 11, cols, dtype);
    const std::vector<int32_t> ids = {10, 0, 3, 3};
    std::vector<float> out(ids.size() * cols, NAN);
    const auto cpu = MakeBackend("cpu");
    const auto packed = cpu->PackTable(table.host());
    ASSERT_TRUE(packed.ok());
    cpu->Embed(**packed, ids, out.data());
    for (size_t i = 0; i < ids.size(); ++i) {
      for (int j = 0; j < cols; ++j) {
        EXPECT_EQ(out[i * cols + j], table.value(ids[i] * cols + j));
      }
    }
  }
}

TEST_P(CpuAccuracyTest, RmsNormAgreesOnAwkwardSizes) {
  const auto reference = MakeBackend("reference");
  const auto cpu = MakeBackend("cpu");
  for (const int cols : kAwkwardSizes) {
    for (const float magnitude : {1e-30f, 1.0f, 1e15f}) {
      const size_t count = static_cast<size_t>(kMaxRows) * cols;
      const auto x = RandomFloats(count, 3, magnitude);
      const auto weight = RandomFloats(cols, 4);
      std::vector<float> expected(count, NAN);
      std::vector<float> actual(count, NAN);
      reference->RmsNorm(x.data(), kMaxRows, cols, weight.data(), 1e-5f,
                         expected.data());
      cpu->RmsNorm(x.data(), kMaxRows, cols, weight.data(), 1e-5f,
                   actual.data());
      for (size_t i = 0; i < count; ++i) {
        ASSERT_NEAR(actual[i], expected[i],
                    SumTolerance(cols) * std::fabs(expected[i]) + 1e-42)
            << "cols " << cols << " magnitude " << magnitude;
      }
    }
  }
}

TEST_P(CpuAccuracyTest, RmsNormWorksInPlace) {
  const auto cpu = MakeBackend("cpu");
  auto x = RandomFloats(2 * 100, 3);
  const auto weight = RandomFloats(100, 4);
  std::vector<float> apart(x.size());
  cpu->RmsNorm(x.data(), 2, 100, weight.data(), 1e-5f, apart.data());
  cpu->RmsNorm(x.data(), 2, 100, weight.data(), 1e-5f, x.data());
  EXPECT_EQ(x, apart);
}

TEST_P(CpuAccuracyTest, RopeAgreesAndLeavesTheRestOfTheRowAlone) {
  const auto reference = MakeBackend("reference");
  const auto cpu = MakeBackend("cpu");
  for (const int head_dim : {2, 6, 48, 64, 80, 128}) {
    const int rows = 5;
    const int heads = 3;
    const int stride = heads * head_dim + 7;
    auto expected = RandomFloats(rows * stride, 6);
    auto actual = expected;
    const auto cos = RandomFloats(rows * head_dim / 2, 7);
    const auto sin = RandomFloats(rows * head_dim / 2, 8);
    reference->Rope(expected.data(), rows, stride, heads, head_dim, cos.data(),
                    sin.data());
    cpu->Rope(actual.data(), rows, stride, heads, head_dim, cos.data(),
              sin.data());
    for (int i = 0; i < rows * stride; ++i) {
      const bool is_gap = i % stride >= heads * head_dim;
      ASSERT_NEAR(actual[i], expected[i], is_gap ? 0.0 : 2 * 0x1p-23)
          << "head_dim " << head_dim << " element " << i;
    }
  }
}

TEST_P(CpuAccuracyTest, SiluMulAgreesFromEndToEnd) {
  const auto reference = MakeBackend("reference");
  const auto cpu = MakeBackend("cpu");
  for (const int cols : kAwkwardSizes) {
    for (const float magnitude : {1e-40f, 1.0f, 20.0f, 200.0f, 1e30f}) {
      const auto gate_up = RandomFloats(3 * 2 * cols, 9, magnitude);
      std::vector<float> expected(3 * cols, NAN);
      std::vector<float> actual(3 * cols, NAN);
      reference->SiluMul(gate_up.data(), 3, cols, expected.data());
      cpu->SiluMul(gate_up.data(), 3, cols, actual.data());
      for (int i = 0; i < 3 * cols; ++i) {
        if (std::isinf(expected[i])) {
          ASSERT_EQ(actual[i], expected[i]);
          continue;
        }
        // Gates below -88 give the tiniest of gates instead of 0.
        ASSERT_NEAR(actual[i], expected[i],
                    16 * 0x1p-24 * std::fabs(expected[i]) +
                        1e-37 * magnitude * magnitude)
            << "cols " << cols << " magnitude " << magnitude;
      }
    }
  }
}

TEST_P(CpuAccuracyTest, AddInPlaceIsTheExactSum) {
  for (const int count : kAwkwardSizes) {
    auto x = RandomFloats(count, 10);
    const auto y = RandomFloats(count, 11);
    auto expected = x;
    for (int i = 0; i < count; ++i) expected[i] += y[i];
    MakeBackend("cpu")->AddInPlace(x.data(), y.data(), count);
    EXPECT_EQ(x, expected);
  }
}

// Enough of them to be divided among threads, and more than whole pieces.
TEST_P(CpuAccuracyTest, EachOfManyElementsIsComputedAsAlone) {
  constexpr int kCount = 20 * 1024 + 7;
  const auto cpu = MakeBackend("cpu", "auto", AllowedCores(2));
  const auto before = RandomFloats(kCount, 15);
  const auto y = RandomFloats(kCount, 16);
  auto added = before, scaled = before, capped = before;
  cpu->AddInPlace(added.data(), y.data(), kCount);
  cpu->Scale(scaled.data(), kCount, 0.3f);
  cpu->SoftCap(capped.data(), kCount, 0.5f);
  for (int i = 0; i < kCount; ++i) {
    ASSERT_EQ(added[i], before[i] + y[i]) << i;
    ASSERT_EQ(scaled[i], before[i] * 0.3f) << i;
    float alone = before[i];
    cpu->SoftCap(&alone, 1, 0.5f);
    ASSERT_EQ(capped[i], alone) << i;
  }
}

TEST_P(CpuAccuracyTest, PartsAreAddedInPairsOfNeighbours) {
  for (const int count : kAwkwardSizes) {
    for (const int num_parts : {1, 2, 4, 8}) {
      auto parts = RandomFloats(num_parts * count, 14);
      const auto expected = SumOfPairs(parts, num_parts);
      std::vector<float> sum(count, NAN);
      MakeBackend("cpu")->AddParts(parts.data(), num_parts, count, sum.data());
      EXPECT_EQ(sum, expected) << num_parts << " parts of " << count;
    }
  }
}

TEST_P(CpuAccuracyTest, AddBiasIsTheExactSumOfEveryRow) {
  for (const int cols : kAwkwardSizes) {
    for (const int rows : {1, 3, 40}) {
      auto x = RandomFloats(rows * cols, 12);
      const auto bias = RandomFloats(cols, 13);
      auto expected = x;
      for (int i = 0; i < rows * cols; ++i) expected[i] += bias[i % cols];
      MakeBackend("cpu")->AddBias(x.data(), rows, cols, bias.data());
      EXPECT_EQ(x, expected) << rows << " rows of " << cols;
    }
  }
}

TEST_P(CpuAccuracyTest, GatheredRowsAreThoseOfTheNumbers) {
  for (const int cols : {1, 17, 300}) {
    const auto x = RandomFloats(7 * cols, 20);
    const std::vector<int32_t> rows = {6, 0, 3, 3, 5};
    std::vector<float> actual(rows.size() * cols, NAN);
    MakeBackend("cpu")->GatherRows(x.data(), rows, cols, actual.data());
    for (size_t i = 0; i < rows.size(); ++i) {
      for (int j = 0; j < cols; ++j) {
        ASSERT_EQ(actual[i * cols + j], x[rows[i] * cols + j]) << i << " " << j;
      }
    }
  }
}

// Each product is rounded, and added to zero in the order of the parts.
TEST_P(CpuAccuracyTest, CombinedRowsAreTheExactSumsOfTheirParts) {
  for (const int parts : {1, 2, 3}) {
    for (const int cols : {1, 17, 300}) {
      const std::vector<int32_t> rows = parts == 2
                                            ? std::vector<int32_t>{3, 0, 1, 2}
                                            : std::vector<int32_t>{2, 0, 1};
      auto y = RandomFloats(static_cast<int>(rows.size()) * cols, 21);
      const auto weights = RandomFloats(static_cast<int>(rows.size()), 22);
      y[0] = -0.0f;
      std::vector<float> expected(rows.size() / parts * cols);
      for (size_t i = 0; i < rows.size(); ++i) {
        for (int j = 0; j < cols; ++j) {
          const float part = y[rows[i] * cols + j] * weights[i];
          expected[i / parts * cols + j] += part;
        }
      }
      std::vector<float> actual(expected.size(), NAN);
      MakeBackend("cpu")->CombineRows(y.data(), rows, weights, parts, cols,
                                      actual.data());
      EXPECT_EQ(actual, expected) << parts << " parts of " << cols;
    }
  }
}

TEST_P(CpuAccuracyTest, StoreKvWritesOnlyTheRowsOwnSlots) {
  for (const DType type : kKvTypes) {
    for (const int head_dim : {2, 20, 64, 66, 80, 128}) {
      for (const int block_size : {5, 16}) {
        const PagedCache::Shape shape = {2, 40, 3, block_size, head_dim, type};
        const PagedCache expected(shape, 33);
        const PagedCache actual(shape, 33);
        const int stride = 3 * head_dim + 5;
        std::vector<float> k = RandomFloats(9 * stride, 34, 1e3f);
        const std::vector<float> v = RandomFloats(9 * stride, 35, 1e-3f);
        k[0] = NAN;
        k[1] = INFINITY;
        std::vector<RowContext> expected_rows;
        std::vector<RowContext> actual_rows;
        for (int row = 0; row < 9; ++row) {
          expected_rows.push_back(expected.Row(row % 2, 4 * row + 3));
          actual_rows.push_back(actual.Row(row % 2, 4 * row + 3));
        }
        MakeBackend("reference")
            ->StoreKv(k.data(), v.data(), stride, expected_rows,
                      expected.layer());
        MakeBackend("cpu")->StoreKv(k.data(), v.data(), stride, actual_rows,
                                    actual.layer());
        EXPECT_EQ(actual.words(), expected.words())
            << "head_dim " << head_dim << " block_size " << block_size;
        EXPECT_NE(actual.words(), PagedCache(shape, 33).words());
      }
    }
  }
}

void ExpectAttentionAccurate(int head_dim, int heads_per_kv_head,
                             int block_size, float q_magnitude, DType type) {
  SCOPED_TRACE(testing::Message()
               << "head_dim " << head_dim << " queries a KV head "
               << heads_per_kv_head << " block_size " << block_size << " "
               << KvTypeName(type));
  const int num_heads = 2 * heads_per_kv_head;
  const PagedCache cache({2, 200, 2, block_size, head_dim, type}, 30);
  std::vector<RowContext> rows;
  for (const int position :
       {0, 1, 3, 15, 16, 17, 62, 63, 64, 65, 127, 128, 130, 199}) {
    rows.push_back(cache.Row(static_cast<int>(rows.size()) % 2, position));
  }
  const int stride = num_heads * head_dim + 9;
  const auto q = RandomFloats(rows.size() * stride, 31, q_magnitude);
  std::vector<float> expected(rows.size() * num_heads * head_dim, NAN);
  std::vector<float> actual(expected.size(), NAN);
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  MakeBackend("reference")
      ->Attention(q.data(), stride, num_heads, scale, rows, cache.layer(),
                  expected.data());
  MakeBackend("cpu")->Attention(q.data(), stride, num_heads, scale, rows,
                                cache.layer(), actual.data());
  // Values lie in [-1, 1]. An error of a score is a relative one of its weight.
  const double score = q_magnitude * std::sqrt(head_dim);
  const double tolerance =
      SumTolerance(200) + 2 * score * SumTolerance(head_dim);
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance)
        << "position " << rows[i / (num_heads * head_dim)].position;
  }
}

TEST_P(CpuAccuracyTest, AttentionAgreesAcrossHeadShapesAndBlockBorders) {
  for (const DType type : kKvTypes) {
    for (const int head_dim : {2, 20, 48, 64, 80, 96, 128, 200, 512}) {
      for (const int heads_per_kv_head : {1, 2, 3, 4, 7}) {
        ExpectAttentionAccurate(head_dim, heads_per_kv_head, 16, 1.0f, type);
      }
    }
    for (const int block_size : {1, 5, 24, 32, 64, 256}) {
      ExpectAttentionAccurate(64, 2, block_size, 1.0f, type);
      ExpectAttentionAccurate(80, 2, block_size, 1.0f, type);
    }
  }
  for (const int head_dim : {1, 5, 63, 67}) {
    ExpectAttentionAccurate(head_dim, 2, 16, 1.0f, DType::kF32);
    ExpectAttentionAccurate(head_dim, 2, 16, 1.0f, DType::kInt8);
  }
}

TEST_P(CpuAccuracyTest, AttentionStaysFiniteForLargeScores) {
  ExpectAttentionAccurate(64, 2, 16, 100.0f, DType::kF32);
  ExpectAttentionAccurate(64, 2, 16, 100.0f, DType::kBF16);
  ExpectAttentionAccurate(64, 2, 16, 100.0f, DType::kInt8);
}

// bf16 is float32 of rounded values: nothing else may differ.
TEST_P(CpuAccuracyTest, AttentionOverBF16IsThatOverTheRoundedValues) {
  const auto cpu = MakeBackend("cpu");
  for (const int head_dim : {2, 64, 80, 128}) {
    const int positions = 150;
    const size_t width = static_cast<size_t>(head_dim);
    const auto k = RandomFloats(positions * width, 36);
    const auto v = RandomFloats(positions * width, 37);
    std::vector<float> rounded_k;
    std::vector<float> rounded_v;
    for (const float x : k) rounded_k.push_back(FromBF16(ToBF16(x)));
    for (const float x : v) rounded_v.push_back(FromBF16(ToBF16(x)));
    const PagedCache bf16({1, positions, 1, 16, head_dim, DType::kBF16}, 38);
    const PagedCache f32({1, positions, 1, 16, head_dim, DType::kF32}, 38);
    std::vector<RowContext> rows;
    for (int p = 0; p < positions; ++p) rows.push_back(bf16.Row(0, p));
    cpu->StoreKv(k.data(), v.data(), head_dim, rows, bf16.layer());
    cpu->StoreKv(rounded_k.data(), rounded_v.data(), head_dim, rows,
                 f32.layer());
    const auto q = RandomFloats(positions * width, 39);
    std::vector<float> expected(positions * width);
    std::vector<float> actual(positions * width);
    cpu->Attention(q.data(), head_dim, 1, 0.3f, rows, f32.layer(),
                   expected.data());
    cpu->Attention(q.data(), head_dim, 1, 0.3f, rows, bf16.layer(),
                   actual.data());
    EXPECT_EQ(actual, expected) << "head_dim " << head_dim;
  }
}

}  // namespace
}  // namespace nacre::kernels
