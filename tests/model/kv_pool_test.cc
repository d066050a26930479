#include "model/kv_pool.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
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

TEST_F(KvPoolTest, NoSequenceHasTheSpareBlock) {
  const auto pool = *KvPool::Create(backend_.get(), kShape, 5 * kBlockBytes,
                                    {.has_spare_block = true});
  EXPECT_EQ(pool->capacity_tokens(), 80);
  EXPECT_EQ(pool->layer(2).num_blocks, 6);
  const auto sequence = *pool->Reserve(80);
  const absl::Span<const int32_t> table(sequence->block_table(), 5);
  EXPECT_THAT(table, ::testing::Not(::testing::Contains(*pool->spare_table())));
  EXPECT_EQ(*pool->spare_table(), 5);
  EXPECT_FALSE(pool->Reserve(1).ok());
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

// A byte an element, and four for the scale of a head's key or value.
TEST_F(KvPoolTest, Int8CountsItsScales) {
  KvPool::Shape shape = kShape;
  shape.type = kernels::DType::kInt8;
  const int vectors = 2 * shape.num_layers * shape.num_key_value_heads;
  EXPECT_EQ(shape.head_dim, 10);  // filled up to whole words
  EXPECT_EQ(KvPool::BytesPerToken(shape), vectors * (12 + 4));
  shape.head_dim = 128;  // half of bf16, and a thirty-second more
  EXPECT_EQ(KvPool::BytesPerToken(shape), vectors * 132);
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

TEST_F(KvPoolTest, SlotsTakeBlocksOfTheSameLedger) {
  const auto pool = PoolOf(6);
  EXPECT_EQ(KvPool::ReservedTokens(17, 0), 32);
  EXPECT_EQ(KvPool::ReservedTokens(17, 1), 48);
  EXPECT_EQ(KvPool::ReservedTokens(16, 64), 80);
  auto one = pool->Reserve(17, {}, 33);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ((*one)->max_length(), 17);
  EXPECT_EQ((*one)->num_slots(), 33);
  EXPECT_EQ(pool->free_tokens(), 16);
  const auto refused = pool->Reserve(16, {}, 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().ToString(),
              HasSubstr("a sequence of 16 positions and 1 slots needs 32 of KV "
                        "cache, 16 of 96 are free"));
  // As a chain it fits.
  EXPECT_TRUE(pool->Reserve(16).ok());
  one->reset();
  EXPECT_EQ(pool->free_tokens(), 96);
}

TEST_F(KvPoolTest, SlotsAreNeverShared) {
  const auto pool = *KvPool::Create(backend_.get(), kShape, 8 * kBlockBytes,
                                    {.prefix_cache = true});
  const std::vector<int32_t> ids(48, 1);
  auto first = *pool->Reserve(48, ids, 16);
  first->Append(48);
  first->Share(ids);
  // Longer than the sequence: its slots are not taken for positions.
  const auto second = *pool->Reserve(32, ids, 16);
  EXPECT_EQ(second->length(), 16);
  EXPECT_NE(second->block_table()[2], first->block_table()[2]);
}

TEST_F(KvPoolTest, AKeptPathIsCopiedInEveryLayer) {
  const auto pool = PoolOf(3);
  const auto sequence = *pool->Reserve(16, {}, 2);
  sequence->Append(1);
  sequence->FillSlot({1, kNoSlot, 1});
  std::vector<kernels::KvSlot> path;
  sequence->AppendPath(1, &path);
  const std::vector<float> k(20, 3.0f);
  const std::vector<float> v(20, 4.0f);
  const kernels::RowContext in_slot = {sequence->block_table(), 1, 1,
                                       path.data()};
  const kernels::RowContext in_place = {sequence->block_table(), 1};
  for (int i = 0; i < kShape.num_layers; ++i) {
    backend_->StoreKv(k.data(), v.data(), 20, {&in_slot, 1}, pool->layer(i));
  }
  ASSERT_TRUE(sequence->KeepPath(1, {1}).ok());
  pool->FinishMoves();
  const std::vector<float> q(20, 1.0f);
  for (int i = 0; i < kShape.num_layers; ++i) {
    std::vector<float> expected(20), actual(20);
    backend_->Attention(q.data(), 20, 2, 1.0f, {&in_slot, 1}, pool->layer(i),
                        expected.data());
    backend_->Attention(q.data(), 20, 2, 1.0f, {&in_place, 1}, pool->layer(i),
                        actual.data());
    EXPECT_EQ(actual, expected);
    EXPECT_GT(actual[0], 3.9f);
  }
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

// What attention says of 40 positions of a sequence.
std::vector<float> AttendTo(kernels::Backend* backend, const KvPool& pool,
                            const KvSequence& sequence) {
  std::vector<float> all;
  const std::vector<float> q(20, 1.0f);
  const kernels::RowContext row = {sequence.block_table(), 39};
  for (int i = 0; i < kShape.num_layers; ++i) {
    std::vector<float> out(20);
    backend->Attention(q.data(), 20, 2, 1.0f, {&row, 1}, pool.layer(i),
                       out.data());
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}

TEST_F(KvPoolTest, WhatIsKeptBesideItHasTheSameBits) {
  const std::string folder =
      ::testing::TempDir() + "/nacre_kv_pool_" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  std::vector<int32_t> ids(50);
  std::iota(ids.begin(), ids.end(), 0);
  for (const kernels::DType type :
       {kernels::DType::kF32, kernels::DType::kBF16, kernels::DType::kInt8}) {
    for (const std::string& dir : {std::string(), folder}) {
      KvPool::Shape shape = kShape;
      shape.type = type;
      const int64_t block = KvPool::BytesPerToken(shape) * KvPool::kBlockSize;
      const auto pool =
          *KvPool::Create(backend_.get(), shape, 6 * block,
                          {.prefix_cache = true, .store = {9 * block, dir}});
      auto first = *pool->Reserve(50, ids, 2);
      std::mt19937 random(5);
      std::normal_distribution<float> normal;
      const auto store = [&](const kernels::RowContext& row) {
        for (int i = 0; i < kShape.num_layers; ++i) {
          std::vector<float> k(20), v(20);
          for (float& x : k) x = normal(random);
          for (float& x : v) x = normal(random);
          backend_->StoreKv(k.data(), v.data(), 20, {&row, 1}, pool->layer(i));
        }
      };
      for (int at = 0; at < 47; ++at) store({first->block_table(), at});
      first->Append(47);
      // The last position of the third block comes from a slot.
      first->FillSlot({1, kNoSlot, 47});
      std::vector<kernels::KvSlot> path;
      first->AppendPath(1, &path);
      store({first->block_table(), 47, 47, path.data()});
      ASSERT_TRUE(first->KeepPath(47, {1}).ok());
      first->Share(absl::MakeConstSpan(ids).subspan(0, 48));
      const auto expected = AttendTo(backend_.get(), *pool, *first);
      first.reset();
      // Others write where it was.
      first = *pool->Reserve(6 * 16);
      for (int at = 0; at < 6 * 16; ++at) store({first->block_table(), at});
      first.reset();
      const auto second = *pool->Reserve(50, ids);
      EXPECT_EQ(second->length(), 0);
      EXPECT_EQ(second->TakeOver(ids, 3), (TakenOver{48, 48, false, 3}));
      EXPECT_EQ(AttendTo(backend_.get(), *pool, *second), expected);
    }
  }
  std::filesystem::remove(folder);
}

TEST_F(KvPoolTest, AStoreThatIsTooSmallOrNowhereIsRefused) {
  auto refused =
      KvPool::Create(backend_.get(), kShape, 4 * kBlockBytes,
                     {.prefix_cache = true, .store = {kBlockBytes - 1, ""}});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().ToString(),
              HasSubstr("--prefix-cache-size: a prefix cache of 7679 bytes "
                        "does not hold one block "
                        "of 16 positions, which needs 7680 bytes"));
  refused = KvPool::Create(
      backend_.get(), kShape, 4 * kBlockBytes,
      {.prefix_cache = true, .store = {kBlockBytes, "/no/such/folder"}});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(refused.status().ToString(),
              HasSubstr("--prefix-cache-size, -dir: a file in "
                        "/no/such/folder"));
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
