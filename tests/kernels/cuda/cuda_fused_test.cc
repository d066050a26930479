// The fused operations of the cuda backend have the bits of the operations that
// they join, which Backend runs one after another. On the emulated device, and
// on a GPU where there is one.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "tests/kernels/cuda/host_view.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels {
namespace {

struct Shape {
  int outputs;
  int inputs;
};
// Padded inputs, ragged tiles, one slice and several.
constexpr Shape kShapes[] = {{17, 19}, {40, 72}, {18, 2056}};
constexpr int kFewRows[] = {1, 3, 8, 9, 16, 17, 33};

void ExpectSameBits(const std::vector<float>& actual,
                    const std::vector<float>& expected, int rows,
                    const Shape& shape) {
  ASSERT_EQ(actual.size(), expected.size());
  ASSERT_EQ(std::memcmp(actual.data(), expected.data(),
                        actual.size() * sizeof(float)),
            0)
      << rows << " rows, " << shape.outputs << " x " << shape.inputs;
}

// By the type of weights.
class CudaFusedTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<PackedMatrix> Packed(const Shape& shape) {
    const UnalignedMatrix w(
        RandomFloats(static_cast<size_t>(shape.outputs) * shape.inputs, 1),
        shape.outputs, shape.inputs, DType::kF32);
    auto packed = backend_->Pack({w.host()});
    EXPECT_TRUE(packed.ok()) << packed.status();
    return *std::move(packed);
  }

  void CompareNorm(const PackedMatrix& w, int rows, const Shape& shape) {
    const auto x = RandomFloats(Count(rows, shape.inputs), 2, 3.0f);
    const auto weight = RandomFloats(shape.inputs, 3);
    std::vector<float> normed(x.size());
    std::vector<float> expected(Count(rows, shape.outputs), NAN);
    std::vector<float> actual(expected.size(), NAN);
    backend_->Backend::NormMatMul(x.data(), rows, weight.data(), 1e-5f, w,
                                  normed.data(), expected.data());
    backend_->NormMatMul(x.data(), rows, weight.data(), 1e-5f, w, nullptr,
                         actual.data());
    ExpectSameBits(actual, expected, rows, shape);
  }

  void CompareAdd(const PackedMatrix& w, int rows, const Shape& shape) {
    const auto x = RandomFloats(Count(rows, shape.inputs), 4);
    const auto residual = RandomFloats(Count(rows, shape.outputs), 5, 10.0f);
    std::vector<float> expected(residual.size(), NAN);
    std::vector<float> actual(residual.size(), NAN);
    backend_->Backend::MatMulAdd(x.data(), rows, w, residual.data(),
                                 expected.data());
    backend_->MatMulAdd(x.data(), rows, w, residual.data(), actual.data());
    ExpectSameBits(actual, expected, rows, shape);
  }

  void CompareGate(const PackedMatrix& w, int rows, const Shape& shape) {
    const auto gate_up = RandomFloats(Count(rows, 2 * shape.inputs), 6, 5.0f);
    const auto residual = RandomFloats(Count(rows, shape.outputs), 7);
    std::vector<float> gated(Count(rows, shape.inputs));
    std::vector<float> expected(residual.size(), NAN);
    std::vector<float> actual(residual.size(), NAN);
    backend_->Backend::SiluMatMulAdd(gate_up.data(), rows, w, residual.data(),
                                     gated.data(), expected.data());
    backend_->SiluMatMulAdd(gate_up.data(), rows, w, residual.data(), nullptr,
                            actual.data());
    ExpectSameBits(actual, expected, rows, shape);
  }

  static size_t Count(int rows, int cols) {
    return static_cast<size_t>(rows) * static_cast<size_t>(cols);
  }

  const std::unique_ptr<Backend> backend_ = MakeCudaBackend(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Weights, CudaFusedTest,
                         ::testing::Values("bf16", "int8", "fp8", "f32"),
                         [](const auto& info) { return info.param; });

TEST_P(CudaFusedTest, EveryNumberOfRowsOfASmallProduct) {
  NACRE_SKIP_WITHOUT_GPU(backend_);
  const auto w = Packed(kShapes[0]);
  for (int rows = 1; rows <= kMaxRows; ++rows) {
    CompareNorm(*w, rows, kShapes[0]);
    CompareAdd(*w, rows, kShapes[0]);
    CompareGate(*w, rows, kShapes[0]);
  }
}

TEST_P(CudaFusedTest, AwkwardShapes) {
  NACRE_SKIP_WITHOUT_GPU(backend_);
  for (const Shape& shape : kShapes) {
    const auto w = Packed(shape);
    for (const int rows : kFewRows) {
      CompareNorm(*w, rows, shape);
      CompareAdd(*w, rows, shape);
      CompareGate(*w, rows, shape);
    }
  }
}

// Slices one after another in place, and more than one pass.
TEST_P(CudaFusedTest, ManyRows) {
  NACRE_SKIP_WITHOUT_GPU(backend_);
  const Shape sliced = {18, 2056};
  CompareAdd(*Packed(sliced), 260, sliced);
  const Shape small = {9, 11};
  const auto w = Packed(small);
  CompareNorm(*w, 520, small);
  CompareAdd(*w, 520, small);
  CompareGate(*w, 520, small);
}

TEST(CudaFusedRopeTest, QueriesTurnedAndKeysStored) {
  const auto backend = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(backend);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int head_dim : {2, 20, 80, 192}) {
      for (const int heads : {2, 6}) {
        const PagedCache::Shape shape = {2, 40, 2, 5, head_dim, type};
        const PagedCache expected_cache(shape, 1);
        const PagedCache actual_cache(shape, 1);
        const int rows = 9;
        std::vector<RowContext> expected_rows;
        std::vector<RowContext> actual_rows;
        for (int row = 0; row < rows; ++row) {
          expected_rows.push_back(expected_cache.Row(row % 2, 4 * row + 3));
          actual_rows.push_back(actual_cache.Row(row % 2, 4 * row + 3));
        }
        const int stride = (heads + 4) * head_dim;
        const auto qkv = RandomFloats(rows * stride, 2);
        const auto cos = RandomFloats(rows * head_dim / 2, 3);
        const auto sin = RandomFloats(rows * head_dim / 2, 4);
        auto expected = qkv;
        auto actual = qkv;
        backend->Backend::RopeStoreKv(expected.data(), heads, cos.data(),
                                      sin.data(), expected_rows,
                                      expected_cache.layer());
        backend->RopeStoreKv(actual.data(), heads, cos.data(), sin.data(),
                             actual_rows, actual_cache.layer());
        EXPECT_EQ(actual_cache.words(), expected_cache.words());
        EXPECT_NE(actual_cache.words(), PagedCache(shape, 1).words());
        for (int row = 0; row < rows; ++row) {
          ASSERT_EQ(std::memcmp(actual.data() + row * stride,
                                expected.data() + row * stride,
                                sizeof(float) * heads * head_dim),
                    0)
              << "head_dim " << head_dim << ", row " << row;
        }
      }
    }
  }
}

// Of attention over two splits, by itself and with something in between.
std::vector<std::vector<float>> ProductsOfAttention(bool fusion) {
  constexpr int kHeadDim = 32, kHeads = 2, kCols = kHeads * kHeadDim;
  constexpr int kRows = 2, kOutputs = 24, kBlocks = 10;
  BackendOptions options;
  options.kind = "cuda";
  options.weights = options.kv_type = "bf16";
  options.fusion = fusion;
  const auto backend = *CreateBackend(options);
  const UnalignedMatrix w(RandomFloats(kOutputs * kCols, 1), kOutputs, kCols,
                          DType::kF32);
  const auto packed = *backend->Pack({w.host()});
  const auto device = [&](const std::vector<float>& values) {
    auto buffer = *backend->Allocate(values.size() * sizeof(float));
    backend->CopyFromHost(values.data(), values.size() * sizeof(float),
                          buffer->data());
    return buffer;
  };
  std::vector<float> cache(kBlocks * 16 * kHeadDim);  // pairs of bf16
  for (size_t i = 0; i < cache.size(); ++i) {
    const auto value = [&](size_t of) {
      return uint32_t{ToBF16(static_cast<float>(of % 89) / 50 - 0.9f)};
    };
    cache[i] = std::bit_cast<float>(value(2 * i) | value(2 * i + 1) << 16);
  }
  const auto blocks = device(cache);
  const KvLayer layer = {blocks->data(), kBlocks,     1, 16,
                         kHeadDim,       DType::kBF16};
  const auto q = device(RandomFloats(kRows * kCols, 2));
  const auto ones = device(std::vector<float>(kRows * kCols, 1.0f));
  const auto out = device(std::vector<float>(kRows * kCols));
  const auto y = device(std::vector<float>(kRows * kOutputs));
  const std::vector<int32_t> table = {3, 1, 4, 0, 5, 9, 2, 6, 8, 7};
  const std::vector<RowContext> rows = {{table.data(), 100},
                                        {table.data(), 130}};
  std::vector<std::vector<float>> products;
  const auto multiply = [&](auto between, int first) {
    backend->Attention(q->f32(), kCols, kHeads, AttentionRule(0.2f), rows,
                       layer, out->f32());
    between();
    backend->MatMul(out->f32() + first * kCols, kRows - first, *packed,
                    y->f32());
    auto& product = products.emplace_back((kRows - first) * kOutputs);
    backend->CopyToHost(y->data(), product.size() * sizeof(float),
                        product.data());
  };
  multiply([] {}, 0);
  multiply([&] { backend->AddInPlace(out->f32(), ones->f32(), kRows * kCols); },
           0);
  multiply([] {}, 1);
  EXPECT_TRUE(backend->Synchronize().ok());
  return products;
}

TEST(CudaFusedAttentionTest, AProductTakesWhatIsRoundedOnlyWhileItStands) {
  NACRE_SKIP_WITHOUT_GPU(MakeCudaBackend());
  const auto expected = ProductsOfAttention(false);
  EXPECT_NE(expected[0], expected[1]);
  EXPECT_EQ(ProductsOfAttention(true), expected);
}

TEST(CudaFusedRopeTest, WhatHasNoRowsDoesNothing) {
  const auto backend = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(backend);
  const UnalignedMatrix w(RandomFloats(64, 2), 1, 64, DType::kBF16);
  const auto packed = backend->Pack({w.host()});
  const PagedCache cache({1, 16, 1, 16, 64}, 1);
  float none = 0;
  backend->NormMatMul(&none, 0, &none, 1e-5f, **packed, &none, &none);
  backend->MatMulAdd(&none, 0, **packed, &none, &none);
  backend->SiluMatMulAdd(&none, 0, **packed, &none, &none, &none);
  backend->RopeStoreKv(&none, 1, &none, &none, {}, cache.layer());
  EXPECT_TRUE(backend->Synchronize().ok());
}

}  // namespace
}  // namespace nacre::kernels
