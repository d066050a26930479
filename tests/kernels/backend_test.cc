// What a layer is made of, on the backends that take it apart: the bits of the
// operations one after another.

#include "kernels/backend.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels {
namespace {

constexpr int kRows = 5;

class LayerOpsTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<PackedMatrix> Packed(int outputs, int inputs) {
    const UnalignedMatrix w(
        RandomFloats(static_cast<size_t>(outputs) * inputs, 1), outputs, inputs,
        DType::kF32);
    return *backend_->Pack({w.host()});
  }

  const std::unique_ptr<Backend> backend_ = MakeBackend(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, LayerOpsTest,
                         ::testing::Values("reference", "cpu"),
                         [](const auto& info) { return info.param; });

TEST_P(LayerOpsTest, ProductOfNormedRows) {
  const auto w = Packed(7, 20);
  const auto x = RandomFloats(kRows * 20, 2);
  const auto weight = RandomFloats(20, 3);
  std::vector<float> normed(kRows * 20), expected(kRows * 7), actual(kRows * 7);
  backend_->RmsNorm(x.data(), kRows, 20, weight.data(), 1e-5f, normed.data());
  backend_->MatMul(normed.data(), kRows, *w, expected.data());
  backend_->NormMatMul(x.data(), kRows, weight.data(), 1e-5f, *w, normed.data(),
                       actual.data());
  EXPECT_EQ(actual, expected);
}

TEST_P(LayerOpsTest, ProductsOntoAResidual) {
  const auto w = Packed(7, 20);
  const auto gate_up = RandomFloats(kRows * 40, 2);
  const auto residual = RandomFloats(kRows * 7, 3);
  const auto expected = [&](const std::vector<float>& x) {
    std::vector<float> y(kRows * 7);
    backend_->MatMul(x.data(), kRows, *w, y.data());
    for (size_t i = 0; i < y.size(); ++i) y[i] = residual[i] + y[i];
    return y;
  };
  std::vector<float> gated(kRows * 20), scratch(kRows * 20), actual(kRows * 7);
  backend_->SiluMul(gate_up.data(), kRows, 20, gated.data());
  backend_->MatMulAdd(gated.data(), kRows, *w, residual.data(), actual.data());
  EXPECT_EQ(actual, expected(gated));
  std::fill(actual.begin(), actual.end(), 0.0f);
  backend_->SiluMatMulAdd(gate_up.data(), kRows, *w, residual.data(),
                          scratch.data(), actual.data());
  EXPECT_EQ(actual, expected(gated));
}

TEST_P(LayerOpsTest, TurnedQueriesAndStoredKeys) {
  constexpr int kHeads = 4;
  const PagedCache::Shape shape = {1, 40, 2, 16, 6, DType::kF32};
  const PagedCache expected_cache(shape, 1);
  const PagedCache actual_cache(shape, 1);
  std::vector<RowContext> expected_rows, actual_rows;
  for (int row = 0; row < kRows; ++row) {
    expected_rows.push_back(expected_cache.Row(0, 14 + row));
    actual_rows.push_back(actual_cache.Row(0, 14 + row));
  }
  const int stride = (kHeads + 2 * 2) * 6;
  const auto qkv = RandomFloats(kRows * stride, 2);
  const auto cos = RandomFloats(kRows * 3, 3);
  const auto sin = RandomFloats(kRows * 3, 4);
  auto expected = qkv;
  float* const k = expected.data() + kHeads * 6;
  backend_->Rope(expected.data(), kRows, stride, kHeads, 6, cos.data(),
                 sin.data());
  backend_->Rope(k, kRows, stride, 2, 6, cos.data(), sin.data());
  backend_->StoreKv(k, k + 2 * 6, stride, expected_rows,
                    expected_cache.layer());
  auto actual = qkv;
  backend_->RopeStoreKv(actual.data(), kHeads, cos.data(), sin.data(),
                        actual_rows, actual_cache.layer());
  EXPECT_EQ(actual_cache.words(), expected_cache.words());
  EXPECT_NE(actual_cache.words(), PagedCache(shape, 1).words());
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kHeads * 6; ++i) {
      EXPECT_EQ(actual[row * stride + i], expected[row * stride + i]);
    }
  }
}

TEST_P(LayerOpsTest, GatedProductsOfNormedRows) {
  PackHints hints;
  hints.pairs_apart = 16;
  const UnalignedMatrix gate_and_up(RandomFloats(32 * 20, 4), 32, 20,
                                    DType::kF32);
  const auto gate_up = *backend_->PackFor({gate_and_up.host()}, hints);
  const auto down = Packed(7, 16);
  const auto x = RandomFloats(kRows * 20, 2);
  const auto weight = RandomFloats(20, 3);
  const auto residual = RandomFloats(kRows * 7, 5);
  std::vector<float> normed(kRows * 20), between(kRows * 32), gated(kRows * 16);
  std::vector<float> expected(kRows * 7), actual(kRows * 7);
  backend_->NormMatMul(x.data(), kRows, weight.data(), 1e-5f, *gate_up,
                       normed.data(), between.data());
  backend_->SiluMatMulAdd(between.data(), kRows, *down, residual.data(),
                          gated.data(), expected.data());
  backend_->NormSiluMatMulAdd(
      {x.data(), kRows, weight.data(), 1e-5f, normed.data()}, *gate_up, *down,
      residual.data(), {between.data(), gated.data()}, actual.data());
  EXPECT_EQ(actual, expected);
}

TEST_P(LayerOpsTest, HeadsOfNormedRows) {
  constexpr int kHeads = 2;
  const PagedCache::Shape shape = {1, 40, 1, 16, 6, DType::kF32};
  const int outputs = (kHeads + 2) * 6;
  const auto w = Packed(outputs, 20);
  const auto x = RandomFloats(kRows * 20, 2);
  const auto weight = RandomFloats(20, 3);
  const auto bias = RandomFloats(outputs, 4);
  const auto cos = RandomFloats(kRows * 3, 5);
  const auto sin = RandomFloats(kRows * 3, 6);
  std::vector<float> normed(kRows * 20);
  for (const bool has_bias : {false, true}) {
    const PagedCache expected_cache(shape, 1);
    const PagedCache actual_cache(shape, 1);
    std::vector<RowContext> expected_rows, actual_rows;
    for (int row = 0; row < kRows; ++row) {
      expected_rows.push_back(expected_cache.Row(0, 14 + row));
      actual_rows.push_back(actual_cache.Row(0, 14 + row));
    }
    std::vector<float> expected(kRows * outputs), actual(kRows * outputs);
    backend_->NormMatMul(x.data(), kRows, weight.data(), 1e-5f, *w,
                         normed.data(), expected.data());
    if (has_bias) {
      backend_->AddBias(expected.data(), kRows, outputs, bias.data());
    }
    backend_->RopeStoreKv(expected.data(), kHeads, cos.data(), sin.data(),
                          expected_rows, expected_cache.layer());
    backend_->NormMatMulRopeStoreKv(
        {x.data(), kRows, weight.data(), 1e-5f, normed.data()}, *w,
        has_bias ? bias.data() : nullptr, {kHeads, cos.data(), sin.data()},
        actual_rows, actual_cache.layer(), actual.data());
    EXPECT_EQ(actual_cache.words(), expected_cache.words());
    EXPECT_NE(actual_cache.words(), PagedCache(shape, 1).words());
    EXPECT_EQ(actual, expected);
  }
}

}  // namespace
}  // namespace nacre::kernels
