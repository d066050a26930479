// Rows of trees in the target engine: whatever is drafted, however it branches,
// the session says what the target says alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/target_worker/target_fixture.h"

namespace nacre::target_worker {
namespace {

using Ids = std::vector<int32_t>;

constexpr int kSlots = 64;

OpenTarget TreeOpen(uint64_t id, Ids prompt, int max_tokens) {
  OpenTarget open = MakeOpen(id, std::move(prompt), max_tokens);
  open.plan = {0, 0, /*window=*/16, 0};
  open.plan.tree_rows = 64;
  open.num_slots = kSlots;
  open.has_draft = true;
  open.epoch = 1;
  return open;
}

// Rows are free: all nodes that there may be are taken.
void MakeRowsFree(TargetFixture& fixture) {
  fixture.engine->LearnStepTimes(
      std::vector<worker::StepTime>{{1, 1000}, {512, 1000}});
}

struct Nodes {
  Ids token_ids;
  Ids parents;
  std::vector<float> scores;
};

void SendTree(TargetFixture& fixture, uint64_t id, int base_length, int first,
              const Nodes& nodes) {
  speculation::Tail tail;
  tail.epoch = 1;
  tail.base_length = tail.first_position = base_length;
  tail.first_node = first;
  tail.token_ids = nodes.token_ids;
  tail.parents = nodes.parents;
  tail.scores = nodes.scores;
  TargetCommands commands;
  commands.stream = 1;
  commands.tails.push_back({id, tail});
  fixture.engine->Push(std::move(commands));
}

// Of the first step.
int RowsOf(const TargetFixture& fixture) {
  return fixture.verdicts.front().window;
}

TEST(TargetTrees, FollowsABranchAndKeepsItsRows) {
  TargetFixture fixture;
  const OpenTarget open = TreeOpen(1, {3}, 12);
  const Ids said = Autoregressive(fixture.model, open);
  MakeRowsFree(fixture);
  fixture.Open(open);
  // The target's tokens are the less likely child each time.
  const int32_t wrong = (said[1] + 1) % 16;
  SendTree(fixture, 1, 1, 1,
           {{wrong, said[1], 2, said[2], said[3]},
            {0, 0, 1, 2, 4},
            {-1, -2, -1, -2, -1}});
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  ASSERT_TRUE(fixture.engine->RunOnce().ok());  // sends what it said
  ASSERT_FALSE(fixture.verdicts.empty());
  EXPECT_EQ(fixture.verdicts[0].window, 5);
  EXPECT_EQ(fixture.verdicts[0].matched, 3);
  EXPECT_EQ(fixture.verdicts[0].path, (Ids{2, 4, 5}));
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.tokens[1], said);
}

TEST(TargetTrees, TakesTheRowsThatPay) {
  TargetFixture fixture;
  const OpenTarget open = TreeOpen(1, {3}, 12);
  const Ids said = Autoregressive(fixture.model, open);
  // The third row doubles the time.
  fixture.engine->LearnStepTimes(std::vector<worker::StepTime>{
      {1, 1000}, {2, 1000}, {3, 2000}, {8, 4000}});
  fixture.Open(open);
  SendTree(fixture, 1, 1, 1, {{1, 2, 3}, {0, 0, 0}, {-3, -1, -2}});
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  ASSERT_TRUE(fixture.engine->RunOnce().ok());  // sends what it said
  ASSERT_FALSE(fixture.verdicts.empty());
  EXPECT_EQ(RowsOf(fixture), 1);
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.tokens[1], said);
}

TEST(TargetTrees, WithoutSlotsVerifiesTheBestPath) {
  for (const bool has_slots : {false, true}) {
    // Beside the text's own positions no slot fits.
    TargetFixture fixture({.kv_capacity_tokens = 15});
    OpenTarget open = TreeOpen(1, {3}, 12);
    if (!has_slots) open.num_slots = 0;
    const Ids said = Autoregressive(fixture.model, open);
    MakeRowsFree(fixture);
    fixture.Open(open);
    SendTree(fixture, 1, 1, 1, {{1, 2, 3, 4}, {0, 0, 1, 2}, {-3, -1, 0, 0}});
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
    ASSERT_FALSE(fixture.verdicts.empty());
    EXPECT_EQ(RowsOf(fixture), 2);
    fixture.RunToEnd(1);
    EXPECT_EQ(fixture.tokens[1], said);
  }
}

TEST(TargetTrees, RefusesSlotsThatNoSequenceHas) {
  TargetFixture fixture;
  OpenTarget open = TreeOpen(1, {3}, 12);
  open.num_slots = model::LanguageModel::kMostSlots + 1;
  fixture.Open(open);
  fixture.Drain();
  EXPECT_EQ(fixture.failures[1],
            absl::InvalidArgumentError("num_slots 1025 is outside 0 to 1024"));
}

// A draft that sends whatever may be: nodes below any that it has sent, true
// and false ones, twice the same, late, of several sessions at once.
class WildDraft {
 public:
  WildDraft(TargetFixture* fixture, uint64_t id, Ids said, uint64_t seed)
      : fixture_(*fixture), id_(id), said_(std::move(said)), random_(seed) {}

  void Send() {
    const int length = static_cast<int>(fixture_.tokens[id_].size());
    // Of a text that it may not know the end of.
    base_ = std::max(base_, length - static_cast<int>(random_() % 3));
    Nodes nodes;
    const int first = next_;
    for (int n = static_cast<int>(random_() % 12); n > 0; --n) {
      // Where it goes on, and how far that is from the first token.
      int parent = 0;
      int position = base_;
      if (!places_.empty() && random_() % 4 != 0) {
        const size_t back = random_() % std::min<size_t>(places_.size(), 8);
        parent = next_ - 1 - static_cast<int>(back);
        position = places_[places_.size() - 1 - back] + 1;
      }
      const bool is_true =
          position < static_cast<int>(said_.size()) && random_() % 3 != 0;
      nodes.token_ids.push_back(is_true ? said_[position]
                                        : static_cast<int32_t>(random_() % 16));
      nodes.parents.push_back(parent);
      nodes.scores.push_back(-static_cast<float>(random_() % 32) / 8);
      places_.push_back(position);
      ++next_;
    }
    if (!nodes.token_ids.empty()) {
      SendTree(fixture_, id_, base_, first, nodes);
    }
  }

 private:
  TargetFixture& fixture_;
  const uint64_t id_;
  const Ids said_;
  std::mt19937_64 random_;
  int base_ = 0;
  int next_ = 1;
  std::vector<int> places_;  // of each node
};

struct WildCounts {
  uint64_t suffix_proposed = 0;  // tokens by the target itself
  int refused = 0;               // sessions
};

// `is_tight`: the pool has room for the texts of all sessions, and for the
// slots of some. A later session may find neither.
WildCounts RunWild(uint64_t seed, bool draws_tokens, bool is_tight = false) {
  std::mt19937_64 random(seed);
  nacre::testing::TableModelOptions options;
  options.draws_tokens = draws_tokens;
  // Texts of 21 to 80 tokens each.
  if (is_tight) {
    options.kv_capacity_tokens = 80 + static_cast<int64_t>(random() % 400);
  }
  if (random() % 2 == 0) options.eos_token_ids = {5};
  TargetFixture fixture(options, {.max_rows = random() % 3 == 0 ? 24 : 512});
  if (random() % 4 != 0) {
    fixture.engine->LearnStepTimes(std::vector<worker::StepTime>{
        {1, 1000},
        {8, 1000 + static_cast<int64_t>(random() % 3000)},
        {64, 5000}});
  }
  const int64_t free = fixture.engine->stats().kv_free_tokens;
  std::map<uint64_t, Ids> said;
  std::vector<WildDraft> drafts;
  WildCounts counts;
  const uint64_t sessions = 1 + random() % 5;
  for (uint64_t id = 1; id <= sessions; ++id) {
    OpenTarget open =
        TreeOpen(id, Prompt(1 + static_cast<int>(random() % 40), seed + id),
                 1 + static_cast<int>(random() % 40));
    open.plan.window = static_cast<int>(random() % 17);
    open.plan.tree_rows = static_cast<int>(random() % 65);
    open.plan.takes_all = random() % 4 == 0;
    // Its own nodes and the draft's stand in one tree.
    if (random() % 2 == 0) open.suffixes.emplace();
    open.sampling.temperature = static_cast<float>(random() % 3) * 0.5f;
    open.sampling.seed = random();
    if (random() % 3 == 0) open.sampling.repetition_penalty = 1.3f;
    if (random() % 3 == 0) open.sampling.presence_penalty = 0.5f;
    if (random() % 4 == 0) open.logprobs = 2;
    if (random() % 5 == 0) open.num_slots = 0;
    if (random() % 4 == 0) open.min_tokens = std::min(3, open.max_tokens);
    if (random() % 4 == 0) open.stop_token_ids = {9};
    said[id] = Autoregressive(fixture.model, open);
    drafts.emplace_back(&fixture, id, said[id], random());
    fixture.Open(open);
  }
  for (int step = 0; step < 4000; ++step) {
    bool all_done = true;
    for (uint64_t id = 1; id <= sessions; ++id) {
      if (fixture.finish[id] != speculation::FinishReason::kNone ||
          fixture.failures.count(id) > 0) {
        continue;
      }
      all_done = false;
      fixture.Acknowledge(id);
      if (random() % 3 != 0) drafts[id - 1].Send();
    }
    if (all_done) break;
    const absl::Status ran = fixture.engine->RunOnce().status();
    EXPECT_TRUE(ran.ok()) << ran;
    EXPECT_GE(fixture.engine->stats().kv_free_tokens, 0);
    if (!ran.ok()) return counts;
  }
  for (uint64_t id = 1; id <= sessions; ++id) {
    if (fixture.failures.count(id) > 0) {
      EXPECT_TRUE(is_tight && absl::IsResourceExhausted(fixture.failures[id]))
          << fixture.failures[id];
      ++counts.refused;
      continue;
    }
    EXPECT_EQ(fixture.tokens[id], said[id]) << "session " << id;
    TargetCommands commands;
    commands.stream = 1;
    commands.close = {id};
    fixture.engine->Push(std::move(commands));
  }
  fixture.Drain();
  EXPECT_EQ(fixture.engine->stats().kv_free_tokens, free);
  counts.suffix_proposed = fixture.engine->stats().suffix_proposed;
  return counts;
}

TEST(TargetTrees, EqualTheTargetAloneWhateverIsDrafted) {
  uint64_t suffix_proposed = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    suffix_proposed +=
        RunWild(seed, /*draws_tokens=*/seed % 2 == 1).suffix_proposed;
    if (HasFailure()) return;
  }
  EXPECT_GT(suffix_proposed, 0u);
}

TEST(TargetTrees, EqualTheTargetAloneInTightPools) {
  int refused = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    refused += RunWild(seed, /*draws_tokens=*/seed % 2 == 1, /*is_tight=*/true)
                   .refused;
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, 0);
}

// Siblings in slots are no positions: two tokens are left, and the draft has
// a hundred for the first of them.
TEST(TargetTrees, ManySiblingsNeedNoMoreThanWasReserved) {
  constexpr int kVocab = 256;
  constexpr int kOthers = 24;  // positions of the other session
  nacre::testing::TableModelOptions options;
  options.vocab_size = kVocab;
  options.kv_capacity_tokens = 1 + 2 + kSlots + kOthers;
  TargetFixture* running = nullptr;
  std::vector<int64_t> free_in_steps;
  options.on_forward = [&](int) {
    free_in_steps.push_back(running->model.kv_free_tokens());
    return absl::OkStatus();
  };
  TargetFixture fixture(options);
  running = &fixture;
  const OpenTarget open = TreeOpen(1, {3}, 2);
  OpenTarget other = TreeOpen(2, {6}, kOthers - 1);
  const Ids said = Autoregressive(fixture.model, open);
  const Ids others = Autoregressive(fixture.model, other);
  MakeRowsFree(fixture);
  fixture.Open(open);
  fixture.Open(other);
  Nodes nodes;
  for (int32_t id = 0; id < 100; ++id) {
    nodes.token_ids.push_back((said[1] + 1 + id) % kVocab);
    nodes.parents.push_back(0);
    nodes.scores.push_back(-1);
  }
  nodes.token_ids[20] = said[1];
  SendTree(fixture, 1, 1, 1, nodes);
  fixture.RunToEnd(1);
  ASSERT_FALSE(free_in_steps.empty());
  EXPECT_EQ(free_in_steps[0], 0);
  EXPECT_EQ(fixture.tokens[1], said);
  EXPECT_GT(RowsOf(fixture), 16);
  EXPECT_LE(RowsOf(fixture), 1 + kSlots);
  fixture.RunToEnd(2);
  EXPECT_EQ(fixture.tokens[2], others);
  EXPECT_TRUE(fixture.failures.empty());
}

}  // namespace
}  // namespace nacre::target_worker
