#include "model/model_drafter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "tests/testing/table_model.h"

namespace nacre::model {
namespace {

using nacre::testing::TableModel;
using nacre::testing::TableModelOptions;

constexpr int kVocabSize = 16;

// A sequence of the drafter with the tokens that it has been fed.
struct Drafted {
  Drafted(ModelDrafter& drafter, SamplingParams params,
          std::vector<int32_t> prompt)
      : tokens(std::move(prompt)),
        sequence(*drafter.NewSequenceWithPrefix(100, tokens)),
        sampler(params, kVocabSize),
        history(static_cast<int>(tokens.size())) {
    for (const int32_t id : tokens) history.Push(id);
  }

  // What is not fed yet, for so many children.
  DraftRows Rows(int max_children) {
    DraftRows rows;
    rows.sequence = sequence.get();
    rows.token_ids = absl::MakeConstSpan(tokens).subspan(
        static_cast<size_t>(sequence->length()));
    rows.max_children = max_children;
    rows.sampler = &sampler;
    rows.history = &history;
    return rows;
  }
  void Append(int32_t token_id) {
    tokens.push_back(token_id);
    history.Push(token_id);
  }

  std::vector<int32_t> tokens;
  std::unique_ptr<Sequence> sequence;
  Sampler sampler;
  TokenHistory history;
};

SamplingParams Sampled(uint64_t seed) {
  SamplingParams params;
  params.temperature = 0.8f;
  params.seed = seed;
  return params;
}

std::vector<Proposal> Propose(ModelDrafter& drafter,
                              std::vector<DraftRows> nodes) {
  const auto proposals = drafter.Propose(nodes);
  EXPECT_TRUE(proposals.ok()) << proposals.status();
  if (!proposals.ok()) return {};
  return {proposals->begin(), proposals->end()};
}

// Sequences that are at different places, in one call, each for itself.
TEST(ModelDrafterTest, ALoneChildIsTheSamplersToken) {
  for (const bool draws_tokens : {false, true}) {
    TableModelOptions options;
    options.draws_tokens = draws_tokens;
    TableModel model(options);
    ModelDrafter drafter(&model);
    SamplingParams penalized = Sampled(3);
    penalized.repetition_penalty = 1.3f;  // no device draws this
    Drafted a(drafter, Sampled(1), {3, 1, 4});
    Drafted b(drafter, penalized, {1, 5});
    for (int step = 0; step < 20; ++step) {
      const int32_t expected_a = a.sampler.Sample(
          model.Logits(a.tokens), static_cast<int>(a.tokens.size()), a.history);
      const int32_t expected_b = b.sampler.Sample(
          model.Logits(b.tokens), static_cast<int>(b.tokens.size()), b.history);
      const std::vector<Proposal> proposals =
          Propose(drafter, {a.Rows(1), b.Rows(1)});
      ASSERT_EQ(proposals.size(), 2u);
      ASSERT_EQ(proposals[0].children.size(), 1u);
      ASSERT_EQ(proposals[1].children.size(), 1u);
      EXPECT_EQ(proposals[0].children[0].token_id, expected_a);
      EXPECT_EQ(std::isnan(proposals[0].children[0].score), draws_tokens);
      EXPECT_EQ(proposals[1].children[0].token_id, expected_b);
      EXPECT_TRUE(proposals[0].logits.empty());
      a.Append(expected_a);
      b.Append(expected_b);
    }
    EXPECT_EQ(model.num_draws(), draws_tokens ? 20 : 0);
  }
}

// A root and nodes in slots of two sequences in one call; each expands as the
// chain does that its path spells.
TEST(ModelDrafterTest, NodesInSlotsExpandAsTheirChains) {
  for (const bool draws_tokens : {false, true}) {
    TableModelOptions options;
    options.draws_tokens = draws_tokens;
    TableModel model(options);
    ModelDrafter drafter(&model);
    Sampler sampler(Sampled(1), kVocabSize);
    const std::vector<std::vector<int32_t>> texts = {
        {3, 1, 4},       {3, 1, 4, 2}, {3, 1, 4, 7},
        {3, 1, 4, 7, 5}, {9, 8},       {9, 8, 7}};
    const std::vector<TreeNode> places = {
        {}, {2, kNoSlot, 3}, {0, kNoSlot, 3}, {1, 0, 4}, {}, {0, kNoSlot, 2}};
    const auto first = *drafter.NewTreeSequence(20, 3, texts[0]);
    const auto second = *drafter.NewTreeSequence(20, 1, texts[4]);
    std::vector<TokenHistory> histories(texts.size(), TokenHistory(3));
    std::vector<DraftRows> nodes(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      for (const int32_t id : texts[i]) histories[i].Push(id);
      nodes[i].sequence = (i < 4 ? first : second).get();
      nodes[i].token_ids = texts[i];
      if (i != 0 && i != 4) {
        nodes[i].token_ids = nodes[i].token_ids.last(1);
        nodes[i].node = places[i];
      }
      nodes[i].max_children = i == 2 ? 4 : 1;
      nodes[i].sampler = &sampler;
      nodes[i].history = &histories[i];
    }
    const std::vector<Proposal> proposals = Propose(drafter, nodes);
    ASSERT_EQ(proposals.size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      ASSERT_EQ(proposals[i].children.size(), i == 2 ? 4u : 1u);
      EXPECT_EQ(proposals[i].children[0].token_id,
                sampler.Sample(model.Logits(texts[i]),
                               static_cast<int>(texts[i].size()), histories[i]))
          << "node " << i;
    }
    EXPECT_EQ(model.num_draws(), draws_tokens ? 5 : 0);
    EXPECT_EQ(first->length(), 3);
    EXPECT_EQ(second->length(), 2);
    EXPECT_TRUE(first->KeepPath(3, {0, 1}).ok());
  }
}

TEST(ModelDrafterTest, ChildrenComeByScore) {
  for (const bool draws_tokens : {false, true}) {
    TableModelOptions options;
    options.draws_tokens = draws_tokens;
    TableModel model(options);
    ModelDrafter drafter(&model);
    Drafted drafted(drafter, Sampled(1), {3, 1, 4});
    std::vector<ScoredToken> expected(5);
    ASSERT_EQ(drafted.sampler.Rank(model.Logits(drafted.tokens), 3,
                                   drafted.history, absl::MakeSpan(expected)),
              5);
    const std::vector<Proposal> proposals = Propose(drafter, {drafted.Rows(5)});
    ASSERT_EQ(proposals.size(), 1u);
    ASSERT_EQ(proposals[0].children.size(), 5u);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(proposals[0].children[i].token_id, expected[i].token_id);
      EXPECT_EQ(proposals[0].children[i].score, expected[i].score);
    }
    EXPECT_EQ(proposals[0].children[0].token_id,
              drafted.sampler.Sample(model.Logits(drafted.tokens), 3,
                                     drafted.history));
  }
}

TEST(ModelDrafterTest, FewerTokensThanAskedForAreFewerChildren) {
  TableModel model(TableModelOptions{});
  ModelDrafter drafter(&model);
  SamplingParams params = Sampled(1);
  params.top_k = 3;
  Drafted drafted(drafter, params, {3, 1, 4});
  EXPECT_EQ(Propose(drafter, {drafted.Rows(8)})[0].children.size(), 3u);
}

TEST(ModelDrafterTest, ShowsWhatIsReadBesides) {
  TableModelOptions options;
  options.shows_hidden = true;
  options.draws_tokens = true;
  TableModel model(options);
  ModelDrafter drafter(&model);
  EXPECT_TRUE(drafter.traits().shows_logits);
  EXPECT_TRUE(drafter.traits().features.empty());
  Drafted a(drafter, Sampled(1), {3, 1, 4});
  Drafted b(drafter, Sampled(2), {1, 5});
  DraftRows logits = a.Rows(1);
  logits.shows_logits = true;
  DraftRows hidden = b.Rows(0);
  hidden.shows_hidden = true;
  const std::vector<Proposal> proposals = Propose(drafter, {logits, hidden});
  ASSERT_EQ(proposals.size(), 2u);
  EXPECT_EQ(proposals[0].logits, absl::MakeConstSpan(model.Logits(a.tokens)));
  EXPECT_EQ(proposals[0].children.size(), 1u);
  EXPECT_TRUE(proposals[0].hidden.empty());
  EXPECT_EQ(proposals[1].hidden, absl::MakeConstSpan(model.Logits(b.tokens)));
  EXPECT_TRUE(proposals[1].children.empty());
  EXPECT_TRUE(proposals[1].logits.empty());
  EXPECT_EQ(model.num_logit_rows(), 1);
}

TEST(ModelDrafterTest, UnsoundRowsHaveNoChildren) {
  for (const bool draws_tokens : {false, true}) {
    TableModelOptions options;
    options.draws_tokens = draws_tokens;
    options.on_row = [](absl::Span<const int32_t> tokens,
                        std::vector<float>* logits) {
      if (tokens[0] == 7) {
        logits->front() = std::numeric_limits<float>::quiet_NaN();
      }
    };
    TableModel model(options);
    ModelDrafter drafter(&model);
    Drafted sick(drafter, Sampled(1), {7, 1});
    Drafted well(drafter, Sampled(1), {6, 1});
    Drafted prompt(drafter, Sampled(1), {7, 2});
    const std::vector<Proposal> proposals =
        Propose(drafter, {sick.Rows(1), well.Rows(1), prompt.Rows(0)});
    ASSERT_EQ(proposals.size(), 3u);
    EXPECT_FALSE(proposals[0].is_sound);
    EXPECT_TRUE(proposals[0].children.empty());
    EXPECT_TRUE(proposals[1].is_sound);
    EXPECT_EQ(proposals[1].children.size(), 1u);
    EXPECT_FALSE(proposals[2].is_sound);
  }
}

// The table model counts the steps that it could have begun early.
TEST(ModelDrafterTest, SaysHowNodesGoOnWhereAllThatDoCanBeTold) {
  struct Case {
    bool other_can_be_told;
    bool shows_hidden;
    uint64_t used;
  };
  for (const Case& each :
       {Case{true, false, 1}, Case{false, false, 0}, Case{true, true, 0}}) {
    TableModelOptions options;
    options.draws_tokens = true;
    options.shows_hidden = true;
    TableModel model(options);
    ModelDrafter drafter(&model);
    SamplingParams params = Sampled(2);
    if (!each.other_can_be_told) params.repetition_penalty = 1.3f;
    Drafted a(drafter, Sampled(1), {3, 1, 4});
    Drafted b(drafter, params, {1, 5});
    for (int step = 0; step < 2; ++step) {
      DraftRows first = a.Rows(1);
      DraftRows second = b.Rows(1);
      first.goes_on = second.goes_on = step == 0;
      second.shows_hidden = each.shows_hidden;
      const std::vector<Proposal> proposals = Propose(drafter, {first, second});
      ASSERT_EQ(proposals.size(), 2u);
      a.Append(proposals[0].children[0].token_id);
      b.Append(proposals[1].children[0].token_id);
    }
    EXPECT_EQ(drafter.queued_steps().used, each.used);
  }
}

TEST(ModelDrafterTest, IsAskedBetweenLayersWhetherToGoOn) {
  TableModelOptions options;
  options.is_interruptible = true;
  TableModel model(options);
  ModelDrafter drafter(&model);
  Drafted drafted(drafter, Sampled(1), {3, 1, 4});
  const std::vector<DraftRows> nodes = {drafted.Rows(1)};
  drafter.SetInterrupt([] { return true; });
  EXPECT_TRUE(absl::IsAborted(drafter.Propose(nodes).status()));
  EXPECT_EQ(drafted.sequence->length(), 0);
  drafter.SetInterrupt(nullptr);
  EXPECT_TRUE(drafter.Propose(nodes).ok());
}

}  // namespace
}  // namespace nacre::model
