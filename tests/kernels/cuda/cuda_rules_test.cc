// What not every model has (rule_checks.h), on a GPU, emulated or real.

#include "gtest/gtest.h"
#include "tests/kernels/cuda/host_view.h"
#include "tests/kernels/rule_checks.h"
#include "tests/kernels/tail_checks.h"

namespace nacre::kernels {
namespace {

TEST(CudaRulesTest, WindowsAndCapsAgreeWithTheReference) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  ExpectRulesAccurate(cuda.get(), DType::kF32);
  // Queries and weights are rounded to bf16 there.
  ExpectRulesAccurate(cuda.get(), DType::kBF16, 0.05f);
}

TEST(CudaRulesTest, RowsHaveTheSameBitsInEveryBatch) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  const auto rules = CheckedRules(0.125f, {2, 65, 129});
  ExpectRulesInvariant(cuda.get(), DType::kF32, rules);
  ExpectRulesInvariant(cuda.get(), DType::kBF16, rules);
}

TEST(CudaRulesTest, WhatAWindowHidesIsUnseen) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  ExpectHiddenPositionsUnseen(cuda.get(), DType::kF32);
  ExpectHiddenPositionsUnseen(cuda.get(), DType::kBF16);
}

TEST(CudaRulesTest, WindowsReachIntoPaths) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int window : {3, 130}) {
      TailShape shape = {48, 1, 3, type, 16, 288};
      shape.rule.window = window;
      shape.rule.soft_cap = window == 3 ? 1.5f : 0.0f;
      TreesInSlots trees(cuda.get(), shape, {250, 128}, {20, 5}, 3);
      trees.ExpectBitsOfChains();
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CudaRulesTest, RowOpsAgreeWithTheReference) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  ExpectRowOpsAccurate(cuda.get());
}

TEST(CudaRulesTest, NormsAndGeluAgreeWithTheReference) {
  const auto cuda = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(cuda);
  ExpectLayerNormAccurate(cuda.get());
  ExpectGeluAccurate(cuda.get());
  ExpectNormAndGeluInvariant(cuda.get());
}

}  // namespace
}  // namespace nacre::kernels
