// Token trees through a whole model: the logits of a node are those of the
// chain that its path spells, bit by bit, and so is all that follows a path
// that was kept.

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;

constexpr int kVocab = 101;
constexpr int kMaxLength = 330;
constexpr int kSlots = 64;

struct Node {
  int32_t token = 0;
  int parent = -1;  // index; -1: the root
  int depth = 1;    // below the root
  int32_t slot = 0;
};

// A session: its text, which ends with the root, and a tree after it.
struct Tree {
  std::unique_ptr<Sequence> sequence;
  std::vector<int32_t> text;
  std::vector<Node> nodes;

  // The text with the path to a node; -1: to the root.
  std::vector<int32_t> PathText(int node) const {
    std::vector<int32_t> path;
    for (; node >= 0; node = nodes[static_cast<size_t>(node)].parent) {
      path.push_back(nodes[static_cast<size_t>(node)].token);
    }
    std::vector<int32_t> tokens = text;
    tokens.insert(tokens.end(), path.rbegin(), path.rend());
    return tokens;
  }
};

// A backend and its types, as in cpu_int8 or cpu_bf16_kvbf16.
class TreeTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::vector<std::string> parts = absl::StrSplit(GetParam(), '_');
    kernels::BackendOptions options;
    options.kind = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) {
      const bool is_kv = absl::StartsWith(parts[i], "kv");
      (is_kv ? options.kv_type : options.weights) =
          is_kv ? parts[i].substr(2) : parts[i];
    }
    auto backend = kernels::CreateBackend(options);
#ifndef NACRE_EMULATED_CUDA
    if (options.kind == "cuda" &&
        absl::IsFailedPrecondition(backend.status())) {
      GTEST_SKIP() << "no CUDA device";
    }
#endif
    backend_ = *std::move(backend);
    const std::string dir = nacre::testing::TestFolder("tree");
    nacre::testing::WriteTinyCheckpoint({}, dir);
    model_ = *LoadModel(dir, backend_.get(), {1 << 22, {}});
  }

  int32_t RandomToken() { return static_cast<int32_t>(rng_() % kVocab); }

  // A text of `length` tokens; all but the root are fed.
  Tree NewTree(int length) {
    Tree tree;
    tree.sequence = *model_->NewTreeSequence(kMaxLength, kSlots, {});
    for (int i = 0; i < length; ++i) tree.text.push_back(RandomToken());
    if (length > 1) {
      const auto fed = model_->Forward(
          {{tree.sequence.get(),
            absl::MakeConstSpan(tree.text).first(tree.text.size() - 1), 0}});
      EXPECT_TRUE(fed.ok()) << fed.status();
    }
    return tree;
  }

  // `count` nodes in slots in any order, some of them in long paths.
  void Grow(int count, Tree* tree) {
    std::vector<int32_t> free(kSlots);
    for (int i = 0; i < kSlots; ++i) free[static_cast<size_t>(i)] = i;
    for (const Node& node : tree->nodes) std::erase(free, node.slot);
    std::shuffle(free.begin(), free.end(), rng_);
    for (int i = 0; i < count; ++i) {
      const int size = static_cast<int>(tree->nodes.size());
      Node node;
      node.token = RandomToken();
      node.parent = rng_() % 2 == 0 ? size - 1
                                    : static_cast<int>(rng_() % (size + 1)) - 1;
      node.depth =
          node.parent < 0
              ? 1
              : tree->nodes[static_cast<size_t>(node.parent)].depth + 1;
      node.slot = free[static_cast<size_t>(i)];
      tree->nodes.push_back(node);
    }
  }

  // The rows of nodes [begin, end), below the root where it is not fed yet.
  struct Rows {
    std::vector<int32_t> tokens;
    std::vector<TreeNode> nodes;
  };
  static Rows RowsOf(const Tree& tree, size_t begin) {
    Rows rows;
    const int root = static_cast<int>(tree.text.size()) - 1;
    if (tree.sequence->length() == root)
      rows.tokens.push_back(tree.text.back());
    for (size_t i = begin; i < tree.nodes.size(); ++i) {
      const Node& node = tree.nodes[i];
      rows.tokens.push_back(node.token);
      rows.nodes.push_back(
          {node.slot,
           node.parent < 0 ? kNoSlot
                           : tree.nodes[static_cast<size_t>(node.parent)].slot,
           root + node.depth});
    }
    return rows;
  }

  // The last logits of a text that is fed alone, as a chain.
  std::vector<float> ChainLogits(const std::vector<int32_t>& tokens) {
    const auto sequence = *model_->NewSequence(static_cast<int>(tokens.size()));
    const auto logits = model_->Forward({{sequence.get(), tokens, 1}});
    EXPECT_TRUE(logits.ok()) << logits.status();
    return {logits->begin(), logits->end()};
  }

  void ExpectBits(const std::vector<float>& logits, size_t row,
                  const std::vector<int32_t>& tokens, const char* what) {
    const std::vector<float> expected = ChainLogits(tokens);
    ASSERT_EQ(std::memcmp(logits.data() + row * kVocab, expected.data(),
                          kVocab * sizeof(float)),
              0)
        << what << ", after " << tokens.size() << " tokens";
  }

  std::vector<float> Forward(const std::vector<SequenceRows>& batch) {
    const auto logits = model_->Forward(batch);
    EXPECT_TRUE(logits.ok()) << logits.status();
    return logits.ok() ? std::vector<float>(logits->begin(), logits->end())
                       : std::vector<float>();
  }

  // Feeds the roots and all nodes of the trees, and beside them a chain and a
  // prompt; every row has the bits of its chain.
  void ExpectBitsOfChains(std::vector<Tree>* trees) {
    std::vector<int32_t> prompt(37);
    for (int32_t& token : prompt) token = RandomToken();
    Tree chain = NewTree(70);
    const auto reader = *model_->NewSequence(40);
    std::vector<Rows> rows;
    std::vector<SequenceRows> batch;
    for (const Tree& tree : *trees) rows.push_back(RowsOf(tree, 0));
    for (size_t i = 0; i < trees->size(); ++i) {
      batch.push_back({.sequence = (*trees)[i].sequence.get(),
                       .token_ids = rows[i].tokens,
                       .num_logits = static_cast<int>(rows[i].tokens.size()),
                       .nodes = rows[i].nodes});
    }
    const size_t at = rng_() % (batch.size() + 1);
    batch.insert(
        batch.begin() + static_cast<std::ptrdiff_t>(at),
        {chain.sequence.get(), absl::MakeConstSpan(chain.text).last(1), 1});
    batch.push_back({reader.get(), prompt, 1});
    const std::vector<float> logits = Forward(batch);
    size_t row = 0;
    for (size_t i = 0; i <= trees->size(); ++i) {
      if (i == at) ExpectBits(logits, row++, chain.text, "a chain");
      if (i == trees->size()) break;
      for (int node = -1; node < static_cast<int>((*trees)[i].nodes.size());
           ++node) {
        ExpectBits(logits, row++, (*trees)[i].PathText(node), "a node");
        if (HasFatalFailure()) return;
      }
    }
    ExpectBits(logits, row++, prompt, "a prompt");
    ASSERT_EQ(row * kVocab, logits.size());
  }

  // Keeps a random path; what survives grows further, and the text goes on.
  void KeepAndGoOn(Tree* tree) {
    const int last = static_cast<int>(rng_() % tree->nodes.size());
    std::vector<int> kept;
    for (int at = last; at >= 0;
         at = tree->nodes[static_cast<size_t>(at)].parent) {
      kept.insert(kept.begin(), at);
    }
    std::vector<int32_t> slots;
    for (const int node : kept) {
      slots.push_back(tree->nodes[static_cast<size_t>(node)].slot);
    }
    const int length = tree->sequence->length();
    ASSERT_TRUE(tree->sequence->KeepPath(length, slots).ok());
    // Repeated, it changes nothing.
    ASSERT_TRUE(tree->sequence->KeepPath(length, slots).ok());
    ASSERT_EQ(tree->sequence->length(),
              length + static_cast<int>(slots.size()));

    Tree next;
    next.text = tree->PathText(last);
    next.sequence = std::move(tree->sequence);
    std::vector<int> index(tree->nodes.size(), -2);
    index[static_cast<size_t>(last)] = -1;
    for (size_t i = 0; i < tree->nodes.size(); ++i) {
      Node node = tree->nodes[i];
      if (node.parent < 0 || index[static_cast<size_t>(node.parent)] == -2) {
        continue;
      }
      index[i] = static_cast<int>(next.nodes.size());
      node.parent = index[static_cast<size_t>(node.parent)];
      node.depth -= static_cast<int>(slots.size());
      next.nodes.push_back(node);
    }
    *tree = std::move(next);
    const size_t survivors = tree->nodes.size();
    Grow(std::min(6, kSlots - static_cast<int>(survivors)), tree);
    const Rows rows = RowsOf(*tree, survivors);
    const std::vector<float> logits =
        Forward({{.sequence = tree->sequence.get(),
                  .token_ids = rows.tokens,
                  .num_logits = static_cast<int>(rows.tokens.size()),
                  .nodes = rows.nodes}});
    for (size_t i = survivors; i < tree->nodes.size(); ++i) {
      ExpectBits(logits, i - survivors, tree->PathText(static_cast<int>(i)),
                 "a node after a kept path");
      if (HasFatalFailure()) return;
    }
    // Another token comes: the tree is given up, the chain goes on.
    tree->text.push_back(RandomToken());
    const std::vector<float> after = Forward(
        {{tree->sequence.get(), absl::MakeConstSpan(tree->text).last(1), 1}});
    ExpectBits(after, 0, tree->text, "a token after a kept path");
    tree->nodes.clear();
  }

  std::mt19937 rng_{1};
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<LanguageModel> model_;
};

#ifndef NACRE_MODEL_BACKENDS
#define NACRE_MODEL_BACKENDS                                                \
  "reference", "reference_kvbf16", "reference_int8", "cpu_f32", "cpu_bf16", \
      "cpu_bf16a16", "cpu_int8", "cpu_int4", "cpu_bf16_kvbf16",             \
      "cpu_int8_kvbf16", "reference_kvint8", "cpu_bf16_kvint8"
#endif
INSTANTIATE_TEST_SUITE_P(Backends, TreeTest,
                         ::testing::Values(NACRE_MODEL_BACKENDS),
                         [](const auto& info) { return info.param; });

TEST_P(TreeTest, NodesHaveTheBitsOfTheirChains) {
#ifdef NACRE_EMULATED_CUDA
  const std::vector<int> lengths = {3, 126};
  const int most_nodes = 5;
#else
  // Around the edges of blocks and of the stretches that attention adds up in.
  const std::vector<int> lengths = {1, 15, 17, 63, 64, 65, 129, 200, 250};
  const int most_nodes = 64;
#endif
  for (const size_t sessions : {1, 2, 5, 9}) {
    if (sessions > lengths.size()) break;
    std::vector<Tree> trees;
    for (size_t i = 0; i < sessions; ++i) {
      trees.push_back(NewTree(lengths[(i * 4 + sessions) % lengths.size()]));
      // All sizes from 1 on; few nodes in most trees, or it takes long. One
      // alone has all that there may be.
      const int most = i == sessions % 4 ? most_nodes : most_nodes / 7 + 1;
      Grow(sessions == 1
               ? most_nodes
               : 1 + static_cast<int>(rng_() % static_cast<uint32_t>(most)),
           &trees.back());
    }
    ExpectBitsOfChains(&trees);
    if (HasFatalFailure()) return;
    for (Tree& tree : trees) {
      KeepAndGoOn(&tree);
      if (HasFatalFailure()) return;
    }
  }
}

// The draft's case: a step for each level, whose nodes name parents of steps
// before.
TEST_P(TreeTest, ATreeMayGrowOverManySteps) {
  Tree tree = NewTree(62);
  for (int step = 0; step < 5; ++step) {
    const size_t before = tree.nodes.size();
    Grow(4, &tree);
    const Rows rows = RowsOf(tree, before);
    const std::vector<float> logits = Forward({{.sequence = tree.sequence.get(),
                                                .token_ids = rows.tokens,
                                                .num_logits = 4,
                                                .nodes = rows.nodes}});
    for (size_t i = before; i < tree.nodes.size(); ++i) {
      ExpectBits(logits, i - before, tree.PathText(static_cast<int>(i)),
                 "a node of a later step");
      if (HasFatalFailure()) return;
    }
  }
  KeepAndGoOn(&tree);
}

// Branches beside a chain that lies in place: nodes after its positions.
TEST_P(TreeTest, NodesMayBeBehindAnyPosition) {
  Tree tree = NewTree(40);
  const std::vector<int32_t> tokens = {tree.text.back(), 5, 6, 7};
  const std::vector<TreeNode> nodes = {
      {9, kNoSlot, 38}, {3, 9, 39}, {4, kNoSlot, 40}};
  const std::vector<float> logits = Forward({{.sequence = tree.sequence.get(),
                                              .token_ids = tokens,
                                              .num_logits = 4,
                                              .nodes = nodes}});
  std::vector<int32_t> branch(tree.text.begin(), tree.text.begin() + 38);
  branch.push_back(5);
  ExpectBits(logits, 1, branch, "after position 37");
  branch.push_back(6);
  ExpectBits(logits, 2, branch, "after that");
  std::vector<int32_t> last = tree.text;
  last.push_back(7);
  ExpectBits(logits, 3, last, "below the root");
  // The branch goes on where the chain is cut.
  tree.sequence->Truncate(38);
  ASSERT_TRUE(tree.sequence->KeepPath(38, {9, 3}).ok());
  branch.push_back(8);
  const std::vector<float> after =
      Forward({{tree.sequence.get(), absl::MakeConstSpan(branch).last(1), 1}});
  ExpectBits(after, 0, branch, "after the kept branch");
}

// Before the first path was copied another takes its place.
TEST_P(TreeTest, APathMayBeKeptInPlaceOfAnother) {
  Tree tree = NewTree(30);
  tree.nodes = {{5, -1, 1, 7}, {6, -1, 1, 3}};
  const Rows rows = RowsOf(tree, 0);
  Forward({{.sequence = tree.sequence.get(),
            .token_ids = rows.tokens,
            .num_logits = 0,
            .nodes = rows.nodes}});
  ASSERT_TRUE(tree.sequence->KeepPath(30, {7}).ok());
  tree.sequence->Truncate(30);
  ASSERT_TRUE(tree.sequence->KeepPath(30, {3}).ok());
  std::vector<int32_t> text = tree.PathText(1);
  text.push_back(9);
  const std::vector<float> logits =
      Forward({{tree.sequence.get(), absl::MakeConstSpan(text).last(1), 1}});
  ExpectBits(logits, 0, text, "after the second path");
}

TEST_P(TreeTest, RefusesNodesThatFitNowhere) {
  Tree tree = NewTree(3);
  const std::vector<int32_t> tokens = {tree.text.back(), 5};
  const auto status = [&](const TreeNode& node) {
    const auto logits = model_->Forward({{.sequence = tree.sequence.get(),
                                          .token_ids = tokens,
                                          .num_logits = 1,
                                          .nodes = {&node, 1}}});
    EXPECT_EQ(logits.status().code(), absl::StatusCode::kInvalidArgument);
    return logits.status().ToString();
  };
  EXPECT_THAT(status({kSlots, kNoSlot, 3}),
              HasSubstr("slot 64 is outside the sequence's 64 slots"));
  EXPECT_THAT(status({0, kNoSlot, 4}),
              HasSubstr("follows none of the sequence's 3 positions"));
  EXPECT_THAT(status({0, 1, 4}), HasSubstr("does not end a path"));
  EXPECT_THAT(status({0, kNoSlot, 512}),
              HasSubstr("a node at position 512 is outside the model's context "
                        "of 512"));
  EXPECT_EQ(tree.sequence->length(), 2);
  const auto none = model_->NewTreeSequence(10, 1025, {});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(none.status().ToString(),
              HasSubstr("1025 slots for tree nodes is outside 0 to 1024"));
  EXPECT_FALSE(model_->NewTreeSequence(10, -1, {}).ok());
  // The refused step has changed nothing.
  Grow(3, &tree);
  const Rows rows = RowsOf(tree, 0);
  const std::vector<float> logits = Forward({{.sequence = tree.sequence.get(),
                                              .token_ids = rows.tokens,
                                              .num_logits = 1,
                                              .nodes = rows.nodes}});
  ExpectBits(logits, 0, tree.PathText(2), "after refusals");
}

TEST_P(TreeTest, AStepThatIsEndedLeavesItsSlotsEmpty) {
  if (backend_->location() == kernels::Location::kDevice) {
    GTEST_SKIP() << "a device's steps are not ended early";
  }
  Tree tree = NewTree(20);
  Grow(1, &tree);
  const Rows rows = RowsOf(tree, 0);
  const SequenceRows step = {.sequence = tree.sequence.get(),
                             .token_ids = rows.tokens,
                             .num_logits = 2,
                             .nodes = rows.nodes};
  bool ends = true;
  model_->SetInterrupt([&] { return ends; });
  EXPECT_EQ(model_->Forward({step}).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(tree.sequence->length(), 19);
  ends = false;
  const int32_t slot = tree.nodes[0].slot;
  EXPECT_FALSE(tree.sequence->KeepPath(19, {slot}).ok());
  ExpectBits(Forward({step}), 1, tree.PathText(0), "the step once more");
  EXPECT_TRUE(tree.sequence->KeepPath(20, {slot}).ok());
}

TEST_P(TreeTest, SlotsTakeRoomBesideTheContext) {
  const int64_t free = model_->kv_free_tokens();
  const auto whole = model_->NewTreeSequence(512, 65, {});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ((*whole)->num_slots(), 65);
  EXPECT_EQ(model_->kv_free_tokens(), free - 512 - 80);
  const auto plain = model_->NewTreeSequence(512, 0, {});
  EXPECT_EQ((*plain)->num_slots(), 0);
  EXPECT_EQ(model_->kv_free_tokens(), free - 2 * 512 - 80);
}

}  // namespace
}  // namespace nacre::model
