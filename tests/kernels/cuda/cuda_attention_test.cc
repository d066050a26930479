// Attention over a bf16 cache on the tensor cores: accuracy, and the bits of a
// row whatever stands around it. On the emulated device, and on a GPU where
// there is one. (What holds for every cache type is tested beside the other
// operations.)

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/host_view.h"
#include "tests/kernels/kernel_testing.h"
#ifdef NACRE_EMULATED_CUDA
#include "tests/kernels/cuda/emulation/runtime.h"
#endif

namespace nacre::kernels {
namespace {

constexpr int kSplit = cuda::kAttentionSplit;
constexpr int kKvHeads = 2;
constexpr float kScale = 0.2f;
constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2 = 0.69314718055994531f;

std::unique_ptr<Backend> MakeBF16Backend(CudaBackendOptions options) {
  auto device = cuda::Device::Open(0);
  EXPECT_TRUE(device.ok()) << device.status();
  auto staging = cuda::Staging::Create(device->get());
  EXPECT_TRUE(staging.ok()) << staging.status();
  return std::make_unique<HostView>(
      std::make_unique<CudaBackend>(*std::move(device), *std::move(staging),
                                    WeightType::kAuto, DType::kBF16, options));
}

// Rows of sessions after each other, and their queries.
struct Batch {
  Batch(int heads_per_kv_head, int dims, int row_count)
      : heads(kKvHeads * heads_per_kv_head),
        head_dim(dims),
        width(heads * head_dim),
        q(RandomFloats(static_cast<size_t>(row_count) * width, 7)) {}

  // Of rows [first, first + count).
  std::vector<float> Attend(Backend& backend, const KvLayer& layer,
                            size_t first, size_t count) const {
    std::vector<float> out(count * width, NAN);
    backend.Attention(q.data() + first * width, width, heads, rule,
                      absl::MakeSpan(rows).subspan(first, count), layer,
                      out.data());
    return out;
  }
  // Each row by itself.
  std::vector<float> AttendAlone(Backend& backend, const KvLayer& layer) const {
    std::vector<float> all;
    for (size_t row = 0; row < rows.size(); ++row) {
      const auto one = Attend(backend, layer, row, 1);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  int heads;
  int head_dim;
  size_t width;
  std::vector<float> q;
  std::vector<RowContext> rows;
  AttentionRule rule = kScale;
};

// The first of `rows` whose bits are not those of `expected`, which starts at
// row `first`; -1: none.
int FirstDifference(const std::vector<float>& actual,
                    const std::vector<float>& expected, size_t first,
                    size_t width) {
  for (size_t row = 0; row < actual.size() / width; ++row) {
    if (std::memcmp(actual.data() + row * width,
                    expected.data() + (first + row) * width,
                    width * sizeof(float)) != 0) {
      return static_cast<int>(row);
    }
  }
  return -1;
}

TEST(CudaAttentionTest, AgreesWithTheReferenceForEveryShape) {
  if (MakeCudaBackend() == nullptr) GTEST_SKIP() << "no CUDA device";
  const auto backend = MakeBF16Backend({});
  const auto reference = MakeBackend("reference");
  for (const int group : {1, 3, 4, 8}) {
    for (const int head_dim : {16, 48, 64, 80, 128}) {
      const PagedCache cache(
          {3, 3 * kSplit, kKvHeads, 16, head_dim, DType::kBF16}, 5);
      Batch batch(group, head_dim, 19);
      for (const int context :
           {1, 15, 16, 17, kSplit - 1, kSplit, kSplit + 1, 3 * kSplit}) {
        batch.rows.push_back(cache.Row(context % 3, context - 1));
      }
      for (int row = 0; row < 11; ++row) {  // together in tiles
        batch.rows.push_back(cache.Row(1, kSplit - 5 + row));
      }
      auto q = batch.q;
      for (float& value : q) {
        value = FromBF16(ToBF16(value * (kScale * kLog2E)));
      }
      std::vector<float> expected(q.size(), NAN);
      std::vector<float> unrounded(q.size(), NAN);
      const int width = static_cast<int>(batch.width);
      reference->Attention(q.data(), width, batch.heads, kLn2, batch.rows,
                           cache.layer(), expected.data());
      reference->Attention(batch.q.data(), width, batch.heads, kScale,
                           batch.rows, cache.layer(), unrounded.data());
      const auto actual =
          batch.Attend(*backend, cache.layer(), 0, batch.rows.size());
      // Values and queries lie in [-1, 1]. Weights are rounded: 2^-9 of each,
      // times how far its value may be from the mean.
      const double score = kScale * head_dim;
      const double weights = 0x1.02p-8;
      const double sums =
          SumTolerance(3 * kSplit) + 2 * score * SumTolerance(head_dim);
      // Queries are, too: 2^-9 of a score's products.
      const double queries = 2 * std::expm1(score * 0x1p-9);
      for (size_t i = 0; i < actual.size(); ++i) {
        ASSERT_NEAR(actual[i], expected[i], weights + sums)
            << "group " << group << " head_dim " << head_dim << " row "
            << i / batch.width << " element " << i % batch.width;
        ASSERT_NEAR(actual[i], unrounded[i], queries + weights + sums);
      }
    }
  }
}

// Weights add up to 1 after rounding, not before.
TEST(CudaAttentionTest, EqualValuesAreTheirMean) {
  if (MakeCudaBackend() == nullptr) GTEST_SKIP() << "no CUDA device";
  const auto backend = MakeBF16Backend({});
  const int positions = kSplit + 60;
  const int head_dim = 64;
  const PagedCache cache({1, positions, kKvHeads, 16, head_dim, DType::kBF16},
                         5);
  Batch batch(3, head_dim, positions);
  const std::vector<float> k =
      RandomFloats(static_cast<size_t>(positions) * kKvHeads * head_dim, 8, 4);
  const std::vector<float> v(k.size(), 0.75f);
  for (int p = 0; p < positions; ++p) batch.rows.push_back(cache.Row(0, p));
  backend->StoreKv(k.data(), v.data(), kKvHeads * head_dim, batch.rows,
                   cache.layer());
  for (const float value :
       batch.Attend(*backend, cache.layer(), 0, batch.rows.size())) {
    ASSERT_NEAR(value, 0.75f, 2 * SumTolerance(positions));
  }
}

TEST(CudaAttentionTest, RowsHaveTheSameBitsInEveryBatch) {
  if (MakeCudaBackend() == nullptr) GTEST_SKIP() << "no CUDA device";
  const auto backend = MakeBF16Backend({});
  const auto in_chunks = MakeBF16Backend({.max_partial_bytes = 20000});
  struct Case {
    int group;
    int head_dim;
    std::vector<size_t> rows;
  };
  std::vector<Case> cases = {{1, 128, {2, 17, 33}},
                             {3, 48, {5, 20, 33}},
                             {8, 80, {3, 9, 33}},
                             {72, 16, {3, 9}},
                             {2, 256, {3, 33}}};
  cases.push_back({4, 64, {}});
  for (size_t rows = 1; rows <= 33; ++rows) cases.back().rows.push_back(rows);
  for (const auto& [group, head_dim, counts] : cases) {
    const PagedCache cache(
        {3, 2 * kSplit + 40, kKvHeads, 16, head_dim, DType::kBF16}, 5);
    Batch batch(group, head_dim, 33);
    for (int row = 0; row < 33; ++row) {
      // Sessions of 9, 20 and 4 rows.
      const int session = row < 9 ? 0 : row < 29 ? 1 : 2;
      const int context[] = {0, kSplit - 12, 2 * kSplit - 2};
      batch.rows.push_back(cache.Row(
          session, context[session] + row % 9 + (session == 1 ? row : 0)));
    }
    const auto alone = batch.AttendAlone(*backend, cache.layer());
    for (const size_t rows : counts) {
      // The last rows, so that a row also changes its place in the batch.
      const size_t first = batch.rows.size() - rows;
      for (Backend* const each : {backend.get(), in_chunks.get()}) {
        ASSERT_EQ(
            FirstDifference(batch.Attend(*each, cache.layer(), first, rows),
                            alone, first, batch.width),
            -1)
            << rows << " rows, group " << group << ", head_dim " << head_dim;
      }
    }
  }
}

// A prompt in one step, where blocks take all splits of a tile; in the steps of
// other schedules; in an order that no prompt has.
TEST(CudaAttentionTest, APromptHasTheSameBitsHoweverItIsCut) {
  if (MakeCudaBackend() == nullptr) GTEST_SKIP() << "no CUDA device";
  const auto whole = MakeBF16Backend({.least_whole_blocks = 1});
  const auto in_splits = MakeBF16Backend({.least_whole_blocks = 1 << 20});
  for (const auto& [group, head_dim] :
       std::vector<std::pair<int, int>>{{4, 64}, {3, 80}}) {
    const size_t positions = 2 * kSplit + 21;
    const PagedCache cache(
        {1, static_cast<int>(positions), kKvHeads, 16, head_dim, DType::kBF16},
        5);
    Batch batch(group, head_dim, static_cast<int>(positions));
    for (size_t p = 0; p < positions; ++p) {
      batch.rows.push_back(cache.Row(0, static_cast<int>(p)));
    }
    const auto& layer = cache.layer();
    const auto expected = batch.Attend(*whole, layer, 0, positions);
    for (const size_t row : {size_t{0}, size_t{17}, positions - 1}) {
      EXPECT_EQ(FirstDifference(batch.Attend(*whole, layer, row, 1), expected,
                                row, batch.width),
                -1)
          << "row " << row;
    }
    for (const size_t step : {size_t{37}, size_t{100}}) {
      for (Backend* const each : {whole.get(), in_splits.get()}) {
        for (size_t row = 0; row < positions; row += step) {
          const size_t count = std::min(step, positions - row);
          ASSERT_EQ(FirstDifference(batch.Attend(*each, layer, row, count),
                                    expected, row, batch.width),
                    -1)
              << "steps of " << step << ", group " << group;
        }
      }
    }
    EXPECT_EQ(FirstDifference(batch.Attend(*in_splits, layer, 0, positions),
                              expected, 0, batch.width),
              -1);
    Batch reversed(group, head_dim, static_cast<int>(positions));
    for (size_t row = 0; row < positions; ++row) {
      const size_t from = positions - 1 - row;
      reversed.rows.push_back(batch.rows[from]);
      std::copy_n(batch.q.begin() + from * batch.width, batch.width,
                  reversed.q.begin() + row * batch.width);
    }
    auto turned = reversed.Attend(*whole, layer, 0, positions);
    for (size_t row = 0; row < positions / 2; ++row) {
      std::swap_ranges(turned.begin() + row * batch.width,
                       turned.begin() + (row + 1) * batch.width,
                       turned.end() - (row + 1) * batch.width);
    }
    EXPECT_EQ(FirstDifference(turned, expected, 0, batch.width), -1);
  }
}

// Past the positions from which on splits are longer.
TEST(CudaAttentionTest, LongContextsHaveTheSameBitsInEveryBatch) {
  if (MakeCudaBackend() == nullptr) GTEST_SKIP() << "no CUDA device";
  const auto whole = MakeBF16Backend({.least_whole_blocks = 1});
  const auto in_splits = MakeBF16Backend({.least_whole_blocks = 1 << 20});
  const auto reference = MakeBackend("reference");
  constexpr int kHeadDim = 16;
  constexpr int kRows = 70;
  for (const int end : {cuda::SplitRule::kMiddle, cuda::SplitRule::kLong}) {
    const int positions = end + 40;
    const PagedCache cache({1, positions, kKvHeads, 16, kHeadDim, DType::kBF16},
                           5);
    Batch batch(2, kHeadDim, kRows);
    for (int row = 0; row < kRows; ++row) {
      batch.rows.push_back(cache.Row(0, positions - kRows + row));
    }
    const auto& layer = cache.layer();
    const auto expected = batch.Attend(*whole, layer, 0, kRows);
    EXPECT_EQ(FirstDifference(batch.Attend(*in_splits, layer, 0, kRows),
                              expected, 0, batch.width),
              -1);
    for (const size_t row :
         {size_t{0}, size_t{kRows - 40}, size_t{kRows - 1}}) {
      EXPECT_EQ(FirstDifference(batch.Attend(*whole, layer, row, 1), expected,
                                row, batch.width),
                -1)
          << "row " << row << " after " << end;
    }
    // A window that begins and ends in splits of different lengths.
    batch.rule.window = 300;
    const auto windowed = batch.Attend(*whole, layer, 0, kRows);
    EXPECT_EQ(FirstDifference(batch.Attend(*in_splits, layer, kRows - 9, 9),
                              windowed, kRows - 9, batch.width),
              -1);
    batch.rule.window = AttentionRule(kScale).window;
    // The last row: it sees the most.
    std::vector<float> close(batch.width, NAN);
    const int width = static_cast<int>(batch.width);
    reference->Attention(
        batch.q.data() + (kRows - 1) * batch.width, width, batch.heads, kScale,
        absl::MakeSpan(batch.rows).subspan(kRows - 1, 1), layer, close.data());
    for (size_t i = 0; i < batch.width; ++i) {
      EXPECT_NEAR(expected[(kRows - 1) * batch.width + i], close[i], 0.01f);
    }
  }
}

#ifdef NACRE_EMULATED_CUDA
// Where blocks have less shared memory fewer queries have one together.
TEST(CudaAttentionTest, APromptHasTheSameBitsOnSmallerMultiprocessors) {
  const int limit = cuda::emulation::settings.shared_limit;
  constexpr int kRows = 64;
  const PagedCache cache({1, kRows, kKvHeads, 16, 128, DType::kBF16}, 5);
  Batch batch(4, 128, kRows);
  for (int p = 0; p < kRows; ++p) batch.rows.push_back(cache.Row(0, p));
  std::vector<float> expected;
  for (const int kilobytes : {227, 163, 99}) {
    cuda::emulation::settings.shared_limit = kilobytes << 10;
    const auto whole = MakeBF16Backend({.least_whole_blocks = 1});
    const auto actual = batch.Attend(*whole, cache.layer(), 0, kRows);
    if (expected.empty()) expected = actual;
    EXPECT_FALSE(std::isnan(actual.back()));
    EXPECT_EQ(FirstDifference(actual, expected, 0, batch.width), -1)
        << kilobytes << " KB";
  }
  cuda::emulation::settings.shared_limit = limit;
}
#endif

// As above: windows that begin before a tile, in it, and in the split before.
TEST(CudaAttentionTest, APromptWithAWindowHasTheSameBitsHoweverItIsCut) {
  if (MakeCudaBackend() == nullptr) GTEST_SKIP() << "no CUDA device";
  const auto whole = MakeBF16Backend({.least_whole_blocks = 1});
  const auto in_splits = MakeBF16Backend({.least_whole_blocks = 1 << 20});
  const size_t positions = 2 * kSplit + 21;
  const PagedCache cache(
      {1, static_cast<int>(positions), kKvHeads, 16, 64, DType::kBF16}, 5);
  Batch batch(4, 64, static_cast<int>(positions));
  for (size_t p = 0; p < positions; ++p) {
    batch.rows.push_back(cache.Row(0, static_cast<int>(p)));
  }
  for (const int window : {3, 40, 129, 200}) {
    batch.rule.window = window;
    batch.rule.soft_cap = window == 40 ? 1.5f : 0.0f;
    const auto expected = batch.Attend(*whole, cache.layer(), 0, positions);
    EXPECT_EQ(
        FirstDifference(batch.Attend(*in_splits, cache.layer(), 0, positions),
                        expected, 0, batch.width),
        -1)
        << "window " << window;
    for (const size_t row : {size_t{0}, size_t{130}, positions - 1}) {
      EXPECT_EQ(FirstDifference(batch.Attend(*whole, cache.layer(), row, 1),
                                expected, row, batch.width),
                -1)
          << "window " << window << ", row " << row;
    }
  }
}

// Whether what a later row stored moves no bit of an earlier one, and the later
// one does not lose it.
void CheckLaterValues(const std::vector<float>& later_values) {
  const auto whole = MakeBF16Backend({.least_whole_blocks = 1});
  const auto in_splits = MakeBF16Backend({.least_whole_blocks = 1 << 20});
  constexpr int kPositions = 192;  // full tiles, for the whole ones
  for (const int head_dim : {48, 80}) {
    Batch batch(4, head_dim, kPositions);
    const size_t kv_width = static_cast<size_t>(kKvHeads) * head_dim;
    const auto stored = RandomFloats(kv_width, 9);
    for (const float bad : later_values) {
      const PagedCache cache(
          {1, kPositions, kKvHeads, 16, head_dim, DType::kBF16}, 5);
      batch.rows.clear();
      for (int p = 0; p < kPositions; ++p)
        batch.rows.push_back(cache.Row(0, p));
      const auto& layer = cache.layer();
      const auto before = batch.Attend(*whole, layer, 0, kPositions);
      std::vector<float> k = stored;
      std::vector<float> v(kv_width, 0.5f);
      v[3] = bad;
      for (const int p : {190, 129, 5}) {  // 129: the second of a tile
        whole->StoreKv(k.data(), v.data(), static_cast<int>(kv_width),
                       {&batch.rows[p], 1}, layer);
        const auto after = batch.Attend(*whole, layer, 0, kPositions);
        for (int row = 0; row < p; ++row) {
          ASSERT_EQ(
              std::memcmp(&after[row * batch.width], &before[row * batch.width],
                          batch.width * sizeof(float)),
              0)
              << "row " << row << " of " << p << ", " << bad;
        }
        // As alone, but for a NaN's bits.
        const auto split = batch.Attend(*in_splits, layer, 0, kPositions);
        const auto alone = batch.Attend(*whole, layer, p, 1);
        for (size_t i = 0; i < after.size(); ++i) {
          ASSERT_TRUE(after[i] == split[i] ||
                      (std::isnan(after[i]) && std::isnan(split[i])));
        }
        for (size_t i = 0; i < alone.size(); ++i) {
          const float together = after[p * batch.width + i];
          ASSERT_TRUE(alone[i] == together ||
                      (std::isnan(alone[i]) && std::isnan(together)));
        }
        if (!std::isfinite(bad)) {
          EXPECT_FALSE(std::isfinite(alone[3]));
          EXPECT_TRUE(std::isfinite(alone[4]));
        }
      }
    }
  }
}

TEST(CudaAttentionTest, ALaterRowsNumbersMoveNothing) {
  if (MakeCudaBackend() == nullptr) GTEST_SKIP() << "no CUDA device";
  CheckLaterValues({NAN, -INFINITY, 0x1p60f});
}

// Likewise numbers that no model has. A test of its own: a tensor core that
// aligned a sum to the exponent of zero times such a number would fail it
// alone. That is no reason to change the kernel: then 2^60 is what it promises.
TEST(CudaAttentionTest, ALaterRowsLargestNumbersMoveNothing) {
  if (MakeCudaBackend() == nullptr) GTEST_SKIP() << "no CUDA device";
  CheckLaterValues({3e38f});
}

// Not what lies in blocks that others have, and in none of its own that it did
// not write yet.
TEST(CudaAttentionTest, WhatIsNotTheContextsMovesNothing) {
  if (MakeCudaBackend() == nullptr) GTEST_SKIP() << "no CUDA device";
  const auto backend = MakeBF16Backend({});
  for (const int head_dim : {20, 128}) {
    for (const int block_size : {7, 16}) {
      const int positions = kSplit + 50;
      const PagedCache cache(
          {2, positions, kKvHeads, block_size, head_dim, DType::kBF16}, 5);
      Batch batch(3, head_dim, 5);
      for (int row = 0; row < 5; ++row) {
        batch.rows.push_back(cache.Row(0, kSplit + row));
      }
      const auto& layer = cache.layer();
      const auto before = batch.Attend(*backend, layer, 0, 5);
      std::vector<RowContext> others;
      for (int p = 0; p < positions; ++p) {
        others.push_back(cache.Row(1, p));
        if (p >= kSplit + 5) others.push_back(cache.Row(0, p));
      }
      const size_t width = static_cast<size_t>(kKvHeads) * head_dim;
      const std::vector<float> nan(others.size() * width, NAN);
      backend->StoreKv(nan.data(), nan.data(), static_cast<int>(width), others,
                       layer);
      EXPECT_EQ(FirstDifference(batch.Attend(*backend, layer, 0, 5), before, 0,
                                batch.width),
                -1)
          << "head_dim " << head_dim << " block_size " << block_size;
    }
  }
}

TEST(CudaAttentionTest, BitsDoNotDependOnTheBlockSize) {
  if (MakeCudaBackend() == nullptr) GTEST_SKIP() << "no CUDA device";
  const auto backend = MakeBF16Backend({});
  const int positions = kSplit + 22;
  for (const int head_dim : {20, 64, 80, 136}) {
    const size_t width = static_cast<size_t>(kKvHeads) * head_dim;
    const auto k = RandomFloats(positions * width, 50);
    const auto v = RandomFloats(positions * width, 51);
    std::vector<float> expected;
    for (const int block_size : {16, 1, 6, 12, 64}) {
      const PagedCache cache(
          {1, positions, kKvHeads, block_size, head_dim, DType::kBF16}, 53);
      Batch batch(2, head_dim, positions);
      for (int p = 0; p < positions; ++p) batch.rows.push_back(cache.Row(0, p));
      backend->StoreKv(k.data(), v.data(), static_cast<int>(width), batch.rows,
                       cache.layer());
      const auto actual = batch.Attend(*backend, cache.layer(), 100, 50);
      if (expected.empty()) expected = actual;
      EXPECT_EQ(FirstDifference(actual, expected, 0, batch.width), -1)
          << "block_size " << block_size << " head_dim " << head_dim;
    }
  }
}

// Every position has the same weight, the last another value.
TEST(CudaAttentionTest, AContextMayBeLong) {
  if (MakeCudaBackend() == nullptr) GTEST_SKIP() << "no CUDA device";
  const auto backend = MakeBF16Backend({});
  const int positions = 1 << 17;
  const int head_dim = 8;
  const PagedCache cache({1, positions, 1, 16, head_dim, DType::kBF16}, 53);
  std::vector<RowContext> rows = {cache.Row(0, positions - 1)};
  const std::vector<float> q(head_dim, 0.0f);
  std::vector<float> out(head_dim, NAN);
  backend->Attention(q.data(), head_dim, 1, kScale, rows, cache.layer(),
                     out.data());
  const std::vector<float> before = out;
  for (const float value : before) EXPECT_NEAR(value, 0.0f, 0.01f);
  const std::vector<float> v(head_dim, 1 << 14);
  backend->StoreKv(q.data(), v.data(), head_dim, rows, cache.layer());
  backend->Attention(q.data(), head_dim, 1, kScale, rows, cache.layer(),
                     out.data());
  for (int d = 0; d < head_dim; ++d) {
    EXPECT_NEAR(out[d] - before[d], 0.125f, 1e-3f);
  }
}

}  // namespace
}  // namespace nacre::kernels
