// Every op of the cuda backend against the reference, on awkward sizes: on the
// emulated device, and on a GPU where there is one.

#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/fp8.h"
#include "kernels/quantization.h"
#include "tests/kernels/cuda/host_view.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

std::vector<float> RoundedToBF16(std::vector<float> values) {
  for (float& value : values) value = FromBF16(ToBF16(value));
  return values;
}

std::vector<float> MatMul(Backend& backend, const std::vector<float>& x,
                          int rows, absl::Span<const HostMatrix> parts) {
  const auto packed = backend.Pack(parts);
  EXPECT_TRUE(packed.ok()) << packed.status();
  std::vector<float> y(static_cast<size_t>(rows) * (*packed)->rows(), NAN);
  backend.MatMul(x.data(), rows, **packed, y.data());
  return y;
}

// Sizes that are no multiple of a vector, a tile or a block of inputs.
const std::vector<int> kCols = {1, 3, 17, 64, 100, 344, 1000};
constexpr int kRows = 19;  // more than a pass over the weights takes

TEST(CudaBackendTest, MatMulAgreesOnAwkwardSizes) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  const auto reference = MakeBackend("reference");
  for (const int cols : kCols) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      if (dtype == DType::kF16 && cols > 100) continue;  // slow to make
      const int outputs = cols == 344 ? 40 : 17;
      const auto x = RandomFloats(static_cast<size_t>(kRows) * cols, 1);
      const UnalignedMatrix w(
          RandomFloats(static_cast<size_t>(outputs) * cols, 2), outputs, cols,
          dtype);
      const auto expected =
          MatMul(*reference, dtype == DType::kBF16 ? RoundedToBF16(x) : x,
                 kRows, {w.host()});
      const auto actual = MatMul(*cuda, x, kRows, {w.host()});
      for (size_t i = 0; i < actual.size(); ++i) {
        // Magnitudes of at most 1; tensor cores may cut where others round.
        ASSERT_NEAR(actual[i], expected[i], 4 * cols * SumTolerance(cols))
            << "cols " << cols << " element " << i;
      }
    }
  }
}

// Quantizes [rows, cols] and back, as int8 weights are on every backend.
void ThroughInt8(int cols, std::vector<float>* values) {
  const size_t width = static_cast<size_t>(cols);
  for (size_t row = 0; row < values->size(); row += width) {
    for (size_t first = 0; first < width; first += 64) {
      const size_t count = std::min<size_t>(64, width - first);
      float* const from = values->data() + row + first;
      float group[64] = {};
      std::copy_n(from, count, group);
      int8_t integers[64];
      const float scale = QuantizeWeights(group, WeightType::kInt8, integers);
      for (size_t i = 0; i < count; ++i) from[i] = integers[i] * scale;
    }
  }
}

// E4M3, a scale a row.
void ThroughFp8(int cols, std::vector<float>* values) {
  const size_t width = static_cast<size_t>(cols);
  for (size_t row = 0; row < values->size(); row += width) {
    float* const from = values->data() + row;
    float largest = 0;
    for (size_t i = 0; i < width; ++i) {
      largest = std::max(largest, std::fabs(from[i]));
    }
    const float scale = largest / 448;
    for (size_t i = 0; i < width; ++i) {
      from[i] = cuda::FromE4m3(cuda::ToE4m3(from[i] / scale)) * scale;
    }
  }
}

// Weights are the quantized ones; activations stay bf16.
void ExpectQuantizedProducts(const char* weights,
                             void (*quantize)(int, std::vector<float>*)) {
  const auto cuda = MakeCudaBackend(weights);
  NACRE_SKIP_WITHOUT_GPU(cuda);
  const auto reference = MakeBackend("reference");
  for (const int cols : {1, 64, 100, 344}) {
    const int outputs = 35;
    const auto x = RandomFloats(static_cast<size_t>(kRows) * cols, 1);
    const auto values = RandomFloats(static_cast<size_t>(outputs) * cols, 2);
    auto quantized = values;
    quantize(cols, &quantized);
    const UnalignedMatrix w(quantized, outputs, cols, DType::kF32);
    const auto expected =
        MatMul(*reference, RoundedToBF16(x), kRows, {w.host()});
    // In parts, which cut a tile of outputs.
    const UnalignedMatrix first({values.begin(), values.begin() + 18 * cols},
                                18, cols, DType::kF32);
    const UnalignedMatrix second({values.begin() + 18 * cols, values.end()},
                                 outputs - 18, cols, DType::kF32);
    const auto actual = MatMul(*cuda, x, kRows, {first.host(), second.host()});
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 4 * cols * SumTolerance(cols))
          << weights << ", cols " << cols << " element " << i;
    }
  }
}

TEST(CudaBackendTest, Int8WeightsAreThoseOfEveryBackend) {
  ExpectQuantizedProducts("int8", ThroughInt8);
}

TEST(CudaBackendTest, Fp8WeightsHaveAScaleARow) {
  ExpectQuantizedProducts("fp8", ThroughFp8);
}

TEST(CudaBackendTest, RefusesToQuantizeWhatIsNotFinite) {
  for (const char* weights : {"int8", "fp8"}) {
    const auto cuda = MakeCudaBackend(weights);
    NACRE_SKIP_WITHOUT_GPU(cuda);
    std::vector<float> values(20 * 3, 1.0f);
    values[17 * 3 + 2] = NAN;
    const UnalignedMatrix w(values, 20, 3, DType::kF32);
    const absl::Status status = cuda->Pack({w.host()}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("weight [17, 2] is nan"));
  }
}

TEST(CudaBackendTest, WeightTypesAreThoseAsked) {
  if (MakeCudaBackend() == nullptr) GTEST_SKIP() << "no CUDA device";
  // 1 + 2^-10 is no bf16; its product with itself tells which rounded.
  const std::vector<float> ones(64, 1.0009765625f);
  const UnalignedMatrix f32(ones, 1, 64, DType::kF32);
  const UnalignedMatrix bf16(ones, 1, 64, DType::kBF16);
  const auto product = [&](const char* weights, const UnalignedMatrix& w) {
    return MatMul(*MakeCudaBackend(weights), ones, 1, {w.host()})[0] / 64;
  };
  const float both = 1.0009765625f * 1.0009765625f;
  EXPECT_FLOAT_EQ(product("auto", f32), both);
  EXPECT_FLOAT_EQ(product("f32", f32), both);
  EXPECT_FLOAT_EQ(product("f32", bf16), 1.0009765625f);
  EXPECT_FLOAT_EQ(product("auto", bf16), 1.0f);
  EXPECT_FLOAT_EQ(product("bf16", f32), 1.0f);
}

TEST(CudaBackendTest, StackedPartsAreTheirProductsSideBySide) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto x = RandomFloats(3 * 100, 1);
    const UnalignedMatrix q(RandomFloats(18 * 100, 2), 18, 100, dtype);
    const UnalignedMatrix k(RandomFloats(7 * 100, 3), 7, 100, dtype);
    const auto both = MatMul(*cuda, x, 3, {q.host(), k.host()});
    const auto first = MatMul(*cuda, x, 3, {q.host()});
    const auto second = MatMul(*cuda, x, 3, {k.host()});
    for (int row = 0; row < 3; ++row) {
      for (int o = 0; o < 25; ++o) {
        const float expected =
            o < 18 ? first[row * 18 + o] : second[row * 7 + o - 18];
        EXPECT_EQ(both[row * 25 + o], expected);
      }
    }
  }
}

TEST(CudaBackendTest, InfiniteInputsDoNotMeetThePadding) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  const std::vector<float> x(17, INFINITY);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const UnalignedMatrix w(std::vector<float>(3 * 17, 1.0f), 3, 17, dtype);
    EXPECT_THAT(MatMul(*cuda, x, 1, {w.host()}), Each(INFINITY));
  }
}

TEST(CudaBackendTest, EmbedCopiesRowsOfEveryType) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int cols : {19, 260}) {
      const UnalignedMatrix table(RandomFloats(11 * cols, 5), 11, cols, dtype);
      const auto packed = cuda->PackTable(table.host());
      ASSERT_TRUE(packed.ok());
      EXPECT_EQ((*packed)->rows(), 11);
      EXPECT_EQ((*packed)->cols(), cols);
      const std::vector<int32_t> ids = {10, 0, 3, 3};
      std::vector<float> out(ids.size() * cols, NAN);
      cuda->Embed(**packed, ids, out.data());
      for (size_t i = 0; i < out.size(); ++i) {
        EXPECT_EQ(out[i], table.value(ids[i / cols] * cols + i % cols));
      }
    }
  }
}

TEST(CudaBackendTest, RmsNormAgreesOnAwkwardSizes) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  const auto reference = MakeBackend("reference");
  for (const int cols : {1, 3, 17, 100, 344, 1000, 1028}) {
    for (const float magnitude : {1e-30f, 1.0f, 1e15f}) {
      const size_t count = 3 * static_cast<size_t>(cols);
      const auto x = RandomFloats(count, 3, magnitude);
      const auto weight = RandomFloats(cols, 4);
      std::vector<float> expected(count, NAN);
      std::vector<float> actual(count, NAN);
      reference->RmsNorm(x.data(), 3, cols, weight.data(), 1e-5f,
                         expected.data());
      cuda->RmsNorm(x.data(), 3, cols, weight.data(), 1e-5f, actual.data());
      for (size_t i = 0; i < count; ++i) {
        ASSERT_NEAR(actual[i], expected[i],
                    SumTolerance(cols) * std::fabs(expected[i]) + 1e-42)
            << "cols " << cols << " magnitude " << magnitude;
      }
      auto in_place = x;
      cuda->RmsNorm(in_place.data(), 3, cols, weight.data(), 1e-5f,
                    in_place.data());
      EXPECT_EQ(in_place, actual);
    }
  }
}

TEST(CudaBackendTest, RopeAgreesAndLeavesTheRestOfTheRowAlone) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  const auto reference = MakeBackend("reference");
  for (const int head_dim : {2, 6, 80, 128}) {
    const int heads = 5;
    const int stride = heads * head_dim + 7;
    auto expected = RandomFloats(4 * stride, 6);
    auto actual = expected;
    const auto cos = RandomFloats(4 * head_dim / 2, 7);
    const auto sin = RandomFloats(4 * head_dim / 2, 8);
    reference->Rope(expected.data(), 4, stride, heads, head_dim, cos.data(),
                    sin.data());
    cuda->Rope(actual.data(), 4, stride, heads, head_dim, cos.data(),
               sin.data());
    for (int i = 0; i < 4 * stride; ++i) {
      const bool is_gap = i % stride >= heads * head_dim;
      ASSERT_NEAR(actual[i], expected[i], is_gap ? 0.0 : 2 * 0x1p-23)
          << "head_dim " << head_dim << " element " << i;
    }
  }
}

TEST(CudaBackendTest, SiluMulAgreesFromEndToEnd) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  const auto reference = MakeBackend("reference");
  for (const int cols : {1, 17, 300}) {
    for (const float magnitude : {1e-40f, 1.0f, 20.0f, 200.0f, 1e30f}) {
      const auto gate_up = RandomFloats(3 * 2 * cols, 9, magnitude);
      std::vector<float> expected(3 * cols, NAN);
      std::vector<float> actual(3 * cols, NAN);
      reference->SiluMul(gate_up.data(), 3, cols, expected.data());
      cuda->SiluMul(gate_up.data(), 3, cols, actual.data());
      for (int i = 0; i < 3 * cols; ++i) {
        if (std::isinf(expected[i])) {
          ASSERT_EQ(actual[i], expected[i]);
          continue;
        }
        // Gates below -88 give a gate of 0.
        ASSERT_NEAR(actual[i], expected[i],
                    16 * 0x1p-24 * std::fabs(expected[i]) +
                        1e-37 * magnitude * magnitude)
            << "cols " << cols << " magnitude " << magnitude;
      }
    }
  }
  const std::vector<float> gate_up = {NAN, INFINITY, 2, 1, 3, NAN};
  std::vector<float> out(3);
  cuda->SiluMul(gate_up.data(), 1, 3, out.data());
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(out[1], INFINITY);
  EXPECT_TRUE(std::isnan(out[2]));
}

TEST(CudaBackendTest, AddInPlaceIsTheExactSum) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  for (const int count : {1, 17, 256, 1000}) {
    auto x = RandomFloats(count, 10);
    const auto y = RandomFloats(count, 11);
    auto expected = x;
    for (int i = 0; i < count; ++i) expected[i] += y[i];
    cuda->AddInPlace(x.data(), y.data(), count);
    EXPECT_EQ(x, expected);
  }
}

TEST(CudaBackendTest, PartsAreAddedInPairsOfNeighbours) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  for (const int count : {1, 17, 256, 1000}) {
    for (const int num_parts : {1, 2, 4, 8}) {
      auto parts = RandomFloats(num_parts * count, 14);
      const auto expected = SumOfPairs(parts, num_parts);
      std::vector<float> sum(count, NAN);
      cuda->AddParts(parts.data(), num_parts, count, sum.data());
      EXPECT_EQ(sum, expected) << num_parts << " parts of " << count;
    }
  }
}

TEST(CudaBackendTest, AddBiasIsTheExactSumOfEveryRow) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  for (const int cols : {1, 17, 256, 1000}) {
    for (const int rows : {1, 3, 40}) {
      auto x = RandomFloats(rows * cols, 12);
      const auto bias = RandomFloats(cols, 13);
      auto expected = x;
      for (int i = 0; i < rows * cols; ++i) expected[i] += bias[i % cols];
      cuda->AddBias(x.data(), rows, cols, bias.data());
      EXPECT_EQ(x, expected) << rows << " rows of " << cols;
    }
  }
}

TEST(CudaBackendTest, GatheredRowsAreThoseOfTheNumbers) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  for (const int cols : {1, 17, 300}) {
    const auto x = RandomFloats(7 * cols, 20);
    const std::vector<int32_t> rows = {6, 0, 3, 3, 5};
    std::vector<float> actual(rows.size() * cols, NAN);
    cuda->GatherRows(x.data(), rows, cols, actual.data());
    for (size_t i = 0; i < rows.size(); ++i) {
      for (int j = 0; j < cols; ++j) {
        ASSERT_EQ(actual[i * cols + j], x[rows[i] * cols + j]) << i << " " << j;
      }
    }
  }
}

// Each product is rounded, and added to zero in the order of the parts.
TEST(CudaBackendTest, CombinedRowsAreTheExactSumsOfTheirParts) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
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
      cuda->CombineRows(y.data(), rows, weights, parts, cols, actual.data());
      EXPECT_EQ(actual, expected) << parts << " parts of " << cols;
    }
  }
}

TEST(CudaBackendTest, StoreKvWritesOnlyTheRowsOwnSlots) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int head_dim : {2, 20, 80, 192}) {
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
        cuda->StoreKv(k.data(), v.data(), stride, actual_rows, actual.layer());
        EXPECT_EQ(actual.words(), expected.words())
            << "head_dim " << head_dim << " block_size " << block_size;
        EXPECT_NE(actual.words(), PagedCache(shape, 33).words());
      }
    }
  }
}

// What scores of queries in powers of 2 are times.
constexpr float kLn2 = 0.69314718055994531f;

// Largest error of a mean of values in [-1, 1] whose weights are rounded to
// bf16: 2^-9 of each weight, times how far its value is from the mean.
constexpr double kRoundedWeights = 0x1.02p-8;

// Queries as attention over bf16 rounds them (kernels/cuda/attention.h).
std::vector<float> QueriesInBF16(std::vector<float> q, float scale) {
  const float factor = scale * 1.44269504088896341f;
  for (float& value : q) value *= factor;
  return RoundedToBF16(std::move(q));
}

void ExpectAttentionAccurate(Backend& cuda, int head_dim, int heads_per_kv_head,
                             int block_size, float q_magnitude, DType type) {
  SCOPED_TRACE(testing::Message()
               << "head_dim " << head_dim << " queries a KV head "
               << heads_per_kv_head << " block_size " << block_size
               << (type == DType::kBF16 ? " bf16" : " f32"));
  const int num_heads = 2 * heads_per_kv_head;
  const PagedCache cache({2, 300, 2, block_size, head_dim, type}, 30);
  // One session's rows apart and together, the ends of splits among them.
  std::vector<RowContext> rows;
  for (const int position : {0, 1, 127, 128, 130, 255, 256, 299}) {
    rows.push_back(cache.Row(static_cast<int>(rows.size()) % 2, position));
  }
  for (int position = 120; position < 131; ++position) {
    rows.push_back(cache.Row(1, position));
  }
  const int stride = num_heads * head_dim + 9;
  const auto q = RandomFloats(rows.size() * stride, 31, q_magnitude);
  std::vector<float> expected(rows.size() * num_heads * head_dim, NAN);
  std::vector<float> actual(expected.size(), NAN);
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  // Over bf16 the queries are those that the tensor cores see.
  const bool bf16 = type == DType::kBF16;
  const auto seen = bf16 ? QueriesInBF16(q, scale) : q;
  MakeBackend("reference")
      ->Attention(seen.data(), stride, num_heads, bf16 ? kLn2 : scale, rows,
                  cache.layer(), expected.data());
  cuda.Attention(q.data(), stride, num_heads, scale, rows, cache.layer(),
                 actual.data());
  // Values lie in [-1, 1]. An error of a score is a relative one of its weight.
  const double score = q_magnitude * std::sqrt(head_dim);
  const double tolerance = SumTolerance(300) +
                           2 * score * SumTolerance(head_dim) +
                           (bf16 ? kRoundedWeights : 0);
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance)
        << "position " << rows[i / (num_heads * head_dim)].position;
  }
}

TEST(CudaBackendTest, AttentionAgreesAcrossHeadShapesAndBlockBorders) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int head_dim : {2, 20, 64, 128, 200}) {
      ExpectAttentionAccurate(*cuda, head_dim, 2, 16, 1.0f, type);
    }
    for (const int heads_per_kv_head : {1, 3, 7, 12}) {
      ExpectAttentionAccurate(*cuda, 64, heads_per_kv_head, 16, 1.0f, type);
    }
    for (const int block_size : {1, 5, 24, 256}) {
      ExpectAttentionAccurate(*cuda, 80, 2, block_size, 1.0f, type);
    }
    ExpectAttentionAccurate(*cuda, 512, 1, 16, 1.0f, type);
  }
  for (const int head_dim : {1, 5, 67}) {
    ExpectAttentionAccurate(*cuda, head_dim, 2, 16, 1.0f, DType::kF32);
  }
}

TEST(CudaBackendTest, AttentionStaysFiniteForLargeScores) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  ExpectAttentionAccurate(*cuda, 64, 2, 16, 100.0f, DType::kF32);
  ExpectAttentionAccurate(*cuda, 64, 2, 16, 100.0f, DType::kBF16);
}

// But for what the tensor cores round.
TEST(CudaBackendTest, AttentionOverBF16IsThatOverTheRoundedValues) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  for (const int head_dim : {2, 80, 128}) {
    const int positions = 150;
    const size_t width = static_cast<size_t>(head_dim);
    const auto k = RandomFloats(positions * width, 36);
    const auto v = RandomFloats(positions * width, 37);
    const auto rounded_k = RoundedToBF16(k);
    const auto rounded_v = RoundedToBF16(v);
    const PagedCache bf16({1, positions, 1, 16, head_dim, DType::kBF16}, 38);
    const PagedCache f32({1, positions, 1, 16, head_dim, DType::kF32}, 38);
    std::vector<RowContext> bf16_rows;
    std::vector<RowContext> f32_rows;
    for (int p = 0; p < positions; ++p) {
      bf16_rows.push_back(bf16.Row(0, p));
      f32_rows.push_back(f32.Row(0, p));
    }
    cuda->StoreKv(k.data(), v.data(), head_dim, bf16_rows, bf16.layer());
    cuda->StoreKv(rounded_k.data(), rounded_v.data(), head_dim, f32_rows,
                  f32.layer());
    const auto q = RandomFloats(positions * width, 39);
    const auto rounded_q = QueriesInBF16(q, 0.3f);
    std::vector<float> expected(positions * width);
    std::vector<float> actual(positions * width);
    cuda->Attention(rounded_q.data(), head_dim, 1, kLn2, f32_rows, f32.layer(),
                    expected.data());
    cuda->Attention(q.data(), head_dim, 1, 0.3f, bf16_rows, bf16.layer(),
                    actual.data());
    const double tolerance = kRoundedWeights + SumTolerance(positions) +
                             0.6 * head_dim * SumTolerance(head_dim);
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], tolerance) << "head_dim " << head_dim;
    }
  }
}

TEST(CudaBackendTest, NumericsIdNamesTheTypes) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  EXPECT_THAT(cuda->numerics_id(), HasSubstr("cuda-sm"));
  EXPECT_THAT(cuda->numerics_id(), HasSubstr("-kvf32-v2"));
  const auto other = MakeCudaBackend("bf16", "bf16");
  EXPECT_THAT(other->numerics_id(), HasSubstr("-bf16-kvbf16-v3"));
  EXPECT_EQ(other->kv_type(), DType::kBF16);
  EXPECT_THAT(MakeCudaBackend("fp8")->numerics_id(), HasSubstr("-fp8-kvf32-"));
  EXPECT_THAT(cuda->description(), HasSubstr("device 0"));
}

TEST(CudaBackendTest, WhatHasNoRowsDoesNothing) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  const UnalignedMatrix w(RandomFloats(64, 2), 1, 64, DType::kBF16);
  const auto packed = cuda->Pack({w.host()});
  const auto table = cuda->PackTable(w.host());
  const PagedCache cache({1, 16, 1, 16, 64}, 1);
  float none = 0;
  cuda->MatMul(&none, 0, **packed, &none);
  cuda->Embed(**table, {}, &none);
  cuda->RmsNorm(&none, 0, 1, &none, 1e-5f, &none);
  cuda->Rope(&none, 0, 64, 1, 64, &none, &none);
  cuda->StoreKv(&none, &none, 64, {}, cache.layer());
  cuda->Attention(&none, 64, 1, 1.0f, {}, cache.layer(), &none);
  cuda->SiluMul(&none, 0, 1, &none);
  cuda->AddInPlace(&none, &none, 0);
  cuda->AddParts(&none, 2, 0, &none);
  cuda->AddBias(&none, 0, 1, &none);
  EXPECT_TRUE(cuda->Synchronize().ok());
}

}  // namespace
}  // namespace nacre::kernels
