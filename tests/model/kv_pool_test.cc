#include "model/kv_pool.h"

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;

constexpr KvPool::Shape kShape = {3, 2, 10};
constexpr int64_t kBlockBytes = 2 * 3 * 2 * 10 * 4 * 16;

class KvPoolTest : public ::testing::Test {
 protected:
  KvPoolTest() {
    kernels::BackendOptions options;
    options.kind = "reference";
    backend_ = *kernels::CreateBackend(options);
  }

  std::unique_ptr<KvPool> PoolOf(int num_blocks) {
    // A little more than whole blocks: the rest cannot be used.
    auto pool = KvPool::Create(backend_.get(), kShape,
                               num_blocks * kBlockBytes + kBlockBytes / 2);
    EXPECT_TRUE(pool.ok()) << pool.status();
    return *std::move(pool);
  }

  std::unique_ptr<kernels::Backend> backend_;
};

TEST_F(KvPoolTest, HoldsTheWholeBlocksThatFit) {
  EXPECT_EQ(KvPool::BytesPerToken(kShape) * 16, kBlockBytes);
  const auto pool = PoolOf(5);
  EXPECT_EQ(pool->capacity_tokens(), 80);
  EXPECT_EQ(pool->free_tokens(), 80);
  EXPECT_EQ(pool->layer(2).num_blocks, 5);
  EXPECT_EQ(pool->layer(2).num_kv_heads, 2);
  EXPECT_NE(pool->layer(0).blocks, pool->layer(2).blocks);
}

TEST_F(KvPoolTest, BF16HoldsTwiceAsMuch) {
  KvPool::Shape shape = kShape;
  shape.type = kernels::DType::kBF16;
  EXPECT_EQ(KvPool::BytesPerToken(shape) * 16, kBlockBytes / 2);
  const auto pool = KvPool::Create(backend_.get(), shape, 5 * kBlockBytes);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ((*pool)->capacity_tokens(), 160);
  EXPECT_EQ((*pool)->layer(0).type, kernels::DType::kBF16);
  EXPECT_EQ(PoolOf(1)->layer(0).type, kernels::DType::kF32);
}

TEST_F(KvPoolTest, RefusesLessThanOneBlock) {
  const auto pool = KvPool::Create(backend_.get(), kShape, kBlockBytes - 1);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(pool.status().ToString(), HasSubstr("7679 bytes"));
  EXPECT_FALSE(KvPool::Create(backend_.get(), kShape, -1).ok());
}

TEST_F(KvPoolTest, ReservesWholeBlocksAndTakesThemBack) {
  const auto pool = PoolOf(4);
  auto one = pool->Reserve(1);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(pool->free_tokens(), 48);
  auto two = pool->Reserve(17);
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(pool->free_tokens(), 16);
  const std::set<int32_t> blocks = {(*one)->block_table()[0],
                                    (*two)->block_table()[0],
                                    (*two)->block_table()[1]};
  EXPECT_EQ(blocks.size(), 3u) << "two sequences share a block";

  const auto refused = pool->Reserve(17);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      refused.status().ToString(),
      HasSubstr("17 positions needs 32 of KV cache, 16 of 64 are free"));
  one->reset();
  EXPECT_EQ(pool->free_tokens(), 32);
  EXPECT_TRUE(pool->Reserve(32).ok());
  two->reset();
  EXPECT_EQ(pool->free_tokens(), 64);
}

TEST_F(KvPoolTest, EveryBlockIsUsableAfterManyReservations) {
  const auto pool = PoolOf(7);
  std::vector<std::unique_ptr<KvSequence>> sequences;
  for (int round = 0; round < 100; ++round) {
    const int length = 1 + (round * 37) % 60;
    auto sequence = pool->Reserve(length);
    if (sequence.ok()) {
      sequences.push_back(*std::move(sequence));
    } else {
      ASSERT_FALSE(sequences.empty());
      sequences.erase(sequences.begin() + round % sequences.size());
    }
  }
  sequences.clear();
  const auto all = pool->Reserve(7 * 16);
  ASSERT_TRUE(all.ok());
  const int32_t* table = (*all)->block_table();
  EXPECT_EQ(std::set<int32_t>(table, table + 7),
            (std::set<int32_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST_F(KvPoolTest, TruncateIsIdempotentAndNeverGrows) {
  const auto pool = PoolOf(4);
  const auto sequence = pool->Reserve(40);
  ASSERT_TRUE(sequence.ok());
  (*sequence)->Append(33);
  EXPECT_EQ((*sequence)->length(), 33);
  (*sequence)->Truncate(40);
  EXPECT_EQ((*sequence)->length(), 33);
  (*sequence)->Truncate(17);
  (*sequence)->Truncate(17);
  EXPECT_EQ((*sequence)->length(), 17);
  EXPECT_EQ(pool->free_tokens(), 16) << "the reservation stays";
}

TEST_F(KvPoolTest, SequencesShareTheFullBlocksThatWereSettled) {
  const auto pool = *KvPool::Create(backend_.get(), kShape, 6 * kBlockBytes,
                                    {.prefix_cache = true});
  std::vector<int32_t> ids(50);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  auto first = *pool->Reserve(50, ids);
  first->Append(40);
  first->Share(absl::MakeConstSpan(ids).subspan(0, 35));  // 2 full blocks
  auto second = *pool->Reserve(50, ids);
  EXPECT_EQ(second->length(), 32);
  EXPECT_EQ(second->block_table()[1], first->block_table()[1]);
  EXPECT_NE(second->block_table()[2], first->block_table()[2]);
  EXPECT_EQ(pool->free_tokens(), 0);
  EXPECT_EQ(pool->Reserve(1).status().code(),
            absl::StatusCode::kResourceExhausted);
  // A roll-back ends where sharing begins.
  first->Truncate(32);
  EXPECT_DEATH(first->Truncate(31), "shared");

  first.reset();
  second.reset();
  EXPECT_EQ(pool->free_tokens(), 6 * 16);
  // Room is more than what is cached.
  EXPECT_TRUE(pool->Reserve(6 * 16).ok());
  EXPECT_EQ((*pool->Reserve(50, ids))->length(), 0);
}

TEST_F(KvPoolTest, WithoutAPrefixCacheNothingIsShared) {
  const auto pool = PoolOf(4);
  const std::vector<int32_t> ids(20, 1);
  auto first = *pool->Reserve(20, ids);
  first->Append(20);
  first->Share(ids);
  first->Truncate(0);
  EXPECT_EQ((*pool->Reserve(20, ids))->length(), 0);
}

TEST_F(KvPoolTest, PassingTheReservationIsFatal) {
  const auto pool = PoolOf(4);
  const auto sequence = pool->Reserve(5);
  ASSERT_TRUE(sequence.ok());
  EXPECT_DEATH((*sequence)->Append(6), "passes its reserved length");
  EXPECT_DEATH((*sequence)->Truncate(-1), "negative length");
}

}  // namespace
}  // namespace nacre::model
