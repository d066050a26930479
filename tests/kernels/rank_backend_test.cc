#include "kernels/rank_backend.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/shared_memory_collective.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/rank_threads.h"

namespace nacre::kernels {
namespace {

using ::testing::HasSubstr;

using Values = std::vector<float>;

// A group of ranks, each on an inner backend of its own.
struct Ranks {
  Ranks(int count, const std::string& kind, const std::string& weights)
      : collectives(MakeSharedMemoryCollectives(count)) {
    for (const auto& collective : collectives) {
      backends.push_back(std::make_unique<RankBackend>(
          MakeBackend(kind, weights), collective.get()));
    }
  }
  int count() const { return static_cast<int>(backends.size()); }

  std::vector<std::unique_ptr<Collective>> collectives;
  std::vector<std::unique_ptr<RankBackend>> backends;
};

// Rows [first_row, + rows) and columns [first_col, + cols) of a matrix.
Values Block(const Values& matrix, int all_cols, int first_row, int rows,
             int first_col, int cols) {
  Values block;
  for (int row = first_row; row < first_row + rows; ++row) {
    const auto from = matrix.begin() + row * all_cols + first_col;
    block.insert(block.end(), from, from + cols);
  }
  return block;
}

// The definition of a product whose inputs are split: each shard by itself,
// summed in double and rounded, then neighbours in pairs.
Values ScalarShardedProduct(const Values& x, int rows, const Values& w,
                            int outputs, int cols) {
  const int each = cols / kInputShards;
  std::vector<Values> sums;
  for (int shard = 0; shard < kInputShards; ++shard) {
    Values& sum = sums.emplace_back();
    for (int row = 0; row < rows; ++row) {
      for (int output = 0; output < outputs; ++output) {
        double total = 0;
        for (int k = shard * each; k < (shard + 1) * each; ++k) {
          total += double{x[static_cast<size_t>(row * cols + k)]} *
                   w[static_cast<size_t>(output * cols + k)];
        }
        sum.push_back(static_cast<float>(total));
      }
    }
  }
  for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
    for (size_t i = 0; i < sums.size() / 2; ++i) {
      Values pair = sums[2 * i];
      for (size_t j = 0; j < pair.size(); ++j) pair[j] += sums[2 * i + 1][j];
      sums[i] = pair;
    }
  }
  return sums[0];
}

// y of every rank.
std::vector<Values> ShardedProduct(Ranks& ranks, const Values& x, int rows,
                                   const Values& w, int outputs, int cols) {
  std::vector<Values> products(ranks.backends.size());
  OnEveryRank(ranks.count(), [&](int rank) {
    RankBackend& backend = *ranks.backends[static_cast<size_t>(rank)];
    const int each = cols / kInputShards;
    const int shards = kInputShards / ranks.count();
    std::vector<Values> blocks;
    std::vector<HostMatrix> matrices;
    for (int i = 0; i < shards; ++i) {
      blocks.push_back(
          Block(w, cols, 0, outputs, (rank * shards + i) * each, each));
      matrices.push_back({DType::kF32, blocks.back().data(), outputs, each});
    }
    const auto packed = backend.PackInputs(matrices);
    ASSERT_TRUE(packed.ok()) << packed.status();
    EXPECT_EQ((*packed)->rows(), outputs);
    EXPECT_EQ((*packed)->cols(), shards * each);
    const Values own =
        Block(x, cols, 0, rows, rank * shards * each, shards * each);
    Values& y = products[static_cast<size_t>(rank)];
    y.resize(static_cast<size_t>(rows * outputs));
    backend.MatMul(own.data(), rows, **packed, y.data());
    EXPECT_TRUE(backend.Synchronize().ok());
  });
  return products;
}

struct Size {
  int rows, outputs, each;  // inputs of a shard
};
constexpr Size kSizes[] = {{1, 3, 1}, {1, 52, 25}, {5, 17, 13}, {33, 100, 64}};

TEST(RankBackendTest, SplitInputsOfTheReferenceAreTheDefinition) {
  for (const Size& size : kSizes) {
    const int cols = size.each * kInputShards;
    const Values x = RandomFloats(static_cast<size_t>(size.rows * cols), 1);
    const Values w = RandomFloats(static_cast<size_t>(size.outputs * cols), 2);
    const Values expected =
        ScalarShardedProduct(x, size.rows, w, size.outputs, cols);
    for (const int count : {1, 2, 4, 8}) {
      Ranks ranks(count, "reference", "f32");
      for (const Values& y :
           ShardedProduct(ranks, x, size.rows, w, size.outputs, cols)) {
        EXPECT_EQ(y, expected) << count << " ranks, " << size.rows << " rows";
      }
    }
  }
}

TEST(RankBackendTest, SplitInputsHaveTheSameBitsForAnyNumberOfRanksAndRows) {
  for (const char* weights : {"f32", "bf16", "bf16a16", "int8", "int4"}) {
    for (const Size& size : kSizes) {
      const int cols = size.each * kInputShards;
      const Values x = RandomFloats(static_cast<size_t>(size.rows * cols), 3);
      const Values w =
          RandomFloats(static_cast<size_t>(size.outputs * cols), 4);
      Ranks one(1, "cpu", weights);
      const Values expected =
          ShardedProduct(one, x, size.rows, w, size.outputs, cols)[0];
      for (const int count : {2, 4, 8}) {
        Ranks ranks(count, "cpu", weights);
        for (const Values& y :
             ShardedProduct(ranks, x, size.rows, w, size.outputs, cols)) {
          EXPECT_EQ(y, expected) << weights << ", " << count << " ranks";
        }
      }
      // The last row alone.
      const Values row = Block(x, cols, size.rows - 1, 1, 0, cols);
      EXPECT_EQ(
          ShardedProduct(one, row, 1, w, size.outputs, cols)[0],
          Block(expected, size.outputs, size.rows - 1, 1, 0, size.outputs))
          << weights;
    }
  }
}

TEST(RankBackendTest, SplitInputsAreCloseToTheWholeProduct) {
  constexpr int kRows = 4, kOutputs = 30, kCols = 104;
  const Values x = RandomFloats(kRows * kCols, 5);
  const Values w = RandomFloats(kOutputs * kCols, 6);
  Ranks ranks(2, "cpu", "f32");
  const Values y = ShardedProduct(ranks, x, kRows, w, kOutputs, kCols)[1];
  for (int row = 0; row < kRows; ++row) {
    for (int output = 0; output < kOutputs; ++output) {
      double total = 0, magnitude = 0;
      for (int k = 0; k < kCols; ++k) {
        const double term = double{x[static_cast<size_t>(row * kCols + k)]} *
                            w[static_cast<size_t>(output * kCols + k)];
        total += term;
        magnitude += std::abs(term);
      }
      EXPECT_NEAR(y[static_cast<size_t>(row * kOutputs + output)], total,
                  SumTolerance(kCols) * magnitude);
    }
  }
}

TEST(RankBackendTest, SplitOutputsAreThoseOfTheWholeMatrixOnRankZero) {
  constexpr int kRows = 3, kOutputs = 40, kCols = 21;
  const Values x = RandomFloats(kRows * kCols, 7);
  const Values w = RandomFloats(kOutputs * kCols, 8);
  for (const char* weights : {"f32", "bf16", "int8"}) {
    const auto plain = MakeBackend("cpu", weights);
    const auto whole = plain->Pack({{DType::kF32, w.data(), kOutputs, kCols}});
    Values expected(kRows * kOutputs);
    plain->MatMul(x.data(), kRows, **whole, expected.data());
    for (const int count : {1, 2, 4, 8}) {
      Ranks ranks(count, "cpu", weights);
      Values y(kRows * kOutputs);
      OnEveryRank(count, [&](int rank) {
        RankBackend& backend = *ranks.backends[static_cast<size_t>(rank)];
        const int each = kOutputs / count;
        const Values own = Block(w, kCols, rank * each, each, 0, kCols);
        const auto packed =
            backend.PackOutputs({DType::kF32, own.data(), each, kCols});
        ASSERT_TRUE(packed.ok()) << packed.status();
        EXPECT_EQ((*packed)->rows(), kOutputs);
        backend.MatMul(x.data(), kRows, **packed,
                       rank == 0 ? y.data() : nullptr);
        EXPECT_TRUE(backend.Synchronize().ok());
      });
      EXPECT_EQ(y, expected) << weights << ", " << count << " ranks";
    }
  }
}

TEST(RankBackendTest, RankZeroSendsTheRowsOfATable) {
  constexpr int kVocab = 11, kCols = 6;
  const Values table = RandomFloats(kVocab * kCols, 9);
  Ranks ranks(4, "cpu", "auto");
  const std::vector<int32_t> ids = {10, 0, 3};
  OnEveryRank(4, [&](int rank) {
    RankBackend& backend = *ranks.backends[static_cast<size_t>(rank)];
    const auto packed = backend.PackTable(
        {DType::kF32, rank == 0 ? table.data() : nullptr, kVocab, kCols});
    ASSERT_TRUE(packed.ok()) << packed.status();
    Values out(ids.size() * kCols);
    backend.Embed(**packed, ids, out.data());
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(Block(out, kCols, static_cast<int>(i), 1, 0, kCols),
                Block(table, kCols, ids[i], 1, 0, kCols));
    }
  });
}

TEST(RankBackendTest, AFailedRankFailsTheOthersAtTheirNextProduct) {
  Ranks ranks(2, "cpu", "f32");
  const absl::Status reason = absl::InternalError("rank 1 is gone");
  const Values w = RandomFloats(3 * 8, 10);
  const Values x(4, 1);
  OnEveryRank(2, [&](int rank) {
    if (rank == 1) return ranks.collectives[1]->Abort(reason);
    std::vector<Values> blocks;
    std::vector<HostMatrix> shards;
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(Block(w, 8, 0, 3, i, 1));
      shards.push_back({DType::kF32, blocks.back().data(), 3, 1});
    }
    const auto packed = ranks.backends[0]->PackInputs(shards);
    Values y(3);
    ranks.backends[0]->MatMul(x.data(), 1, **packed, y.data());
    EXPECT_EQ(ranks.backends[0]->Synchronize(), reason);
    ranks.backends[0]->MatMul(x.data(), 1, **packed, y.data());
    EXPECT_EQ(ranks.backends[0]->Synchronize(), reason);
  });
}

TEST(RankBackendTest, NamesTheArithmeticAndNotTheRanks) {
  Ranks two(2, "reference", "auto");
  Ranks eight(8, "reference", "auto");
  const std::string id = two.backends[0]->numerics_id();
  EXPECT_EQ(id, MakeBackend("reference")->numerics_id() + "-shards8");
  EXPECT_EQ(eight.backends[7]->numerics_id(), id);
  EXPECT_THAT(eight.backends[7]->description(), HasSubstr("rank 7 of 8"));
}

}  // namespace
}  // namespace nacre::kernels
