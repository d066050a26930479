// The contract that makes speculation exact: every output row has the same bits
// alone, in any batch, and on any number of threads. Compared as bits, for
// every SIMD target of this machine.

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/weight_type.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels {
namespace {

using BatchInvarianceTest = EveryTargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, BatchInvarianceTest,
                         ::testing::ValuesIn(SupportedSimdTargets()),
                         SimdTargetName);

bool SameBits(const float* a, const float* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

struct MatMulCase {
  int cols;
  int outputs;
  DType dtype;
};

std::vector<MatMulCase> MatMulCases() {
  std::vector<MatMulCase> cases;
  for (const int cols : kAwkwardSizes) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      cases.push_back({cols, 17, dtype});
      cases.push_back({cols, 344, dtype});
    }
  }
  // Many panel groups: more than one level-2 cache of weights.
  cases.push_back({1000, 1000, DType::kF32});
  return cases;
}

TEST_P(BatchInvarianceTest, MatMulRowsHaveTheSameBitsInEveryBatch) {
  const auto backend = MakeBackend("cpu");
  for (const MatMulCase& test : MatMulCases()) {
    const auto x = RandomFloats(static_cast<size_t>(kMaxRows) * test.cols, 1);
    const UnalignedMatrix w(
        RandomFloats(static_cast<size_t>(test.outputs) * test.cols, 2),
        test.outputs, test.cols, test.dtype);
    const auto packed = backend->Pack({w.host()});
    ASSERT_TRUE(packed.ok());
    std::vector<float> alone(static_cast<size_t>(kMaxRows) * test.outputs);
    for (int row = 0; row < kMaxRows; ++row) {
      backend->MatMul(x.data() + row * test.cols, 1, **packed,
                      alone.data() + row * test.outputs);
    }
    for (int rows = 2; rows <= kMaxRows; ++rows) {
      // The last rows, so that a row also changes its place in the batch.
      const int first = kMaxRows - rows;
      std::vector<float> together(static_cast<size_t>(rows) * test.outputs);
      backend->MatMul(x.data() + first * test.cols, rows, **packed,
                      together.data());
      ASSERT_TRUE(SameBits(together.data(), alone.data() + first * test.outputs,
                           together.size()))
          << rows << " rows, cols " << test.cols << ", outputs "
          << test.outputs;
    }
  }
}

TEST_P(BatchInvarianceTest, RmsNormAndSiluMulRowsHaveTheSameBitsInEveryBatch) {
  const auto backend = MakeBackend("cpu");
  for (const int cols : kAwkwardSizes) {
    const auto x = RandomFloats(static_cast<size_t>(kMaxRows) * 2 * cols, 3);
    const auto weight = RandomFloats(2 * cols, 4);
    std::vector<float> norm(kMaxRows * 2 * cols);
    std::vector<float> silu(kMaxRows * cols);
    for (int row = 0; row < kMaxRows; ++row) {
      const float* from = x.data() + row * 2 * cols;
      backend->RmsNorm(from, 1, 2 * cols, weight.data(), 1e-5f,
                       norm.data() + row * 2 * cols);
      backend->SiluMul(from, 1, cols, silu.data() + row * cols);
    }
    for (int rows = 2; rows <= kMaxRows; ++rows) {
      const int first = kMaxRows - rows;
      const float* from = x.data() + first * 2 * cols;
      std::vector<float> out(rows * 2 * cols);
      backend->RmsNorm(from, rows, 2 * cols, weight.data(), 1e-5f, out.data());
      ASSERT_TRUE(SameBits(out.data(), norm.data() + first * 2 * cols,
                           rows * 2 * cols));
      backend->SiluMul(from, rows, cols, out.data());
      ASSERT_TRUE(
          SameBits(out.data(), silu.data() + first * cols, rows * cols));
    }
  }
}

TEST_P(BatchInvarianceTest, RopeRowsHaveTheSameBitsInEveryBatch) {
  const auto backend = MakeBackend("cpu");
  for (const int head_dim : {48, 64, 80, 128}) {
    const int heads = 3;
    const int stride = heads * head_dim;
    const int half = head_dim / 2;
    const auto x = RandomFloats(kMaxRows * stride, 5);
    const auto cos = RandomFloats(kMaxRows * half, 6);
    const auto sin = RandomFloats(kMaxRows * half, 7);
    auto alone = x;
    for (int row = 0; row < kMaxRows; ++row) {
      backend->Rope(alone.data() + row * stride, 1, stride, heads, head_dim,
                    cos.data() + row * half, sin.data() + row * half);
    }
    for (int rows = 2; rows <= kMaxRows; ++rows) {
      const int first = kMaxRows - rows;
      auto together = x;
      backend->Rope(together.data() + first * stride, rows, stride, heads,
                    head_dim, cos.data() + first * half,
                    sin.data() + first * half);
      ASSERT_TRUE(SameBits(together.data() + first * stride,
                           alone.data() + first * stride, rows * stride));
    }
  }
}

TEST_P(BatchInvarianceTest, AttentionRowsHaveTheSameBitsInEveryBatch) {
  const auto backend = MakeBackend("cpu");
  for (const int head_dim : {48, 64, 80, 128}) {
    const int num_heads = 6;
    const DType type = head_dim % 3 == 0 ? DType::kInt8 : DType::kF32;
    const PagedCache cache({3, 200, 2, 16, head_dim, type}, 40);
    std::vector<RowContext> contexts;
    for (int row = 0; row < kMaxRows; ++row) {
      contexts.push_back(cache.Row(row % 3, (row * 37) % 200));
    }
    const int width = num_heads * head_dim;
    const auto q = RandomFloats(kMaxRows * width, 41);
    std::vector<float> alone(kMaxRows * width);
    for (int row = 0; row < kMaxRows; ++row) {
      backend->Attention(q.data() + row * width, width, num_heads, 0.125f,
                         {&contexts[row], 1}, cache.layer(),
                         alone.data() + row * width);
    }
    for (int rows = 2; rows <= kMaxRows; ++rows) {
      const int first = kMaxRows - rows;
      std::vector<float> together(rows * width);
      backend->Attention(q.data() + first * width, width, num_heads, 0.125f,
                         absl::MakeSpan(contexts).subspan(first), cache.layer(),
                         together.data());
      ASSERT_TRUE(SameBits(together.data(), alone.data() + first * width,
                           together.size()))
          << rows << " rows, head_dim " << head_dim;
    }
  }
}

// Rows of a session that follow each other share what they read, in tiles and
// splits that depend on their number.
TEST_P(BatchInvarianceTest, AttentionRowsOfASessionHaveTheSameBitsTogether) {
  const std::vector<int> cores = AllowedCores(2);
  for (const DType type : kKvTypes) {
    for (const int heads_per_kv_head : {1, 4, 7}) {
      const int num_heads = 2 * heads_per_kv_head;
      const int head_dim = 80;
      const int width = num_heads * head_dim;
      const PagedCache cache({2, 230, 2, 16, head_dim, type}, 42);
      const auto q = RandomFloats(2 * kMaxRows * width, 43);
      for (const int context : {0, 1, 15, 47, 60, 64, 127, 190}) {
        std::vector<RowContext> contexts;
        for (int row = 0; row < 2 * kMaxRows; ++row) {
          contexts.push_back(
              cache.Row(row / kMaxRows, context + row % kMaxRows));
        }
        const auto backend = MakeBackend("cpu");
        std::vector<float> alone(q.size());
        for (size_t row = 0; row < contexts.size(); ++row) {
          backend->Attention(q.data() + row * width, width, num_heads, 0.125f,
                             {&contexts[row], 1}, cache.layer(),
                             alone.data() + row * width);
        }
        const auto threads = MakeBackend("cpu", "auto", cores);
        for (const size_t rows : {2, 3, 5, 8, 13, 21, 33, 40, 66}) {
          // The last of the first session, then of the second.
          const size_t first = contexts.size() - rows;
          for (Backend* const each : {backend.get(), threads.get()}) {
            std::vector<float> together(rows * width);
            each->Attention(q.data() + first * width, width, num_heads, 0.125f,
                            absl::MakeSpan(contexts).subspan(first),
                            cache.layer(), together.data());
            ASSERT_TRUE(SameBits(together.data(), alone.data() + first * width,
                                 together.size()))
                << rows << " rows after " << context << ", "
                << heads_per_kv_head << " query heads a KV head";
          }
        }
      }
    }
  }
}

// Not even a later row's NaN reaches an earlier one.
TEST_P(BatchInvarianceTest, AttentionNeverSeesWhatLiesBehindTheRow) {
  const auto backend = MakeBackend("cpu");
  for (const DType type : kKvTypes) {
    for (const int head_dim : {64, 80}) {
      const PagedCache cache({1, 100, 1, 16, head_dim, type}, 44);
      const size_t width = 2 * static_cast<size_t>(head_dim);
      const auto q = RandomFloats(100 * width, 45);
      std::vector<RowContext> contexts;
      for (int p = 0; p < 100; ++p) contexts.push_back(cache.Row(0, p));
      std::vector<float> before(100 * width);
      backend->Attention(q.data(), 2 * head_dim, 2, 0.2f, contexts,
                         cache.layer(), before.data());
      const std::vector<float> nan(head_dim, NAN);
      for (int p = 99; p >= 0; p -= 9) {
        backend->StoreKv(nan.data(), nan.data(), head_dim, {&contexts[p], 1},
                         cache.layer());
        std::vector<float> after(100 * width);
        backend->Attention(q.data(), 2 * head_dim, 2, 0.2f, contexts,
                           cache.layer(), after.data());
        ASSERT_TRUE(SameBits(after.data(), before.data(), p * width))
            << "position " << p << " is NaN";
        EXPECT_TRUE(std::isnan(after[p * width]));
      }
    }
  }
}

TEST_P(BatchInvarianceTest, AttentionDoesNotDependOnTheBlockSize) {
  const auto backend = MakeBackend("cpu");
  const int positions = 150;
  const int head_dim = 64;
  const auto k = RandomFloats(positions * head_dim, 50);
  const auto v = RandomFloats(positions * head_dim, 51);
  const auto q = RandomFloats(head_dim, 52);
  for (const DType type : kKvTypes) {
    std::vector<std::vector<float>> outputs;
    for (const int block_size : {16, 1, 7, 24, 32, 64, 256}) {
      const PagedCache cache({1, positions, 1, block_size, head_dim, type}, 53);
      for (int p = 0; p < positions; ++p) {
        const RowContext row = cache.Row(0, p);
        backend->StoreKv(k.data() + p * head_dim, v.data() + p * head_dim,
                         head_dim, {&row, 1}, cache.layer());
      }
      const RowContext last = cache.Row(0, positions - 1);
      outputs.emplace_back(head_dim);
      backend->Attention(q.data(), head_dim, 1, 0.125f, {&last, 1},
                         cache.layer(), outputs.back().data());
      EXPECT_TRUE(SameBits(outputs.back().data(), outputs[0].data(), head_dim))
          << "block_size " << block_size << " " << KvTypeName(type);
    }
  }
}

// Every op, large enough to be divided among the threads.
std::vector<float> RunEveryOp(Backend& backend) {
  const int rows = kMaxRows;
  const int cols = 688;
  const UnalignedMatrix w(RandomFloats(345 * cols, 2), 345, cols, DType::kBF16);
  const auto packed = backend.Pack({w.host()});
  EXPECT_TRUE(packed.ok());
  std::vector<float> all;
  const auto append = [&all](const std::vector<float>& values) {
    all.insert(all.end(), values.begin(), values.end());
  };
  auto x = RandomFloats(rows * cols, 1);
  std::vector<float> y(rows * 345);
  backend.MatMul(x.data(), rows, **packed, y.data());
  append(y);
  backend.MatMul(x.data(), 1, **packed, y.data());
  append(y);
  std::vector<float> out(rows * cols);
  backend.RmsNorm(x.data(), rows, cols, x.data(), 1e-5f, out.data());
  append(out);
  backend.SiluMul(x.data(), rows, cols / 2, out.data());
  append(out);
  const int head_dim = 43 * 2;
  backend.Rope(x.data(), rows, cols, 8, head_dim, out.data(), y.data());
  append(x);
  backend.Rope(x.data(), rows, cols, 1, 512, out.data(), y.data());
  append(x);
  const PagedCache cache({1, 200, 4, 16, head_dim}, 60);
  std::vector<RowContext> contexts;
  for (int row = 0; row < rows; ++row)
    contexts.push_back(cache.Row(0, 5 * row));
  backend.Attention(x.data(), cols, 8, 0.1f, contexts, cache.layer(),
                    out.data());
  append(out);
  const PagedCache stored({1, 200, 4, 16, head_dim}, 61);
  for (RowContext& context : contexts) {
    context = stored.Row(0, context.position);
  }
  backend.StoreKv(x.data(), out.data(), cols, contexts, stored.layer());
  const auto& words = stored.words();
  all.resize(all.size() + words.size());
  std::memcpy(all.data() + all.size() - words.size(), words.data(),
              words.size() * sizeof(float));
  backend.Scale(x.data(), x.size(), 0.3f);
  append(x);
  backend.SoftCap(x.data(), x.size(), 0.5f);
  append(x);
  backend.AddInPlace(x.data(), out.data(), x.size());
  append(x);
  return all;
}

TEST_P(BatchInvarianceTest, ThreadCountChangesNoBit) {
  const std::vector<int> cores = AllowedCores(4);
  if (cores.size() < 2) GTEST_SKIP() << "this process has one core";
  const auto expected = RunEveryOp(*MakeBackend("cpu"));
  for (size_t threads = 2; threads <= cores.size(); ++threads) {
    const auto backend =
        MakeBackend("cpu", "auto", {cores.begin(), cores.begin() + threads});
    const auto actual = RunEveryOp(*backend);
    ASSERT_EQ(actual.size(), expected.size());
    EXPECT_TRUE(SameBits(actual.data(), expected.data(), actual.size()))
        << threads << " threads";
  }
}

TEST_P(BatchInvarianceTest, NumericsIdNamesTheTargetAndNotTheThreads) {
  const std::string id = MakeBackend("cpu")->numerics_id();
  EXPECT_EQ(MakeBackend("cpu", "auto", AllowedCores(2))->numerics_id(), id);
  EXPECT_NE(MakeBackend("cpu", "f32")->numerics_id(), id);
  EXPECT_EQ(id.rfind("cpu-", 0), 0u);
  EXPECT_NE(id.find("-kvf32-v3"), std::string::npos);
  const std::string bf16 =
      MakeBackend("cpu", "auto", {}, "bf16")->numerics_id();
  EXPECT_NE(bf16.find("-kvbf16-v3"), std::string::npos);
  const std::string int8 =
      MakeBackend("cpu", "auto", {}, "int8")->numerics_id();
  EXPECT_NE(int8.find("-kvint8-v3"), std::string::npos);
}

TEST(NumericsIdTest, DiffersBetweenTargets) {
  std::vector<std::string> ids;
  for (const int64_t target : SupportedSimdTargets()) {
    const ForcedTarget forced(target);
    const std::string id = MakeBackend("cpu")->numerics_id();
    for (const std::string& other : ids) EXPECT_NE(id, other);
    ids.push_back(id);
  }
  EXPECT_FALSE(ids.empty());
}

}  // namespace
}  // namespace nacre::kernels
