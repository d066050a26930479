#include "kernels/cpu/attention_tiles.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace nacre::kernels {
namespace {

constexpr int kHeadDim = 4;

// Rows of sessions, as many as `rows` says of each.
class Step {
 public:
  Step(const std::vector<int>& rows, int num_kv_heads, int heads_per_kv_head)
      : num_heads_(num_kv_heads * heads_per_kv_head), tables_(rows.size()) {
    layer_.num_kv_heads = num_kv_heads;
    layer_.head_dim = kHeadDim;
    for (size_t session = 0; session < rows.size(); ++session) {
      for (int row = 0; row < rows[session]; ++row) {
        RowContext& context = contexts_.emplace_back();
        context.block_table = &tables_[session];
        context.position = 100 + row;
        if (session == 1) context.tail_begin = 99 - row;
      }
    }
    q_.resize(contexts_.size() * q_stride());
    out_.resize(contexts_.size() * num_heads_ * kHeadDim);
  }

  std::vector<AttentionTiles> Deal(int tile_queries, int threads) {
    std::vector<AttentionTiles> groups;
    DealAttention(
        {q_.data(), q_stride(), num_heads_, contexts_, layer_, out_.data()},
        tile_queries, threads, &groups);
    return groups;
  }

  // Row and head of a query.
  std::pair<int, int> Find(const AttentionQuery& query) const {
    const auto index = static_cast<int>((query.out - out_.data()) / kHeadDim);
    const std::pair<int, int> found = {index / num_heads_, index % num_heads_};
    EXPECT_EQ(query.q,
              q_.data() + found.first * q_stride() + found.second * kHeadDim);
    EXPECT_EQ(query.position, contexts_[found.first].position);
    return found;
  }

  const RowContext& context(int row) const { return contexts_[row]; }
  int num_queries() const {
    return static_cast<int>(contexts_.size()) * num_heads_;
  }
  int heads_per_kv_head() const { return num_heads_ / layer_.num_kv_heads; }

 private:
  int q_stride() const { return num_heads_ * kHeadDim + 3; }

  const int num_heads_;
  std::vector<int32_t> tables_;
  std::vector<RowContext> contexts_;
  std::vector<float> q_, out_;
  KvLayer layer_;
};

// Every query once, with what its group has in common; tiles of a KV head
// follow each other.
void CheckDealt(const Step& step, const std::vector<AttentionTiles>& groups,
                int tile_queries) {
  std::set<std::pair<int, int>> seen;
  for (const AttentionTiles& group : groups) {
    ASSERT_GT(group.count, 0);
    ASSERT_LE(group.count, kMaxAttentionTiles);
    int tail_begin = kNoTail;
    for (int t = 0; t < group.count; ++t) {
      const AttentionTile& tile = group.tiles[t];
      ASSERT_GT(tile.count, 0);
      ASSERT_LE(tile.count, tile_queries);
      EXPECT_GE(tile.kv_head, group.tiles[std::max(t - 1, 0)].kv_head);
      for (int i = 0; i < tile.count; ++i) {
        const auto query = step.Find(tile.queries[i]);
        EXPECT_TRUE(seen.insert(query).second) << "row " << query.first;
        EXPECT_EQ(query.second / step.heads_per_kv_head(), tile.kv_head);
        const RowContext& context = step.context(query.first);
        EXPECT_EQ(context.block_table, group.block_table);
        if (context.has_tail()) {
          tail_begin = std::min(tail_begin, context.tail_begin);
        }
      }
    }
    EXPECT_EQ(group.tail_begin, tail_begin);
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(step.num_queries()));
}

TEST(AttentionTilesTest, EveryQueryAttendsOnce) {
  for (const int kv_heads : {1, 2, 3, 8}) {
    for (const int together : {1, 3, 4}) {
      for (const int rows : {1, 2, 5, 8, 33, 100}) {
        for (const int threads : {1, 2, 5, 64}) {
          SCOPED_TRACE(testing::Message()
                       << kv_heads << " KV heads, " << together
                       << " query heads each, " << rows << " rows, " << threads
                       << " threads");
          Step step({rows, 3, 1}, kv_heads, together);
          CheckDealt(step, step.Deal(6, threads), 6);
          CheckDealt(step, step.Deal(2, threads), 2);
        }
      }
    }
  }
}

std::vector<int> Sizes(const std::vector<AttentionTiles>& groups) {
  std::vector<int> sizes;
  for (const AttentionTiles& group : groups) sizes.push_back(group.count);
  return sizes;
}

TEST(AttentionTilesTest, ThreadsHaveEqualShares) {
  // The second head is in both groups.
  EXPECT_EQ(Sizes(Step({8}, 3, 4).Deal(6, 2)), std::vector<int>({9, 9}));
  // More than two groups can have: as many for each thread.
  EXPECT_EQ(Sizes(Step({8}, 8, 4).Deal(6, 2)),
            std::vector<int>({12, 12, 12, 12}));
  // Fewer than threads.
  EXPECT_EQ(Sizes(Step({1}, 2, 4).Deal(6, 3)), std::vector<int>({1, 1}));
}

// Where each thread takes the next group from the end once it is through.
TEST(AttentionTilesTest, NoThreadHasMuchMoreThanTheOthers) {
  for (const int kv_heads : {1, 2, 3, 4, 8, 12}) {
    for (const int rows : {1, 7, 8, 14, 20, 25, 40, 128}) {
      for (const size_t threads : {1, 2, 3, 4, 8, 16}) {
        std::vector<int> load(threads);
        int total = 0;
        const std::vector<int> sizes =
            Sizes(Step({rows}, kv_heads, 4).Deal(6, static_cast<int>(threads)));
        for (size_t i = sizes.size(); i-- > 0;) {
          *std::min_element(load.begin(), load.end()) += sizes[i];
          total += sizes[i];
        }
        const double mean = static_cast<double>(total) / threads;
        EXPECT_LE(*std::max_element(load.begin(), load.end()), 1.3 * mean + 1)
            << kv_heads << " KV heads, " << rows << " rows, " << threads
            << " threads";
      }
    }
  }
}

// Where threads divide their number.
TEST(AttentionTilesTest, HeadsStayWhole) {
  for (const int rows : {1, 3, 8, 13, 20}) {
    for (const int threads : {1, 2, 4}) {
      const std::vector<AttentionTiles> groups =
          Step({rows}, 8, 4).Deal(6, threads);
      EXPECT_EQ(groups.size() % threads, 0u);
      for (const AttentionTiles& group : groups) {
        std::map<int, int> tiles;
        for (int t = 0; t < group.count; ++t) ++tiles[group.tiles[t].kv_head];
        for (const auto& [head, count] : tiles) {
          EXPECT_EQ(count, (4 * rows + 5) / 6) << head << " of " << rows;
        }
      }
    }
  }
}

}  // namespace
}  // namespace nacre::kernels
