// What not every model has (rule_checks.h), on every SIMD target of this
// machine.

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/rule_checks.h"

namespace nacre::kernels {
namespace {

using CpuRulesTest = EveryTargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, CpuRulesTest,
                         ::testing::ValuesIn(SupportedSimdTargets()),
                         SimdTargetName);

TEST_P(CpuRulesTest, WindowsAndCapsAgreeWithTheReference) {
  const auto backend = MakeBackend("cpu");
  for (const DType type : kKvTypes) {
    ExpectRulesAccurate(backend.get(), type);
    if (HasFatalFailure()) return;
  }
}

TEST_P(CpuRulesTest, RowsHaveTheSameBitsInEveryBatch) {
  const auto backend = MakeBackend("cpu");
  const auto threads = MakeBackend("cpu", "auto", AllowedCores(2));
  for (const DType type : kKvTypes) {
    ExpectRulesInvariant(backend.get(), type, CheckedRules(0.125f));
    ExpectRulesInvariant(threads.get(), type, CheckedRules(0.125f));
    if (HasFatalFailure()) return;
  }
}

TEST_P(CpuRulesTest, WhatAWindowHidesIsUnseen) {
  const auto backend = MakeBackend("cpu");
  ExpectHiddenPositionsUnseen(backend.get(), DType::kF32);
  ExpectHiddenPositionsUnseen(backend.get(), DType::kBF16);
  ExpectHiddenPositionsUnseen(backend.get(), DType::kInt8);
}

TEST_P(CpuRulesTest, RowOpsAgreeWithTheReference) {
  const auto backend = MakeBackend("cpu");
  ExpectRowOpsAccurate(backend.get());
}

TEST_P(CpuRulesTest, NormsAndGeluAgreeWithTheReference) {
  const auto backend = MakeBackend("cpu");
  ExpectLayerNormAccurate(backend.get());
  ExpectGeluAccurate(backend.get());
}

TEST_P(CpuRulesTest, NormsAndGeluHaveTheSameBitsInEveryBatch) {
  ExpectNormAndGeluInvariant(MakeBackend("cpu").get());
  ExpectNormAndGeluInvariant(MakeBackend("cpu", "auto", AllowedCores(2)).get());
}

TEST(ReferenceRulesTest, AWindowHidesWhatIsBeforeIt) {
  ReferenceBackend backend(WeightType::kAuto);
  std::vector<float> blocks = {0, 0, 0, 0, 5, 7, 9, 20};  // keys, then values
  const KvLayer layer = {blocks.data(), 1, 1, 4, 1};
  const int32_t block = 0;
  const RowContext row = {&block, 3};
  const float q = 1;
  float out = 0;
  AttentionRule rule = 1.0f;
  for (const auto& [window, mean] : std::vector<std::pair<int, float>>{
           {1, 20.0f}, {2, 14.5f}, {3, 12.0f}, {4, 10.25f}, {9, 10.25f}}) {
    rule.window = window;
    backend.Attention(&q, 1, 1, rule, {&row, 1}, layer, &out);
    EXPECT_FLOAT_EQ(out, mean) << window;
  }
}

TEST(ReferenceRulesTest, ASoftCapBoundsScores) {
  ReferenceBackend backend(WeightType::kAuto);
  std::vector<float> blocks = {0, 1, 0, 1};  // two keys, two values
  const KvLayer layer = {blocks.data(), 1, 1, 2, 1};
  const int32_t block = 0;
  const RowContext row = {&block, 1};
  const float q = 100;
  float out = 0;
  AttentionRule rule = 1.0f;
  rule.soft_cap = 2;
  backend.Attention(&q, 1, 1, rule, {&row, 1}, layer, &out);
  EXPECT_FLOAT_EQ(out, std::exp(2.0f) / (1.0f + std::exp(2.0f)));
}

TEST(ReferenceRulesTest, GeluIsItsFormula) {
  ReferenceBackend backend(WeightType::kAuto);
  const std::vector<float> gate_up = {0, 1, -1, 7, 3, 2};
  std::vector<float> out(3);
  backend.GeluMul(gate_up.data(), 1, 3, out.data());
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_NEAR(out[1], 3 * 0.841192f, 1e-5);
  EXPECT_NEAR(out[2], 2 * -0.158808f, 1e-5);
  std::vector<float> tanh_form = {1, -1};
  backend.Gelu(tanh_form.data(), 1, 2, GeluForm::kTanh);
  EXPECT_NEAR(tanh_form[0], 0.841192f, 1e-6);
  EXPECT_NEAR(tanh_form[1], -0.158808f, 1e-6);
  std::vector<float> erf_form = {1, -1};
  backend.Gelu(erf_form.data(), 1, 2, GeluForm::kErf);
  EXPECT_NEAR(erf_form[0], 0.8413447f, 1e-6);
  EXPECT_NEAR(erf_form[1], -0.1586553f, 1e-6);
}

TEST(ReferenceRulesTest, LayerNormCentersAndDividesByTheDeviation) {
  ReferenceBackend backend(WeightType::kAuto);
  const std::vector<float> x = {1, 3, 5, 7};  // mean 4, variance 5
  const std::vector<float> weight = {1, 1, 2, 0};
  const std::vector<float> bias = {0, 10, 0, 9};
  std::vector<float> out(4);
  backend.LayerNorm(x.data(), 1, 4, weight.data(), bias.data(), 4.0f,
                    out.data());
  EXPECT_THAT(out, ::testing::ElementsAre(::testing::FloatEq(-1.0f),
                                          ::testing::FloatEq(29 / 3.0f),
                                          ::testing::FloatEq(2 / 3.0f), 9.0f));
}

}  // namespace
}  // namespace nacre::kernels
