// bf16 weights in 12 bits (kernels/cpu/coded_weights.h): the same products, bit
// by bit, as of the weights in 16.

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/aligned_allocator.h"
#include "kernels/cpu/coded_weights.h"
#include "kernels/cpu/dense_matrix.h"
#include "kernels/cpu/gemm.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels {
namespace {

using Weights = std::vector<uint16_t>;

Weights RandomWeights(int outputs, int inputs, uint32_t seed) {
  Weights weights;
  for (const float value :
       RandomFloats(static_cast<size_t>(outputs) * inputs, seed)) {
    weights.push_back(ToBF16(value));
  }
  return weights;
}

std::unique_ptr<DenseMatrix> Pack(const GemmKernels& kernels,
                                  const Weights& weights, int outputs) {
  const auto run_all = [](int count, absl::FunctionRef<void(int, int)> task) {
    task(0, count / 2);
    task(count / 2, count);
  };
  const RunRanges run = run_all;  // which does not own it
  const int inputs = static_cast<int>(weights.size()) / outputs;
  const HostMatrix w = {DType::kBF16, weights.data(), outputs, inputs};
  HostArena memory;
  auto matrix = DenseMatrix::Create(
      StackedWeights({&w, 1}), WeightType::kBF16A16, kernels, run, &memory);
  EXPECT_TRUE(matrix.ok()) << matrix.status();
  return *std::move(matrix);
}

std::vector<float> Multiply(const DenseMatrix& matrix, int rows) {
  const auto x = RandomFloats(static_cast<size_t>(rows) * matrix.cols(), 9);
  const auto packed = hwy::AllocateAligned<char>(matrix.ActivationBytes(rows));
  matrix.PackActivations(x.data(), rows, 0, matrix.num_tiles(rows),
                         packed.get());
  std::vector<float> y(static_cast<size_t>(rows) * matrix.rows(), -1.0f);
  const int half = matrix.num_units() / 2;
  matrix.Multiply(packed.get(), rows, half, matrix.num_units(), y.data());
  matrix.Multiply(packed.get(), rows, 0, half, y.data());
  return y;
}

class CpuCodedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (in_12_.coded == nullptr) {
      GTEST_SKIP() << "no AVX-512 with VBMI and BF16 here";
    }
    in_16_.coded = nullptr;
    in_12_.min_coded_bytes = 0;
  }

  // Returns whether they are kept in 12 bits.
  bool ExpectTheSameBits(const Weights& weights, int outputs,
                         const std::vector<int>& all_rows) {
    const auto expected = Pack(in_16_, weights, outputs);
    const auto actual = Pack(in_12_, weights, outputs);
    for (const int rows : all_rows) {
      const auto y = Multiply(*expected, rows);
      const auto same = Multiply(*actual, rows);
      EXPECT_EQ(std::memcmp(y.data(), same.data(), y.size() * sizeof(float)), 0)
          << rows << " rows, " << weights.size() / outputs << " inputs, "
          << outputs << " outputs";
    }
    return actual->size_bytes() < expected->size_bytes();
  }

  GemmKernels in_12_ = ChooseGemmKernels();
  GemmKernels in_16_ = in_12_;
};

const std::vector<int> kRows = {1, 2, 3, 4, 5, 6, 7, 8, 13, 25, 60, 257};

TEST_F(CpuCodedTest, ProductsHaveTheSameBits) {
  for (const int inputs : {17, 64, 172, 1000, 1031, 2100}) {
    for (const int outputs : {64, 100, 300}) {
      const bool is_coded =
          ExpectTheSameBits(RandomWeights(outputs, inputs, 1), outputs, kRows);
      // Of few weights one without a code is too many.
      EXPECT_TRUE(is_coded || inputs < 172);
    }
  }
}

// Numbers of other sizes, zeros, and what is no number: at the ends of units
// and of what is decoded together, side by side, and over all the matrix.
TEST_F(CpuCodedTest, WeightsWithoutACodeAreExact) {
  constexpr int kOutputs = 200;
  constexpr int kInputs = 2056;
  const uint16_t others[] = {ToBF16(1e30f), ToBF16(-1e-30f), 0x0000, 0x8000,
                             0x0001,        0x7F80,          0x7FC1};
  for (const size_t kinds : {5, 7}) {
    Weights weights = RandomWeights(kOutputs, kInputs, 2);
    size_t next = 0;
    for (size_t i = 0; i < weights.size(); i += 1500 + i % 1111) {
      weights[i] = others[next++ % kinds];
    }
    for (const int output : {0, 63, 64, 199}) {
      for (const int input : {0, 1, 7, 8, 1023, 1024, 2054, 2055}) {
        weights[output * kInputs + input] = others[next++ % kinds];
      }
    }
    EXPECT_TRUE(ExpectTheSameBits(weights, kOutputs, kRows));
  }
}

// Of a unit that is not full, too.
TEST_F(CpuCodedTest, UnitsStoreTheirOwnOutputsOnly) {
  constexpr int kInputs = 1000;
  constexpr float kUntouched = -1.0f;
  for (const int outputs : {65, 79, 80, 100, 127, 128}) {
    for (const GemmKernels& kernels : {in_12_, in_16_}) {
      const auto matrix =
          Pack(kernels, RandomWeights(outputs, kInputs, 1), outputs);
      ASSERT_EQ(matrix->num_units(), 2);
      for (const int rows : {1, 3, 13}) {
        const size_t size = static_cast<size_t>(rows) * outputs;
        const auto x = RandomFloats(static_cast<size_t>(rows) * kInputs, 9);
        const auto packed =
            hwy::AllocateAligned<char>(matrix->ActivationBytes(rows));
        matrix->PackActivations(x.data(), rows, 0, matrix->num_tiles(rows),
                                packed.get());
        std::vector<float> y(size + 64, kUntouched);
        matrix->Multiply(packed.get(), rows, 1, 2, y.data());
        for (size_t i = 0; i < y.size(); ++i) {
          const bool is_its_own = i < size && i % outputs >= 64;
          EXPECT_EQ(y[i] != kUntouched, is_its_own)
              << outputs << " outputs, " << rows << " rows, " << i;
        }
      }
    }
  }
}

TEST_F(CpuCodedTest, ZerosHaveACodeLikeOthers) {
  Weights weights = RandomWeights(130, 512, 3);
  for (size_t i = 0; i < weights.size(); i += 3) weights[i] = 0;
  EXPECT_TRUE(ExpectTheSameBits(weights, 130, kRows));
  std::fill(weights.begin(), weights.end(), uint16_t{0});
  EXPECT_TRUE(ExpectTheSameBits(weights, 130, {1, 30}));
}

TEST_F(CpuCodedTest, WeightsOfManyExponentsStayAsTheyAre) {
  Weights weights = RandomWeights(128, 512, 4);
  for (size_t i = 0; i < weights.size(); ++i) {
    // 40 exponents, 20 high bytes and those of the other sign, about as often.
    weights[i] =
        static_cast<uint16_t>((weights[i] & 0x807F) | (100 + i * 7 % 40) << 7);
  }
  EXPECT_FALSE(ExpectTheSameBits(weights, 128, kRows));
}

// Also where those that are looked at first would have codes.
TEST_F(CpuCodedTest, NoMoreIsKeptAsideThanTold) {
  Weights odd = RandomWeights(15 * 64, 1024, 5);
  for (size_t i = 0; i < odd.size(); ++i) {
    const bool is_sample = i / (64 * 1024) == 7;
    if (is_sample) continue;
    odd[i] = static_cast<uint16_t>((odd[i] & 0x807F) | (100 + i * 7 % 40) << 7);
  }
  EXPECT_FALSE(ExpectTheSameBits(odd, 15 * 64, {1, 5, 40}));
  // One unit of many costs little.
  Weights most = RandomWeights(64 * 64, 128, 5);
  for (size_t i = 0; i < 64; ++i) most[i * 128] = 0x0100;
  EXPECT_TRUE(ExpectTheSameBits(most, 64 * 64, {1, 5, 40}));
}

TEST_F(CpuCodedTest, SmallMatricesStayAsTheyAre) {
  const GemmKernels kernels = ChooseGemmKernels();
  const auto bytes = [&](int outputs) {
    return Pack(kernels, RandomWeights(outputs, 1024, 6), outputs)
        ->size_bytes();
  };
  EXPECT_EQ(bytes(448), 448 * 1024 * 2);
  EXPECT_LT(bytes(512), 512 * 1024 * 2 * 4 / 5);
}

// What is told before the weights are read is enough, and what is told at least
// is needed.
TEST_F(CpuCodedTest, TakesTheMemoryThatIsTold) {
  const Weights weights = RandomWeights(640, 1024, 7);
  const HostMatrix w = {DType::kBF16, weights.data(), 640, 1024};
  const StackedWeights stacked({&w, 1});
  const auto bytes = [&](const GemmKernels& kernels) {
    return DenseMatrix::Bytes(stacked, WeightType::kBF16A16, kernels);
  };
  const auto saved = [&](const GemmKernels& kernels, WeightType type) {
    return DenseMatrix::MayBeSaved(stacked, type, kernels);
  };
  const auto size = [&](const GemmKernels& kernels) {
    return static_cast<size_t>(Pack(kernels, weights, 640)->size_bytes());
  };
  EXPECT_EQ(bytes(in_16_), size(in_16_));
  EXPECT_EQ(saved(in_16_, WeightType::kBF16A16), 0u);
  EXPECT_EQ(saved(in_12_, WeightType::kBF16), 0u);
  EXPECT_LE(size(in_12_), bytes(in_12_));
  const size_t least = bytes(in_12_) - saved(in_12_, WeightType::kBF16A16);
  EXPECT_GE(size(in_12_), least);
  EXPECT_LE(size(in_12_), least + least / 100);
}

// Through the backend and its threads.
TEST_F(CpuCodedTest, RowsHaveTheSameBitsInEveryBatch) {
  constexpr int kOutputs = 700;
  constexpr int kInputs = 1100;
  constexpr int kMost = 300;
  const auto backend = MakeBackend("cpu", "bf16a16", AllowedCores(2));
  const Weights weights = RandomWeights(kOutputs, kInputs, 8);
  const HostMatrix w = {DType::kBF16, weights.data(), kOutputs, kInputs};
  const auto packed = backend->Pack({w});
  ASSERT_TRUE(packed.ok()) << packed.status();
  ASSERT_LT((*packed)->size_bytes(), kOutputs * kInputs * 2)
      << "not in 12 bits";
  const auto x = RandomFloats(size_t{kMost} * kInputs, 1);
  std::vector<float> alone(size_t{kMost} * kOutputs);
  for (size_t row = 0; row < kMost; ++row) {
    backend->MatMul(x.data() + row * kInputs, 1, **packed,
                    alone.data() + row * kOutputs);
  }
  for (int rows = 2; rows <= kMost; rows += rows < 34 ? 1 : 133) {
    std::vector<float> together(static_cast<size_t>(rows) * kOutputs);
    backend->MatMul(x.data(), rows, **packed, together.data());
    ASSERT_EQ(std::memcmp(together.data(), alone.data(),
                          together.size() * sizeof(float)),
              0)
        << rows << " rows";
  }
}

TEST_F(CpuCodedTest, TheBackendCountsWhatIsIn12Bits) {
  constexpr int kOutputs = 640;
  constexpr int kInputs = 1024;
  const auto backend = MakeBackend("cpu", "bf16a16", AllowedCores(1));
  const auto pack = [&](const Weights& weights, int outputs) {
    const HostMatrix w = {DType::kBF16, weights.data(), outputs, kInputs};
    const auto packed = backend->Pack({w});
    EXPECT_TRUE(packed.ok()) << packed.status();
    return backend->PackedBytes({w}) - (*packed)->size_bytes();
  };
  EXPECT_EQ(pack(RandomWeights(64, kInputs, 9), 64), 0);  // a small one
  EXPECT_EQ(backend->Saved().matrices, 0);
  EXPECT_EQ(backend->Saved().others, 0);
  Weights weights = RandomWeights(kOutputs, kInputs, 9);
  const int64_t saved = pack(weights, kOutputs);
  EXPECT_GT(saved, kOutputs * kInputs * 2 / 5);
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] =
        static_cast<uint16_t>((weights[i] & 0x807F) | (100 + i * 7 % 40) << 7);
  }
  EXPECT_EQ(pack(weights, kOutputs), 0);
  EXPECT_EQ(backend->Saved().matrices, 1);
  EXPECT_EQ(backend->Saved().bytes, saved);
  EXPECT_EQ(backend->Saved().others, 1);
}

TEST(CodedWeightsTest, TheMostFrequentHighBytesHaveCodes) {
  constexpr size_t kSteps = 64;
  Weights weights(kSteps * kCodedStepWeights);
  // High byte 60 + k, or that of the negative numbers, k times in 20 * 21 / 2,
  // and of each step all.
  const auto high_byte = [](int k) { return 60 + k + (k % 2) * 0x80; };
  size_t i = 0;
  while (i < weights.size()) {
    for (int k = 1; k <= 20; ++k) {
      for (int n = 0; n < k && i < weights.size(); ++n) {
        weights[i++] = static_cast<uint16_t>(high_byte(k) << 8 | n);
      }
    }
  }
  CodedUnit unit;
  ChooseHighBytes(weights.data(), kSteps, &unit);
  std::set<int> expected;
  for (int k = 5; k <= 20; ++k) expected.insert(high_byte(k));
  EXPECT_EQ(std::set<int>(unit.high, unit.high + kHighBytes), expected);
}

// Units of few inputs, as trained weights have them: small ones are rare.
TEST(CodedWeightsTest, NormalWeightsOfFewInputsHaveCodes) {
  for (const size_t inputs : {64, 128, 256, 768}) {
    const size_t steps = inputs / 2;
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 0.03f);
    size_t without = 0;
    constexpr size_t kUnits = 64;
    for (size_t u = 0; u < kUnits; ++u) {
      Weights weights(steps * kCodedStepWeights);
      for (uint16_t& weight : weights) weight = ToBF16(normal(random));
      CodedUnit unit;
      ChooseHighBytes(weights.data(), steps, &unit);
      const std::set<int> high(unit.high, unit.high + kHighBytes);
      for (const uint16_t weight : weights)
        without += !high.contains(weight >> 8);
    }
    EXPECT_LT(without * 5000, kUnits * steps * kCodedStepWeights) << inputs;
  }
}

// The last weights count as much as the first.
TEST(CodedWeightsTest, EveryWeightCounts) {
  constexpr size_t kSteps = 50;
  Weights weights(kSteps * kCodedStepWeights, uint16_t{100 << 8});
  // 15 other high bytes, each in one step alone, far from the rest.
  std::set<int> expected = {100};
  for (int k = 0; k < 15; ++k) {
    weights[(3 * k + 4) * kCodedStepWeights + k] =
        static_cast<uint16_t>((10 + 2 * k) << 8);
    expected.insert(10 + 2 * k);
  }
  CodedUnit unit;
  ChooseHighBytes(weights.data(), kSteps, &unit);
  EXPECT_EQ(std::set<int>(unit.high, unit.high + kHighBytes), expected);
}

// Of bytes that no weight has, those just below the rest, of both signs.
TEST(CodedWeightsTest, BytesNextToTheRestHaveTheCodesLeft) {
  const Weights weights(kCodedStepWeights, uint16_t{70 << 8});
  CodedUnit unit;
  ChooseHighBytes(weights.data(), 1, &unit);
  std::set<int> expected;
  for (int k = 63; k <= 70; ++k) expected.insert({k, 0x80 | k});
  EXPECT_EQ(std::set<int>(unit.high, unit.high + kHighBytes), expected);
}

// The rest is where most weights are, whatever their sign.
TEST(CodedWeightsTest, BothSignsCount) {
  Weights weights(kCodedStepWeights, uint16_t{(0x80 | 70) << 8});
  std::fill_n(weights.begin(), 28, uint16_t{50 << 8});
  CodedUnit unit;
  ChooseHighBytes(weights.data(), 1, &unit);
  std::set<int> expected = {50, 63};
  for (int k = 64; k <= 70; ++k) expected.insert({k, 0x80 | k});
  EXPECT_EQ(std::set<int>(unit.high, unit.high + kHighBytes), expected);
}

// Where too little is below, the next above.
TEST(CodedWeightsTest, BytesAboveAreTheLast) {
  const Weights weights(kCodedStepWeights, uint16_t{3 << 8});
  CodedUnit unit;
  ChooseHighBytes(weights.data(), 1, &unit);
  std::set<int> expected;
  for (int k = 0; k <= 7; ++k) expected.insert({k, 0x80 | k});
  EXPECT_EQ(std::set<int>(unit.high, unit.high + kHighBytes), expected);
}

}  // namespace
}  // namespace nacre::kernels
