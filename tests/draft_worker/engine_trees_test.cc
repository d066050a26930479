// Sessions with branches on the draft engine: what each message says is what
// the model ranks after the text of each node, whatever is committed when.

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "speculation/draft_buffer.h"
#include "speculation/tree_spec.h"
#include "tests/draft_worker/draft_fixture.h"

namespace nacre::draft_worker {
namespace {

using speculation::DraftBuffer;
using speculation::Tail;
using speculation::TokenTree;
using ::testing::SizeIs;
using Ids = std::vector<int32_t>;

OpenDraft OpenTree(uint64_t id, Ids prompt, int rows, int num_slots,
                   int lead = 6) {
  OpenDraft open = MakeOpen(id, std::move(prompt), lead);
  open.plan.rows = rows;
  open.plan.least_score = -12;
  open.num_slots = num_slots;
  return open;
}

// The candidates after `text`, the best first.
Ids Ranked(const TableModel& model, const OpenDraft& open, const Ids& text) {
  model::Sampler sampler(open.sampling, model.info().vocab_size);
  model::TokenHistory history(open.prompt_length);
  for (const int32_t id : text) history.Push(id);
  std::vector<model::ScoredToken> best(speculation::kRanks);
  const int count =
      sampler.Rank(model.Logits(text), static_cast<int>(text.size()), history,
                   absl::MakeSpan(best));
  Ids ids;
  for (int i = 0; i < count; ++i) ids.push_back(best[i].token_id);
  return ids;
}

// The target's side of a session: what it was told, and what it commits.
class Receiver {
 public:
  Receiver(DraftFixture* fixture, OpenDraft open)
      : fixture_(*fixture),
        open_(std::move(open)),
        text_(open_.token_ids),
        buffer_(speculation::Verification::kExact,
                static_cast<int>(text_.size())) {}

  // Takes what has come; each new node is the next best one of its siblings.
  void Take() {
    std::vector<Tail> tails;
    tails.swap(fixture_.tails[open_.session_id]);
    for (const Tail& tail : tails) {
      const size_t before = buffer_.tree().nodes().size();
      const DraftBuffer::Outcome outcome = buffer_.Add(tail, text_);
      if (tail.token_ids.empty()) continue;
      EXPECT_TRUE(tail.is_tree());
      EXPECT_NE(outcome, DraftBuffer::Outcome::kMalformed);
      num_nodes_ += static_cast<int>(tail.token_ids.size());
      CheckFrom(before);
    }
  }

  void Commit(const Ids& token_ids) {
    const int base = static_cast<int>(text_.size());
    fixture_.Commit(open_.session_id, base, token_ids);
    text_.insert(text_.end(), token_ids.begin(), token_ids.end());
    buffer_.OnCommitted(base, static_cast<int>(token_ids.size()), text_);
  }

  const TokenTree& tree() const { return buffer_.tree(); }
  const Ids& text() const { return text_; }
  int num_nodes() const { return num_nodes_; }
  Ids TextOf(int index) const {
    Ids path;
    for (; index >= 0; index = tree().nodes()[index].parent) {
      path.push_back(tree().nodes()[index].token_id);
    }
    Ids text = text_;
    text.insert(text.end(), path.rbegin(), path.rend());
    return text;
  }

 private:
  void CheckFrom(size_t first) {
    for (size_t i = first; i < tree().nodes().size(); ++i) {
      const int parent = tree().nodes()[i].parent;
      int place = 0;
      for (size_t j = 0; j < i; ++j) {
        place += tree().nodes()[j].parent == parent ? 1 : 0;
      }
      const Ids ranked = Ranked(fixture_.model, open_, TextOf(parent));
      ASSERT_LT(place, static_cast<int>(ranked.size()));
      EXPECT_EQ(tree().nodes()[i].token_id, ranked[place]);
    }
  }

  DraftFixture& fixture_;
  const OpenDraft open_;
  Ids text_;
  DraftBuffer buffer_;
  int num_nodes_ = 0;
};

TEST(EngineTrees, ExpandsTheLikeliestNodesOfAStep) {
  DraftFixture fixture;
  const OpenDraft open = OpenTree(1, Prompt(5, 1), /*rows=*/4, 64);
  fixture.Open(open);
  Receiver receiver(&fixture, open);
  fixture.Drain();
  receiver.Take();
  EXPECT_GT(receiver.num_nodes(), 12);
  EXPECT_EQ(receiver.tree().BestDepth() >= 6, true);
  // The main path is the chain that it would have drafted.
  const Ids chain = Continue(fixture.model, open, open.token_ids, 6);
  int node = TokenTree::kRoot;
  for (const int32_t id : chain) {
    const absl::optional<int> child = receiver.tree().Child(node, id);
    ASSERT_TRUE(child.has_value());
    node = *child;
  }
  EXPECT_GT(fixture.model.num_rows(), 5 + 6);
}

TEST(EngineTrees, ABranchThatIsCommittedIsNotFedAgain) {
  DraftFixture fixture;
  const OpenDraft open = OpenTree(1, Prompt(5, 2), 4, 64, /*lead=*/3);
  fixture.Open(open);
  Receiver receiver(&fixture, open);
  fixture.Drain();
  receiver.Take();
  const absl::optional<int> second = receiver.tree().Child(
      TokenTree::kRoot, Ranked(fixture.model, open, receiver.text())[1]);
  ASSERT_TRUE(second.has_value());
  ASSERT_TRUE(receiver.tree().HasChild(*second));
  const int64_t rows_before = fixture.model.num_rows();
  receiver.Commit({receiver.tree().nodes()[*second].token_id});
  receiver.Take();
  const size_t known = receiver.tree().nodes().size();
  EXPECT_GT(known, 0u);
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  // Unfed leaves alone: at most the rows of the plan.
  EXPECT_LE(fixture.model.num_rows() - rows_before, 4);
  fixture.Drain();
  receiver.Take();
  EXPECT_GT(receiver.tree().nodes().size(), known);
}

TEST(EngineTrees, SaysWhatTheModelRanksWhateverIsCommittedWhen) {
  int hits = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&random](int count) {
      return std::uniform_int_distribution<int>(0, count - 1)(random);
    };
    DraftFixture fixture;
    std::vector<Receiver> receivers;
    const int num_sessions = 1 + below(3);
    for (int id = 1; id <= num_sessions; ++id) {
      OpenDraft open =
          OpenTree(static_cast<uint64_t>(id), Prompt(1 + below(9), seed + id),
                   1 + below(6), 1 + below(20), 1 + below(8));
      open.sampling.temperature = below(3) == 0 ? 0.0f : 0.9f;
      fixture.Open(open);
      receivers.emplace_back(&fixture, open);
    }
    for (int i = 0; i < 40; ++i) {
      ASSERT_TRUE(fixture.engine->RunOnce().ok());
      Receiver& receiver = receivers[static_cast<size_t>(below(num_sessions))];
      if (below(2) == 0) receiver.Take();
      if (below(2) == 0) continue;
      Ids added;
      int node = TokenTree::kRoot;
      for (int count = 1 + below(3); count > 0; --count) {
        Ids ranked = Ranked(fixture.model, OpenTree(1, {1}, 1, 1),
                            receiver.TextOf(node));
        int32_t id = static_cast<int32_t>(below(16));
        const auto& nodes = receiver.tree().nodes();
        for (size_t j = 0; j < nodes.size(); ++j) {
          if (nodes[j].parent == node && below(2) == 0) id = nodes[j].token_id;
        }
        added.push_back(id);
        const absl::optional<int> child = receiver.tree().Child(node, id);
        if (!child.has_value()) break;
        node = *child;
        ++hits;
      }
      receiver.Commit(added);
    }
    fixture.Drain();
    for (Receiver& receiver : receivers) receiver.Take();
    ASSERT_TRUE(fixture.failures.empty()) << fixture.failures.begin()->second;
    if (HasFailure()) return;
  }
  EXPECT_GT(hits, 1000);
}

TEST(EngineTrees, AnAbandonedStepLeavesTheTreeAsItWas) {
  TableModelOptions options;
  options.is_interruptible = true;
  DraftFixture* running = nullptr;
  Receiver* told = nullptr;
  int countdown = -1;
  options.on_forward = [&](int) {
    // In the middle of a forward: a token that no row of it stands below.
    if (countdown-- == 0) told->Commit({15, 15});
    return absl::OkStatus();
  };
  DraftFixture fixture(options);
  running = &fixture;
  const OpenDraft open = OpenTree(1, Prompt(5, 3), 4, 16, 8);
  Receiver receiver(running, open);
  told = &receiver;
  fixture.Open(open);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(fixture.engine->RunOnce().ok());
  receiver.Take();
  countdown = 0;
  const int64_t before = fixture.model.num_forwards();
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  EXPECT_EQ(fixture.model.num_forwards(), before);  // it was abandoned
  fixture.Drain();
  receiver.Take();
  EXPECT_GE(receiver.tree().BestDepth(), 8);
}

// Of nodes with several children the logits come to the host; a chain's tokens
// are drawn on the device as ever, in the same steps.
TEST(EngineTrees, ADraftThatDrawsOnItsDeviceGrowsTheSameTree) {
  std::vector<std::vector<Tail>> trees;
  std::vector<Ids> chains;
  for (const bool draws_tokens : {false, true}) {
    TableModelOptions options;
    options.draws_tokens = draws_tokens;
    DraftFixture fixture(options);
    EXPECT_TRUE(fixture.engine->grows_trees());
    OpenDraft tree = OpenTree(1, Prompt(5, 7), 4, 64);
    OpenDraft chain = MakeOpen(2, Prompt(4, 8), 6);
    for (OpenDraft* open : {&tree, &chain}) {
      open->sampling.repetition_penalty = 1.0f;  // else no device draws
      fixture.Open(*open);
    }
    fixture.Drain();
    fixture.Commit(1, 5, {Ranked(fixture.model, tree, tree.token_ids)[1]});
    fixture.Drain();
    trees.push_back(fixture.tails[1]);
    chains.push_back(fixture.TakeDrafted(2));
    // Its tokens, and a row of each prompt that is looked at.
    EXPECT_EQ(fixture.model.num_draws(), draws_tokens ? 6 + 2 : 0);
  }
  EXPECT_EQ(trees[0], trees[1]);
  EXPECT_EQ(chains[0], chains[1]);
  size_t nodes = 0;
  for (const Tail& tail : trees[1]) nodes += tail.parents.size();
  EXPECT_GT(nodes, 20u);
}

// A draft with nothing worth a row has no work. It waits for no verdict.
TEST(EngineTrees, WaitsForAVerdictOnlyWhereOneLetsItGoOn) {
  using worker::WorkerState;
  const auto idle = [](const std::vector<OpenDraft>& opens) {
    DraftFixture fixture;
    for (const OpenDraft& open : opens) fixture.Open(open);
    fixture.Drain();
    const auto before = fixture.engine->stats().time;
    fixture.now_ns += 1000;
    EXPECT_TRUE(fixture.engine->RunOnce().ok());
    const auto after = fixture.engine->stats().time;
    const auto in = [&](WorkerState state) {
      return after[state] - before[state] >= 1000;
    };
    EXPECT_NE(in(WorkerState::kWaitVerdict), in(WorkerState::kNoWork));
    return in(WorkerState::kNoWork);
  };
  const OpenDraft at_its_lead = OpenTree(1, Prompt(5, 7), 4, 64);
  OpenDraft at_the_end = OpenTree(2, Prompt(5, 7), 4, 64);
  at_the_end.max_length = 8;
  OpenDraft resting = OpenTree(3, Prompt(5, 7), 4, 64, /*lead=*/0);
  OpenDraft chain_at_the_end = MakeOpen(4, Prompt(5, 7), 6);
  chain_at_the_end.max_length = 8;
  EXPECT_FALSE(idle({at_its_lead}));
  EXPECT_TRUE(idle({at_the_end}));
  EXPECT_TRUE(idle({resting}));
  EXPECT_TRUE(idle({at_the_end, resting}));
  EXPECT_FALSE(idle({at_the_end, at_its_lead}));
  EXPECT_FALSE(idle({chain_at_the_end})) << "only a verdict can free it";
}

TEST(EngineTrees, WithoutRoomForBranchesItDraftsAChain) {
  TableModelOptions options;
  options.kv_capacity_tokens = 520;
  DraftFixture fixture(options);
  fixture.Open(OpenTree(1, Prompt(5, 4), 4, 64));
  fixture.Drain();
  EXPECT_EQ(fixture.TakeDrafted(1).size(), 6u);
}

// Two tokens are left of one session and many of another; the pool has no
// token more than they reserve.
TEST(EngineTrees, TreesStayWithinWhatWasReserved) {
  for (const int num_slots : {64, 128}) {
    for (uint32_t seed = 0; seed < 10; ++seed) {
      SCOPED_TRACE(::testing::Message() << num_slots << " slots, " << seed);
      std::mt19937 random(seed);
      TableModelOptions options;
      options.kv_capacity_tokens = (3 + 1 + num_slots) + (3 + 80 + num_slots);
      DraftFixture fixture(options);
      std::vector<Receiver> receivers;
      for (const int id : {1, 2}) {
        OpenDraft open = OpenTree(static_cast<uint64_t>(id),
                                  Prompt(3, seed + static_cast<uint32_t>(id)),
                                  /*rows=*/32, num_slots, /*lead=*/16);
        open.plan.least_score = -60;
        open.max_length = 3 + (id == 1 ? 1 : 80);
        fixture.Open(open);
        receivers.emplace_back(&fixture, open);
      }
      for (int i = 0; i < 60; ++i) {
        ASSERT_TRUE(fixture.engine->RunOnce().ok());
        ASSERT_EQ(fixture.engine->stats().kv_free_tokens, 0);
        Receiver& receiver = receivers[1];
        receiver.Take();
        if (random() % 3 != 0) continue;
        // Along any branch, or none.
        const auto& nodes = receiver.tree().nodes();
        Ids path = {static_cast<int32_t>(random() % 16)};
        if (!nodes.empty()) {
          const Ids text =
              receiver.TextOf(static_cast<int>(random() % nodes.size()));
          path.assign(text.begin() +
                          static_cast<std::ptrdiff_t>(receiver.text().size()),
                      text.end());
        }
        if (receiver.text().size() + path.size() > 3 + 80) break;
        receiver.Commit(path);
      }
      fixture.Drain();
      receivers[0].Take();
      // Nothing is behind its only position.
      EXPECT_EQ(receivers[0].tree().BestDepth(), 1);
      EXPECT_GT(receivers[1].num_nodes(), num_slots);
      EXPECT_TRUE(fixture.failures.empty());
    }
  }
}

TEST(EngineTrees, ASessionWithAPolicyOrTheRatioTestDraftsAChain) {
  DraftFixture fixture;
  OpenDraft open = OpenTree(1, Prompt(5, 4), 4, 64);
  open.policy = "heuristic";
  fixture.Open(open);
  OpenDraft ratio = OpenTree(2, Prompt(5, 4), 4, 64);
  ratio.verification = speculation::Verification::kRatio;
  fixture.Open(ratio);
  fixture.Drain();
  EXPECT_TRUE(fixture.failures.empty());
  for (const uint64_t id : {1, 2}) {
    ASSERT_FALSE(fixture.tails[id].empty());
    for (const Tail& tail : fixture.tails[id]) EXPECT_FALSE(tail.is_tree());
  }
}

TEST(EngineTrees, RefusesSlotsBeyondTheLimit) {
  DraftFixture fixture;
  fixture.Open(OpenTree(1, Prompt(5, 4), 4, 1025));
  fixture.Drain();
  ASSERT_THAT(fixture.failures, SizeIs(1));
  EXPECT_EQ(fixture.failures[1],
            absl::InvalidArgumentError("num_slots 1025 is outside 0 to 1024"));
}

TEST(EngineTrees, TellsRanksOfCommittedTokens) {
  DraftFixture fixture;
  const OpenDraft open = OpenTree(1, Prompt(5, 6), 4, 64, 3);
  fixture.Open(open);
  Receiver receiver(&fixture, open);
  fixture.Drain();
  receiver.Take();
  const Ids ranked = Ranked(fixture.model, open, receiver.text());
  receiver.Commit({ranked[2]});
  fixture.Drain();
  ASSERT_THAT(fixture.ranks, SizeIs(1));
  EXPECT_EQ(fixture.ranks[0].ranks, std::vector<int>{3});
  // Its three rows a step have been there.
  EXPECT_EQ(fixture.ranks[0].prepared, 1);
}

// Of commits that come between two tails.
TEST(EngineTrees, TellsTheRanksOfSeveralCommitsTogether) {
  DraftFixture fixture;
  const OpenDraft open = OpenTree(1, Prompt(5, 6), 4, 64, 3);
  fixture.Open(open);
  Receiver receiver(&fixture, open);
  fixture.Drain();
  receiver.Take();
  const Ids ranked = Ranked(fixture.model, open, receiver.text());
  receiver.Commit({ranked[2]});
  receiver.Commit({ranked[0]});  // nothing was prepared there
  fixture.Drain();
  ASSERT_THAT(fixture.ranks, SizeIs(1));
  EXPECT_EQ(fixture.ranks[0].ranks.front(), 3);
  EXPECT_EQ(fixture.ranks[0].prepared, 1);
}

// What one report has told the next one does not tell again.
TEST(EngineTrees, TellsOnceWhatWasPrepared) {
  DraftFixture fixture;
  const OpenDraft open = OpenTree(1, Prompt(5, 6), 4, 64, 3);
  fixture.Open(open);
  Receiver receiver(&fixture, open);
  fixture.Drain();
  receiver.Take();
  receiver.Commit({Ranked(fixture.model, open, receiver.text())[2]});
  fixture.Drain();
  receiver.Take();
  // No candidate: nothing was prepared behind it.
  const Ids ranked = Ranked(fixture.model, open, receiver.text());
  int32_t other = 0;
  while (std::find(ranked.begin(), ranked.end(), other) != ranked.end()) {
    ++other;
  }
  receiver.Commit({other});
  fixture.Drain();
  ASSERT_THAT(fixture.ranks, SizeIs(2));
  EXPECT_EQ(fixture.ranks[0].prepared, 1);
  EXPECT_EQ(fixture.ranks[1].ranks, std::vector<int>{speculation::kBeyond});
  EXPECT_EQ(fixture.ranks[1].prepared, 0);
}

// A shape ranks by probability: that says nothing of what scores are worth.
TEST(EngineTrees, AShapesProbabilitiesCalibrateNoScores) {
  const auto scores_beside = [](bool has_shape) {
    DraftFixture fixture;
    if (has_shape) {
      OpenDraft open = OpenTree(1, Prompt(5, 6), 4, 64, 3);
      open.plan.tree =
          *speculation::ParseTreeSpec("eagle2:k=3,depth=3,total=9");
      fixture.Open(open);
      fixture.Drain();
      // The second child of the prompt's last token.
      const Tail& tail = fixture.tails[1].front();
      EXPECT_EQ(tail.parents[1], 0);
      fixture.Commit(1, open.prompt_length, {tail.token_ids[1]});
      fixture.Drain();
      EXPECT_FALSE(fixture.ranks.empty());
    }
    fixture.Open(OpenTree(2, Prompt(5, 1), 4, 64));
    fixture.Drain();
    std::vector<float> scores;
    for (const Tail& tail : fixture.tails[2]) {
      scores.insert(scores.end(), tail.scores.begin(), tail.scores.end());
    }
    return scores;
  };
  const std::vector<float> alone = scores_beside(false);
  EXPECT_GT(alone.size(), 12u);
  EXPECT_EQ(scores_beside(true), alone);
}

// How long the main path of these messages is, whose root is the text's end: a
// first child comes before its siblings.
int MainLength(const std::vector<Tail>& tails) {
  int length = 0, tip = 0;
  for (const Tail& tail : tails) {
    for (size_t i = 0; i < tail.token_ids.size(); ++i) {
      if (tail.parents[i] != tip) continue;
      tip = tail.first_node + static_cast<int>(i);
      ++length;
    }
  }
  return length;
}

TEST(EngineTrees, ALengthPolicyEndsTheDepthOfAShape) {
  for (const char* tree : {"cape", "eagle2:k=3,depth=9,total=40"}) {
    SCOPED_TRACE(tree);
    DraftFixture fixture;
    OpenDraft open = OpenTree(1, Prompt(5, 6), 4, 64, 6);
    open.plan.tree = *speculation::ParseTreeSpec(tree);
    open.policy = "heuristic:start=2";
    fixture.Open(open);
    fixture.Drain();
    const std::vector<Tail>& tails = fixture.tails[1];
    ASSERT_GE(tails.size(), 2u);
    EXPECT_EQ(MainLength(tails), 2);
    EXPECT_EQ(tails.back().stop, speculation::StopMark::kPolicy);
    EXPECT_GT(tails.front().token_ids.size(), 1u) << "siblings are made";
    const size_t before = tails.size();
    fixture.Commit(1, open.prompt_length, {tails.front().token_ids.front()});
    fixture.Drain();
    EXPECT_GT(tails.size(), before) << "a commit lets it go on";
  }
}

// A reader takes no more of them in one report.
TEST(EngineTrees, TellsManyRanksInSeveralReports) {
  DraftFixture fixture;
  OpenDraft open = OpenTree(1, Prompt(5, 6), 4, 64, speculation::kMaxLead);
  open.sampling.temperature = 0;
  fixture.Open(open);
  Receiver receiver(&fixture, open);
  fixture.Drain();
  receiver.Take();
  ASSERT_GT(receiver.tree().BestDepth(), speculation::kMaxRankReport);
  // All of the main path but for the last, in commits of steps.
  const Ids chain =
      Continue(fixture.model, open, open.token_ids, speculation::kMaxLead);
  for (int i = 0; i < 120; i += 30) {
    receiver.Commit({chain.begin() + i, chain.begin() + i + 30});
  }
  const Ids ranked = Ranked(fixture.model, open, receiver.text());
  receiver.Commit({ranked[1]});
  fixture.Drain();
  ASSERT_THAT(fixture.ranks, SizeIs(2));
  EXPECT_THAT(fixture.ranks[0].ranks,
              SizeIs(static_cast<size_t>(speculation::kMaxRankReport)));
  EXPECT_THAT(fixture.ranks[1].ranks,
              SizeIs(static_cast<size_t>(121 - speculation::kMaxRankReport)));
  EXPECT_EQ(fixture.ranks[0].prepared, 0);
  EXPECT_EQ(fixture.ranks[1].ranks.back(), 2);
}

}  // namespace
}  // namespace nacre::draft_worker
