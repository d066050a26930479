// Rows of prompts by cublasLt: a row's bits follow from its own inputs and its
// position. On the emulated device, with a cublasLt of the tests whose sums
// follow from the shape and from where a row stands.

#include "kernels/cuda/cublas_prompts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/cublas_fixture.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels::cuda {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kChunk = PromptProducts::kChunk;

class CublasPromptsTest : public CublasTest {
 protected:
  // In bf16, with inputs that are padded unless they are a multiple of 8.
  void Prepare(int outputs, int inputs) {
    Prepare(outputs, inputs, RandomFloats(Elements(outputs, inputs), 1));
  }
  void Prepare(int outputs, int inputs, std::vector<float> values,
               int pairs_apart = 0) {
    outputs_ = outputs;
    inputs_ = inputs;
    const UnalignedMatrix w(std::move(values), outputs, inputs, DType::kBF16);
    PackHints hints;
    hints.pairs_apart = pairs_apart;
    weights_ = *backend_->PackFor({w.host()}, hints);
    ASSERT_EQ(backend_->prompt_products()->Add(weights_.get()),
              absl::OkStatus());
  }

  static size_t Elements(int rows, int cols) {
    return static_cast<size_t>(rows) * static_cast<size_t>(cols);
  }

  std::unique_ptr<Buffer> OnDevice(const std::vector<float>& values) {
    auto buffer = *backend_->Allocate(values.size() * sizeof(float));
    backend_->CopyFromHost(values.data(), values.size() * sizeof(float),
                           buffer->data());
    return buffer;
  }

  // The rows of x [any, inputs], of which `runs` are prompts'. `residual`: to
  // be added; empty: none.
  std::vector<float> Product(const std::vector<float>& x,
                             const std::vector<PromptRun>& runs,
                             const std::vector<float>& residual = {}) {
    const int rows = static_cast<int>(x.size()) / inputs_;
    const auto device_x = OnDevice(x);
    std::vector<float> y(Elements(rows, outputs_), NAN);
    const auto device_y = OnDevice(y);
    backend_->prompt_products()->SetRows(runs);
    std::unique_ptr<Buffer> added;
    backend_->RunStep(rows, [&] {
      if (residual.empty()) {
        backend_->MatMul(device_x->f32(), rows, *weights_, device_y->f32());
      } else {
        added = OnDevice(residual);
        backend_->MatMulAdd(device_x->f32(), rows, *weights_, added->f32(),
                            device_y->f32());
      }
    });
    backend_->prompt_products()->SetRows({});
    backend_->CopyToHost(device_y->data(), y.size() * sizeof(float), y.data());
    EXPECT_EQ(backend_->Synchronize(), absl::OkStatus());
    return y;
  }

  std::vector<float> RowsOf(const std::vector<float>& x, int cols, int first,
                            int count) {
    const auto begin = x.begin() + std::ptrdiff_t{first} * cols;
    return {begin, begin + std::ptrdiff_t{count} * cols};
  }

  static bool SameBits(const std::vector<float>& a,
                       const std::vector<float>& b) {
    return a.size() == b.size() &&
           std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  std::unique_ptr<Backend> backend_ = MakeBackend();
  std::unique_ptr<PackedMatrix> weights_;
  int outputs_ = 0;
  int inputs_ = 0;
};

// Small whole numbers, whose sums are exact in any order.
TEST_F(CublasPromptsTest, MultipliesWhatOurKernelsMultiply) {
  for (const auto& [outputs, inputs] :
       {std::pair(17, 19), std::pair(40, 72), std::pair(40, 48),
        std::pair(16, 200)}) {
    const auto whole = [](std::vector<float> values) {
      for (float& value : values) value = std::round(2 * value);
      return values;
    };
    Prepare(outputs, inputs, whole(RandomFloats(Elements(outputs, inputs), 1)));
    const auto x = whole(RandomFloats(Elements(5, inputs), 2));
    const auto own = Product(x, {});
    EXPECT_GT(*std::max_element(own.begin(), own.end()), 3);
    EXPECT_EQ(own, Product(x, {{0, 3, 5}})) << outputs << " x " << inputs;
  }
}

TEST_F(CublasPromptsTest, OutputsInPairsAreWhereTheyAlwaysAre) {
  const auto values = RandomFloats(Elements(96, 40), 1);
  const auto x = RandomFloats(Elements(5, 40), 2);
  Prepare(96, 40, values);
  const auto own = Product(x, {});
  const auto prompt = Product(x, {{0, 3, 5}});
  for (const int pairs_apart : {8, 24, 48}) {
    Prepare(96, 40, values, pairs_apart);
    EXPECT_TRUE(SameBits(Product(x, {}), own)) << pairs_apart;
    EXPECT_TRUE(SameBits(Product(x, {{0, 3, 5}}), prompt)) << pairs_apart;
  }
}

// A plan is of a shape, a copy of weights of the weights.
TEST_F(CublasPromptsTest, WeightsOfOneShapeShareNoCopy) {
  std::vector<std::unique_ptr<PackedMatrix>> all;
  for (const unsigned seed : {1u, 2u, 3u}) {
    Prepare(24, 40, RandomFloats(Elements(24, 40), seed));
    all.push_back(std::move(weights_));
  }
  const auto x = RandomFloats(Elements(5, 40), 4);
  for (auto& weights : all) {
    weights_ = std::move(weights);
    const auto own = Product(x, {});
    const auto prompt = Product(x, {{0, 3, 5}});
    for (size_t i = 0; i < own.size(); ++i) {
      EXPECT_NEAR(prompt[i], own[i], 0.05) << i;
    }
  }
}

// Else the tests here would see nothing.
TEST_F(CublasPromptsTest, TheLibraryRoundsOtherwise) {
  Prepare(20, 40);
  const auto x = RandomFloats(Elements(3, inputs_), 2);
  const auto first = Product(x, {{0, 3, 3}});
  EXPECT_FALSE(SameBits(Product(x, {}), first));
  EXPECT_FALSE(SameBits(Product(x, {{0, 4, 3}}), first));
}

// However a prompt is cut, and whatever stands beside it.
TEST_F(CublasPromptsTest, ARowsBitsFollowFromItsPosition) {
  Prepare(20, 40);
  const int length = 2 * kChunk + 9;
  const auto x = RandomFloats(Elements(length, inputs_), 3);
  const auto whole = Product(x, {{0, 0, length}});
  for (const int piece : {1, 7, 100, kChunk, kChunk + 1}) {
    for (int first = 0; first < length;
         first += std::max(piece, piece < 100 ? 61 : piece)) {
      const int count = std::min(piece, length - first);
      EXPECT_TRUE(SameBits(
          Product(RowsOf(x, inputs_, first, count), {{0, first, count}}),
          RowsOf(whole, outputs_, first, count)))
          << count << " rows from " << first;
    }
  }
  EXPECT_THAT(state_->rows, Each(size_t{kChunk}));
}

TEST_F(CublasPromptsTest, RowsOfOthersChangeNothing) {
  Prepare(20, 40);
  const auto x = RandomFloats(Elements(12, inputs_), 4);
  const auto own = Product(x, {});
  // Rows 1 to 3 and 6 to 8 are prompts', and stand at the same places.
  const auto mixed = Product(x, {{1, 30, 3}, {6, 30 + kChunk, 3}});
  for (const int first : {1, 6}) {
    EXPECT_TRUE(SameBits(RowsOf(mixed, outputs_, first, 3),
                         Product(RowsOf(x, inputs_, first, 3), {{0, 30, 3}})));
  }
  for (const auto& [first, count] :
       {std::pair(0, 1), std::pair(4, 2), std::pair(9, 3)}) {
    EXPECT_TRUE(SameBits(RowsOf(mixed, outputs_, first, count),
                         RowsOf(own, outputs_, first, count)));
  }
}

TEST_F(CublasPromptsTest, AddsAfterwards) {
  for (const int outputs : {20, 17}) {
    Prepare(outputs, 40);
    const int length = kChunk + 5;
    const auto x = RandomFloats(Elements(length, inputs_), 5);
    const auto residual = RandomFloats(Elements(length, outputs), 6, 10.0f);
    auto expected = Product(x, {{0, kChunk, length}});
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += residual[i];
    EXPECT_TRUE(
        SameBits(Product(x, {{0, kChunk, length}}, residual), expected));
  }
}

// The fused ops of the backend, against what they are made of.
TEST_F(CublasPromptsTest, FusedOpsAreTheSame) {
  Prepare(20, 40);
  const int rows = 6;
  const auto x = OnDevice(RandomFloats(Elements(rows, 40), 7));
  const auto gate_up = OnDevice(RandomFloats(Elements(rows, 80), 8));
  const auto norm = OnDevice(RandomFloats(40, 9));
  const auto residual = OnDevice(RandomFloats(Elements(rows, 20), 10));
  const auto scratch = OnDevice(std::vector<float>(Elements(rows, 40)));
  const auto run = [&](bool fused) {
    std::vector<float> y(Elements(2 * rows, 20), NAN);
    const auto out = OnDevice(y);
    float* const second = out->f32() + Elements(rows, 20);
    if (fused) {
      backend_->NormMatMul(x->f32(), rows, norm->f32(), 1e-5f, *weights_,
                           nullptr, out->f32());
      backend_->SiluMatMulAdd(gate_up->f32(), rows, *weights_, residual->f32(),
                              nullptr, second);
    } else {
      backend_->Backend::NormMatMul(x->f32(), rows, norm->f32(), 1e-5f,
                                    *weights_, scratch->f32(), out->f32());
      backend_->Backend::SiluMatMulAdd(gate_up->f32(), rows, *weights_,
                                       residual->f32(), scratch->f32(), second);
    }
    backend_->CopyToHost(out->data(), y.size() * sizeof(float), y.data());
    return y;
  };
  backend_->prompt_products()->SetRows({{{1, 250, 4}}});
  EXPECT_TRUE(SameBits(run(true), run(false)));
  backend_->prompt_products()->SetRows({});
}

// Products of pairs take no rows of prompts.
TEST_F(CublasPromptsTest, GatesOfPromptsAreTheSame) {
  Prepare(32, 16, RandomFloats(Elements(32, 16), 1), 16);
  const auto gate_up = std::move(weights_);
  Prepare(20, 16);
  const int rows = 6;
  const auto x = OnDevice(RandomFloats(Elements(rows, 16), 2));
  const auto norm = OnDevice(RandomFloats(16, 3));
  const auto residual = OnDevice(RandomFloats(Elements(rows, 20), 4));
  const auto normed = OnDevice(std::vector<float>(Elements(rows, 16)));
  const auto between = OnDevice(std::vector<float>(Elements(rows, 32)));
  const auto gated = OnDevice(std::vector<float>(Elements(rows, 16)));
  const auto out = OnDevice(std::vector<float>(Elements(rows, 20)));
  const NormedRows in = {x->f32(), rows, norm->f32(), 1e-5f, normed->f32()};
  const GateScratch scratch = {between->f32(), gated->f32()};
  const auto run = [&](bool fused) {
    if (fused) {
      backend_->NormSiluMatMulAdd(in, *gate_up, *weights_, residual->f32(),
                                  scratch, out->f32());
    } else {
      backend_->Backend::NormSiluMatMulAdd(
          in, *gate_up, *weights_, residual->f32(), scratch, out->f32());
    }
    std::vector<float> y(Elements(rows, 20));
    backend_->CopyToHost(out->data(), y.size() * sizeof(float), y.data());
    return y;
  };
  const auto own = run(false);
  EXPECT_TRUE(SameBits(run(true), own));
  backend_->prompt_products()->SetRows({{{1, 250, 4}}});
  const auto prompt = run(false);
  EXPECT_TRUE(SameBits(run(true), prompt));
  EXPECT_FALSE(SameBits(prompt, own));
  backend_->prompt_products()->SetRows({});
}

TEST_F(CublasPromptsTest, WhatWasNotAddedIsMultipliedAsBefore) {
  const UnalignedMatrix w(RandomFloats(320, 1), 8, 40, DType::kBF16);
  weights_ = *backend_->Pack({w.host()});
  outputs_ = 8;
  inputs_ = 40;
  const auto x = RandomFloats(Elements(3, inputs_), 2);
  EXPECT_TRUE(SameBits(Product(x, {{0, 0, 3}}), Product(x, {})));
  EXPECT_TRUE(state_->rows.empty());
}

TEST_F(CublasPromptsTest, CountsTheCopyOfTheWeights) {
  const UnalignedMatrix w(RandomFloats(320, 1), 8, 39, DType::kBF16);
  weights_ = *backend_->Pack({w.host()});
  const int64_t packed = weights_->size_bytes();
  PromptProducts* const products = backend_->prompt_products();
  ASSERT_EQ(products->Add(weights_.get()), absl::OkStatus());
  EXPECT_EQ(products->AddedBytes(8, 39), 8 * 40 * 2);
  EXPECT_EQ(weights_->size_bytes(), packed + products->AddedBytes(8, 39));
}

TEST_F(CublasPromptsTest, RefusesWeightsOfAnotherType) {
  const UnalignedMatrix w(RandomFloats(320, 1), 8, 40, DType::kF32);
  const auto packed = *backend_->Pack({w.host()});
  const absl::Status status = backend_->prompt_products()->Add(packed.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("--prefill cublas multiplies bf16 weights"));
}

TEST_F(CublasPromptsTest, NumericsNameTheLibraryAndItsAlgorithms) {
  const std::string none = backend_->numerics_id();
  EXPECT_EQ(none, "cuda-sm90-kvbf16-v3-prefillcublas130100");
  EXPECT_EQ(MakeBackend("")->numerics_id(), "cuda-sm90-kvbf16-v3");
  const auto id = [this](int outputs) {
    weights_.reset();  // of the backend that goes
    backend_ = MakeBackend();
    Prepare(outputs, 40);
    return backend_->numerics_id();
  };
  const std::string first = id(8);
  EXPECT_THAT(first, StartsWith(none + "-"));
  EXPECT_EQ(id(8), first);
  EXPECT_NE(id(16), first);
  state_->workspace_proposals = 0;  // another algorithm
  EXPECT_NE(id(8), first);
  state_->workspace_proposals = 1;
  emulation::settings.multiprocessors = 7;
  EXPECT_NE(id(8), first);
  emulation::settings.multiprocessors = 6;
  EXPECT_EQ(id(8), first);
}

TEST_F(CublasPromptsTest, AnErrorEndsTheStep) {
  Prepare(8, 40);
  state_->multiplied = CUBLAS_STATUS_EXECUTION_FAILED;
  const auto x = OnDevice(RandomFloats(Elements(3, 40), 2));
  const auto y = OnDevice(std::vector<float>(Elements(3, 8)));
  backend_->prompt_products()->SetRows({{{0, 0, 3}}});
  backend_->MatMul(x->f32(), 3, *weights_, y->f32());
  const absl::Status status = backend_->Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cublasLtMatmul: another error"));
}

TEST_F(CublasPromptsTest, TheMachineMustHaveTheLibrary) {
  BackendOptions options = OptionsOf(kCublasPrefill);
  options.cublas_library = "libcublasLt-that-there-is-not.so";
  const absl::Status status = CreateBackend(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("--prefill cublas: no cuBLAS on this machine"));
}

}  // namespace
}  // namespace nacre::kernels::cuda
