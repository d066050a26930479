// Checks of what a backend makes of rows with tails (RowContext), for tests of
// every backend: a node of a token tree has the bits of the chain that its path
// spells.

#ifndef TESTS_KERNELS_TAIL_CHECKS_H_
#define TESTS_KERNELS_TAIL_CHECKS_H_

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/kv_address.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels {

struct TailShape {
  int head_dim = 64;
  int num_kv_heads = 2;
  int heads_per_kv_head = 3;
  DType type = DType::kF32;
  int block_size = 16;
  int positions = 400;  // of each sequence, and as many slots
  AttentionRule rule = 0.125f;
};

// Some sequences, each with a random tree after its positions. What no path
// has holds NaN: all other slots, and the positions past where trees begin.
class TreesInSlots {
 public:
  // Trees of `nodes[i]` nodes after `lengths[i]` positions.
  TreesInSlots(Backend* backend, const TailShape& shape,
               std::vector<int> lengths, std::vector<int> nodes, uint32_t seed)
      : backend_(backend),
        shape_(shape),
        width_(shape.num_kv_heads * shape.head_dim),
        q_width_(width_ * shape.heads_per_kv_head),
        rng_(seed),
        // For each tree its sequence, one with its slots, and a chain.
        cache_(
            {static_cast<int>(3 * lengths.size()), shape_.positions,
             shape.num_kv_heads, shape.block_size, shape.head_dim, shape.type},
            seed) {
    for (size_t i = 0; i < lengths.size(); ++i) AddTree(lengths[i], nodes[i]);
  }

  // The rows of all nodes, those of a sequence in any order after some rows of
  // its positions, with the bits of chains.
  void ExpectBitsOfChains() {
    std::vector<RowContext> rows;
    std::vector<float> expected;
    for (size_t tree = 0; tree < trees_.size(); ++tree) {
      std::vector<int> order(trees_[tree].nodes.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
      std::shuffle(order.begin(), order.end(), rng_);
      for (int back = std::min(3, trees_[tree].length); back > 0; --back) {
        rows.push_back(cache_.Row(Session(tree), trees_[tree].length - back));
        Append(AttendAlone(rows.back(), rows.size() - 1), &expected);
      }
      for (const int node : order) {
        rows.push_back(RowOf(tree, node));
        Append(AttendAlone(ChainOf(tree, node), rows.size() - 1), &expected);
      }
    }
    const std::vector<float> q = RandomFloats(rows.size() * q_width_, 7);
    std::vector<float> actual(q.size());
    backend_->Attention(q.data(), q_width_, q_width_ / shape_.head_dim,
                        shape_.rule, rows, cache_.layer(), actual.data());
    for (size_t row = 0; row < rows.size(); ++row) {
      ASSERT_EQ(std::memcmp(actual.data() + row * q_width_,
                            expected.data() + row * q_width_,
                            q_width_ * sizeof(float)),
                0)
          << "row " << row << " at position " << rows[row].position
          << ", tail from " << rows[row].tail_begin << ", head_dim "
          << shape_.head_dim << ", " << shape_.heads_per_kv_head
          << " query heads a KV head, blocks of " << shape_.block_size;
      ASSERT_TRUE(std::isfinite(actual[row * q_width_])) << "row " << row;
    }
  }

  // Copies the longest path of each tree to the positions after it. Its last
  // row has the same bits there.
  void ExpectBitsOfKeptPaths() {
    for (size_t tree = 0; tree < trees_.size(); ++tree) {
      int last = 0;
      for (int node = 0; node < Count(tree); ++node) {
        if (Position(tree, node) > Position(tree, last)) last = node;
      }
      const RowContext row = RowOf(tree, last);
      const std::vector<float> expected = AttendAlone(row, 0);
      std::vector<KvMove> moves;
      for (int p = row.tail_begin; p <= row.position; ++p) {
        moves.push_back({SlotOf(cache_.layer(), row, p),
                         SlotOf(cache_.layer(), row.block_table, p)});
      }
      backend_->MoveKv(moves, {cache_.layer()});
      const auto actual =
          AttendAlone(cache_.Row(Session(tree), row.position), 0);
      ASSERT_EQ(std::memcmp(actual.data(), expected.data(),
                            expected.size() * sizeof(float)),
                0)
          << "tree " << tree;
      ASSERT_TRUE(std::isfinite(actual[0]));
    }
  }

 private:
  struct Node {
    int parent = -1;  // -1: the last position of the sequence
    KvSlot slot = 0;
    std::vector<float> k;
    std::vector<float> v;
    std::vector<KvSlot> path;  // down to the node's own slot
  };
  struct Tree {
    int length = 0;
    std::vector<Node> nodes;
  };

  static int Session(size_t tree) { return static_cast<int>(3 * tree); }
  static void Append(const std::vector<float>& values,
                     std::vector<float>* all) {
    all->insert(all->end(), values.begin(), values.end());
  }
  int Count(size_t tree) const {
    return static_cast<int>(trees_[tree].nodes.size());
  }
  int Position(size_t tree, int node) const {
    return trees_[tree].length - 1 +
           static_cast<int>(
               trees_[tree].nodes[static_cast<size_t>(node)].path.size());
  }
  RowContext RowOf(size_t tree, int node) const {
    RowContext row = cache_.Row(Session(tree), Position(tree, node));
    row.tail_begin = trees_[tree].length;
    row.tail_slots = trees_[tree].nodes[static_cast<size_t>(node)].path.data();
    return row;
  }

  std::vector<float> Values(int positions) {
    return RandomFloats(static_cast<size_t>(width_ * positions),
                        static_cast<uint32_t>(rng_()));
  }
  void Store(const RowContext& row, const std::vector<float>& k,
             const std::vector<float>& v) {
    backend_->StoreKv(k.data(), v.data(), width_, {&row, 1}, cache_.layer());
  }
  void FillWithNan(int session) {
    const std::vector<float> nan(static_cast<size_t>(width_ * shape_.positions),
                                 NAN);
    std::vector<RowContext> rows;
    for (int p = 0; p < shape_.positions; ++p) {
      rows.push_back(cache_.Row(session, p));
    }
    backend_->StoreKv(nan.data(), nan.data(), width_, rows, cache_.layer());
  }

  void AddTree(int length, int num_nodes) {
    Tree& tree = trees_.emplace_back();
    const size_t index = trees_.size() - 1;
    tree.length = length;
    for (int i = 0; i < 3; ++i) FillWithNan(Session(index) + i);
    const std::vector<float> k = Values(length);
    const std::vector<float> v = Values(length);
    for (const int session : {Session(index), Session(index) + 2}) {
      std::vector<RowContext> rows;
      for (int p = 0; p < length; ++p) rows.push_back(cache_.Row(session, p));
      backend_->StoreKv(k.data(), v.data(), width_, rows, cache_.layer());
    }
    std::vector<int> slots(shape_.positions);
    for (int i = 0; i < shape_.positions; ++i)
      slots[static_cast<size_t>(i)] = i;
    std::shuffle(slots.begin(), slots.end(), rng_);
    const int32_t* const table = cache_.Row(Session(index) + 1, 0).block_table;
    for (int i = 0; i < num_nodes; ++i) {
      Node node;
      // Often the newest: paths that are long, too.
      node.parent = i == 0            ? -1
                    : rng_() % 2 == 0 ? i - 1
                                      : static_cast<int>(rng_() % (i + 1)) - 1;
      node.slot = SlotOf(cache_.layer(), table, slots[static_cast<size_t>(i)]);
      node.k = Values(1);
      node.v = Values(1);
      if (node.parent >= 0) {
        node.path = tree.nodes[static_cast<size_t>(node.parent)].path;
      }
      node.path.push_back(node.slot);
      tree.nodes.push_back(node);
      Store(RowOf(index, i), node.k, node.v);
    }
  }

  // The node at the end of a chain of the same keys and values.
  RowContext ChainOf(size_t tree, int node) {
    const int session = Session(tree) + 2;
    const int last = Position(tree, node);
    int position = last;
    for (int at = node; at >= 0; --position) {
      const Node& one = trees_[tree].nodes[static_cast<size_t>(at)];
      Store(cache_.Row(session, position), one.k, one.v);
      at = one.parent;
    }
    EXPECT_EQ(position, trees_[tree].length - 1);
    return cache_.Row(session, last);
  }

  // As row `index` of RandomFloats(..., 7).
  std::vector<float> AttendAlone(const RowContext& row, size_t index) {
    const std::vector<float> q = RandomFloats((index + 1) * q_width_, 7);
    std::vector<float> out(static_cast<size_t>(q_width_));
    backend_->Attention(q.data() + index * q_width_, q_width_,
                        q_width_ / shape_.head_dim, shape_.rule, {&row, 1},
                        cache_.layer(), out.data());
    return out;
  }

  Backend* const backend_;
  const TailShape shape_;
  const int width_;
  const int q_width_;
  std::mt19937 rng_;
  PagedCache cache_;
  std::vector<Tree> trees_;
};

}  // namespace nacre::kernels

#endif  // TESTS_KERNELS_TAIL_CHECKS_H_
