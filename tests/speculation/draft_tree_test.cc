// The tree that a draft grows, against a model of the KV cache that its rows
// fill: after any steps and commits the main path lies at positions, each
// branch in slots below its parent, and each holds the text that it is to.

#include "speculation/draft_tree.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "speculation/draft_buffer.h"
#include "speculation/draft_session.h"

namespace nacre::speculation {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Ids = std::vector<int32_t>;
using Outcome = DraftSession::CommitOutcome;

constexpr float kNoPrice = -1000;

DraftSession Open(int rows, int num_slots, int lead = 8, int max_length = 100,
                  float least_score = kNoPrice) {
  DraftSession::Options options;
  options.epoch = 4;
  options.max_length = max_length;
  options.end_ids = {7};
  options.plan.lead_after_mismatch = options.plan.lead_in_flow = lead;
  options.plan.rows = rows;
  options.plan.least_score = least_score;
  options.num_slots = num_slots;
  return DraftSession(options, {10, 11, 12});
}

std::vector<DraftTree::Row> Begin(DraftSession& session, int most = 64) {
  std::vector<DraftTree::Row> rows;
  session.BeginStep(most, &rows);
  return rows;
}

// Children of these tokens, each half as likely as the one before.
void Expand(DraftSession& session, int number, const Ids& token_ids, Tail* tail,
            bool policy_stop = false) {
  std::vector<float> scores, log2s;
  for (size_t i = 0; i < token_ids.size(); ++i) {
    scores.push_back(-static_cast<float>(i));
    log2s.push_back(-1 - static_cast<float>(i));
  }
  session.OnExpanded(number, {token_ids, scores, log2s}, tail, policy_stop);
}

// A step whose rows have these children, in order.
Tail Step(DraftSession& session, const std::vector<Ids>& children) {
  const std::vector<DraftTree::Row> rows = Begin(session);
  EXPECT_EQ(rows.size(), children.size());
  Tail tail;
  for (size_t i = 0; i < rows.size() && i < children.size(); ++i) {
    Expand(session, rows[i].number, children[i], &tail);
  }
  session.FinishStep(&tail);
  return tail;
}

TEST(DraftTree, AStepTellsTheChildrenOfItsNodes) {
  DraftSession session = Open(3, 8);
  const Tail first = Step(session, {{1, 2, 3}});
  EXPECT_EQ(first.epoch, 4u);
  EXPECT_EQ(first.base_length, 3);
  EXPECT_EQ(first.first_position, 3);
  EXPECT_EQ(first.first_node, 1);
  EXPECT_EQ(first.token_ids, (Ids{1, 2, 3}));
  EXPECT_EQ(first.parents, (Ids{0, 0, 0}));
  EXPECT_THAT(first.scores, ElementsAre(-1, -2, -3));
  EXPECT_EQ(first.stop, StopMark::kNone);
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 1}));
  const std::vector<DraftTree::Row> rows = Begin(session);
  using Row = DraftTree::Row;
  EXPECT_THAT(
      rows,
      ElementsAre(Row{.number = 1, .token_id = 1, .position = 3},
                  Row{.number = 2, .token_id = 2, .position = 3, .slot = 0},
                  Row{.number = 3, .token_id = 3, .position = 3, .slot = 1}));
  Tail tail;
  Expand(session, 1, {4}, &tail);
  Expand(session, 2, {5, 6}, &tail);
  Expand(session, 3, {5}, &tail);
  session.FinishStep(&tail);
  EXPECT_EQ(tail.first_node, 4);
  EXPECT_EQ(tail.token_ids, (Ids{4, 5, 6, 5}));
  EXPECT_EQ(tail.parents, (Ids{1, 2, 2, 3}));
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 1, 4}));
  // The likeliest: 4 (-2), below it 5 below 2 (-3); 6 (-4) before 5 below 3
  // (-4), since it was first.
  const std::vector<DraftTree::Row> next = Begin(session);
  ASSERT_EQ(next.size(), 3u);
  EXPECT_EQ(next[0], (Row{.number = 4, .token_id = 4, .position = 4}));
  EXPECT_EQ(next[1], (Row{.number = 5,
                          .token_id = 5,
                          .position = 4,
                          .slot = 2,
                          .parent_slot = 0}));
  EXPECT_EQ(next[2].number, 6);
}

TEST(DraftTree, ABranchThatIsCommittedBecomesTheMainPath) {
  DraftSession session = Open(3, 8);
  Step(session, {{1, 2, 3}});
  Step(session, {{4}, {5, 6}, {5}});
  Step(session, {{14}, {15}, {16}});  // of 4, of 2-5, of 2-6
  EXPECT_EQ(session.OnCommit({3, {2}}), Outcome::kMatched);
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 2, 5, 15}));
  EXPECT_EQ(session.kept_length(), 3);
  EXPECT_THAT(session.tree()->kept_slots(), ElementsAre(0, 2));
  EXPECT_EQ(session.kv_limit(), 5);
  EXPECT_EQ(session.last_commit().accepted, 1);
  EXPECT_FALSE(session.last_commit().rejected);
  EXPECT_EQ(session.last_commit().ranks, std::vector<int>{2});
  EXPECT_EQ(session.last_commit().prepared, 1);
  // 2-6 keeps its slot; its parent is at a position.
  const std::vector<DraftTree::Row> rows = Begin(session);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].token_id, 15);
  EXPECT_EQ(rows[0].slot, -1);
  EXPECT_EQ(rows[1].token_id, 16);
  EXPECT_EQ(rows[1].parent_slot, 3);
}

// A place was a mismatch whose next token waits for the draft.
TEST(DraftTree, ALeafIsNotPrepared) {
  DraftSession session = Open(2, 8);
  Step(session, {{1, 2, 3}});
  std::vector<DraftTree::Row> rows = Begin(session);  // 1 and 2, and no end
  ASSERT_EQ(rows.size(), 2u);
  DraftSession stepping = session;
  // 2 is in the step, and has no child yet.
  EXPECT_EQ(stepping.OnCommit({3, {2}}), Outcome::kMatched);
  EXPECT_EQ(stepping.last_commit().ranks, std::vector<int>{2});
  EXPECT_EQ(stepping.last_commit().prepared, 0);
  EXPECT_EQ(session.OnCommit({3, {3}}), Outcome::kMatched);
  EXPECT_EQ(session.last_commit().ranks, std::vector<int>{3});
  EXPECT_EQ(session.last_commit().prepared, 0);
}

// ... which is none of a mismatch, though it has children.
TEST(DraftTree, OnlyMismatchesCountAsPrepared) {
  DraftSession session = Open(2, 8);
  Step(session, {{1, 2}});
  Step(session, {{4, 5}, {6}});
  EXPECT_EQ(session.OnCommit({3, {1}}), Outcome::kMatched);
  EXPECT_EQ(session.last_commit().prepared, 0);
}

TEST(DraftTree, TheMainPathKeepsItsPositions) {
  DraftSession session = Open(2, 8);
  Step(session, {{1, 2}});
  Step(session, {{4, 5}, {6}});
  EXPECT_EQ(session.OnCommit({3, {1}}), Outcome::kMatched);
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 1, 4}));
  EXPECT_EQ(session.kept_length(), 5);
  EXPECT_THAT(session.tree()->kept_slots(), IsEmpty());
  EXPECT_EQ(session.tree()->free_slots(), 8);
  EXPECT_EQ(session.last_commit().ranks, std::vector<int>{1});
}

TEST(DraftTree, ATokenWithoutANodeStartsAnew) {
  DraftSession session = Open(2, 8);
  Step(session, {{1, 2}});
  Step(session, {{4}, {5, 6}});
  // 2 has a node, its child 9 none: 2 is kept out of its slot.
  EXPECT_EQ(session.OnCommit({3, {2, 9}}), Outcome::kMismatch);
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 2, 9}));
  EXPECT_EQ(session.kept_length(), 3);
  EXPECT_THAT(session.tree()->kept_slots(), ElementsAre(0));
  EXPECT_TRUE(session.last_commit().rejected);
  EXPECT_EQ(session.last_commit().ranks, std::vector<int>{2});
  EXPECT_EQ(session.tree()->free_slots(), 8);
  const std::vector<DraftTree::Row> rows = Begin(session);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].position, 4);
  EXPECT_EQ(rows[0].slot, -1);
}

TEST(DraftTree, ATextThatGoesOnBehindALeafOvertakesTheDraft) {
  DraftSession session = Open(2, 8);
  Step(session, {{1, 2}});
  EXPECT_EQ(session.OnCommit({3, {2, 9, 8}}), Outcome::kMatched);
  EXPECT_TRUE(session.last_commit().overtaken);
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 2, 9, 8}));
  EXPECT_EQ(session.kept_length(), 3);  // 1 was never fed, nor was 2
}

TEST(DraftTree, TheLeadBoundsEveryPath) {
  DraftSession session = Open(4, 8, /*lead=*/2);
  Step(session, {{1, 2}});
  const Tail tail = Step(session, {{3, 4}, {5}});
  EXPECT_EQ(tail.stop, StopMark::kLead);
  EXPECT_FALSE(session.WantsStep());
  EXPECT_EQ(session.OnCommit({3, {1}}), Outcome::kMatched);
  EXPECT_TRUE(session.WantsStep());
}

TEST(DraftTree, BranchesGoOnWhereTheMainPathHasEnded) {
  DraftSession session = Open(4, 8);
  const Tail tail = Step(session, {{7, 2}});
  EXPECT_EQ(tail.stop, StopMark::kEnd);
  ASSERT_TRUE(session.WantsStep());
  const std::vector<DraftTree::Row> rows = Begin(session);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].token_id, 2);
  EXPECT_EQ(rows[0].slot, 0);
}

TEST(DraftTree, NothingIsDraftedForPositionsBeyondTheLast) {
  DraftSession session = Open(4, 8, /*lead=*/8, /*max_length=*/5);
  Step(session, {{1, 2}});
  const Tail tail = Step(session, {{3}, {4}});
  EXPECT_EQ(tail.stop, StopMark::kEnd);
  EXPECT_FALSE(session.WantsStep());
}

TEST(DraftTree, UnlikelyNodesAreNeitherMadeNorExpanded) {
  // Children have 2^-1, 2^-2, ... of their parent's probability.
  DraftSession session = Open(4, 8, 8, 100, /*least_score=*/-2.5f);
  EXPECT_EQ(Step(session, {{1, 2, 3}}).token_ids, (Ids{1, 2}));
  EXPECT_EQ(Step(session, {{4, 5}, {6}}).token_ids, (Ids{4, 6}));
  // 6 has 2^-3: it is known, as the likeliest child, and goes no further.
  EXPECT_EQ(Step(session, {{8}}).token_ids, Ids{8});
}

TEST(DraftTree, ThePriceOfANodeRisesOnlyWhereThereIsLittleRoom) {
  DraftSession session = Open(1, 8, /*lead=*/8, 100, /*least_score=*/-9);
  for (int depth = 0; depth < 8; ++depth) {
    // The tip has 2^-depth, so its children down to rank 9 - depth are made.
    const Tail tail = Step(session, {{1, 2, 3, 4, 5, 6, 7, 8}});
    EXPECT_EQ(tail.token_ids.size(),
              static_cast<size_t>(std::min(8, 9 - depth)));
  }
}

// Whatever room the tree has left: a branch that would be a row is wanted.
TEST(DraftTree, AStepIsWantedWhereItFindsARow) {
  for (int rows = 2; rows <= 32; rows *= 2) {
    for (int lead = 2; lead <= 8; ++lead) {
      SCOPED_TRACE(testing::Message() << rows << " rows, lead " << lead);
      DraftSession session = Open(rows, 256, lead, 100, /*least_score=*/-9);
      while (session.WantsStep()) {
        Tail tail;
        for (const DraftTree::Row& row : Begin(session)) {
          Expand(session, row.number, {1, 2, 3, 4, 5, 6, 8, 9}, &tail);
        }
        session.FinishStep(&tail);
      }
      EXPECT_THAT(Begin(session), IsEmpty());
    }
  }
}

TEST(DraftTree, NoBranchIsFedWithoutASlot) {
  DraftSession session = Open(8, 1);
  Step(session, {{1, 2, 3}});
  EXPECT_EQ(Begin(session).size(), 2u);
  EXPECT_EQ(session.tree()->free_slots(), 0);
  session.tree()->AbandonStep();
  EXPECT_EQ(session.tree()->free_slots(), 1);
  EXPECT_EQ(Begin(session).size(), 2u);
}

TEST(DraftTree, AnAbandonedStepIsBegunAgain) {
  DraftSession session = Open(8, 4);
  EXPECT_EQ(Begin(session).size(), 1u);
  session.tree()->AbandonStep();
  Step(session, {{1, 2}});
  const std::vector<DraftTree::Row> rows = Begin(session);
  session.tree()->AbandonStep();
  EXPECT_EQ(Begin(session), rows);
}

TEST(DraftTree, AStepIsKeptWhileOneOfItsRowsIsBelowTheText) {
  DraftSession session = Open(2, 4);
  Step(session, {{1, 2}});
  Begin(session);
  EXPECT_TRUE(session.KeepsStep({3, {1}}));
  EXPECT_TRUE(session.KeepsStep({3, {2}}));
  EXPECT_FALSE(session.KeepsStep({3, {3}}));
  EXPECT_FALSE(session.KeepsStep({3, {1, 2}}));
  EXPECT_TRUE(session.KeepsStep({2, {12}}));  // known
  EXPECT_TRUE(session.KeepsStep({5, {1}}));   // a gap
}

TEST(DraftTree, ACommitInTheMiddleOfAStepDropsRowsOfOtherTexts) {
  DraftSession session = Open(2, 4);
  Step(session, {{1, 2}});
  const std::vector<DraftTree::Row> rows = Begin(session);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(session.OnCommit({3, {2}}), Outcome::kMatched);
  EXPECT_THAT(session.tree()->kept_slots(), ElementsAre(0));
  Tail tail;
  Expand(session, rows[0].number, {4}, &tail);
  EXPECT_THAT(tail.token_ids, IsEmpty());
  Expand(session, rows[1].number, {5, 6}, &tail);
  session.FinishStep(&tail);
  EXPECT_EQ(tail.token_ids, (Ids{5, 6}));
  EXPECT_EQ(tail.parents, (Ids{0, 0}));
  EXPECT_EQ(tail.base_length, 4);
  EXPECT_EQ(session.tokens(), (Ids{10, 11, 12, 2, 5}));
}

TEST(DraftTree, TheTreeNeverOutgrowsAMessage) {
  DraftSession session = Open(kMaxDraftRows, 1024, kMaxLead, 10000);
  for (int step = 0; session.WantsStep() && step < 1000; ++step) {
    const std::vector<DraftTree::Row> rows = Begin(session);
    Tail tail;
    for (const DraftTree::Row& row : rows) {
      Expand(session, row.number, {20, 21, 22, 23, 24, 25, 26, 27}, &tail);
    }
    session.FinishStep(&tail);
    ASSERT_LE(tail.token_ids.size(), static_cast<size_t>(kMaxTailNodes));
  }
  EXPECT_LE(session.tree()->nodes().nodes().size(),
            static_cast<size_t>(kMaxTailNodes));
  EXPECT_EQ(session.length(), 3 + kMaxLead);
}

// ------------------------------------------------------------ random histories

// A text for each position and slot, as attention would see it.
class KvModel {
 public:
  explicit KvModel(int num_slots) : slots_(num_slots) {}

  int length() const { return static_cast<int>(positions_.size()); }
  void FeedPosition(int32_t token_id) {
    Ids text = positions_.empty() ? Ids() : positions_.back();
    text.push_back(token_id);
    positions_.push_back(std::move(text));
  }
  void FeedSlot(const DraftTree::Row& row) {
    ASSERT_LT(row.slot, static_cast<int32_t>(slots_.size()));
    ASSERT_TRUE(row.parent_slot >= 0 || row.position <= length());
    Ids text = row.parent_slot >= 0 ? slots_[row.parent_slot]
                                    : positions_[row.position - 1];
    text.push_back(row.token_id);
    ASSERT_EQ(static_cast<int>(text.size()), row.position + 1);
    slots_[row.slot] = std::move(text);
  }
  void Truncate(int length) {
    if (length < this->length()) positions_.resize(length);
  }
  void KeepPath(int length, absl::Span<const int32_t> slots) {
    if (slots.empty()) return;
    ASSERT_EQ(length, this->length());
    for (const int32_t slot : slots) positions_.push_back(slots_[slot]);
  }
  const Ids& At(const DraftTree::Row& row) const {
    return row.slot >= 0 ? slots_[row.slot] : positions_[row.position];
  }

 private:
  std::vector<Ids> positions_;
  std::vector<Ids> slots_;
};

class History {
 public:
  explicit History(uint32_t seed)
      : random_(seed),
        num_slots_(1 + Below(12)),
        session_(Open(1 + Below(6), num_slots_, 1 + Below(7), 20 + Below(80),
                      Below(2) == 0 ? kNoPrice : -4.0f)),
        kv_(num_slots_),
        buffer_(Verification::kExact, 3) {}

  void Run() {
    for (int i = 0; i < 60; ++i) {
      if (Below(3) == 0) Commit();
      Step();
      if (testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  int Below(int count) {
    return std::uniform_int_distribution<int>(0, count - 1)(random_);
  }

  void Commit() {
    // Down the tree for a while, then anything.
    Ids added;
    int node = TokenTree::kRoot;
    for (int count = 1 + Below(4); count > 0; --count) {
      std::vector<int> children;
      const auto& nodes = session_.tree()->nodes().nodes();
      for (size_t i = 0; i < nodes.size(); ++i) {
        if (nodes[i].parent == node) children.push_back(static_cast<int>(i));
      }
      if (children.empty() || Below(6) == 0) {
        added.push_back(30 + Below(4));
        node = static_cast<int>(nodes.size());  // has no children
      } else {
        node = children[Below(static_cast<int>(children.size()))];
        added.push_back(nodes[node].token_id);
      }
    }
    const int base = static_cast<int>(text_.size());
    text_.insert(text_.end(), added.begin(), added.end());
    ASSERT_NE(session_.OnCommit({base, added}), Outcome::kMalformed);
    ASSERT_TRUE(
        std::equal(text_.begin(), text_.end(), session_.tokens().begin()));
    kv_.Truncate(session_.kept_length());
    kv_.KeepPath(session_.kept_length(), session_.tree()->kept_slots());
    ASSERT_LE(kv_.length(), session_.length());
    buffer_.OnCommitted(base, static_cast<int>(added.size()), text_);
  }

  void Step() {
    if (!session_.WantsStep()) return;
    const std::vector<DraftTree::Row> rows = Begin(session_);
    ASSERT_FALSE(rows.empty());
    if (Below(8) == 0) {
      session_.tree()->AbandonStep();
      return;
    }
    std::vector<Ids> texts;
    std::set<int32_t> slots;
    for (const DraftTree::Row& row : rows) {
      Ids text = text_;
      session_.tree()->AppendPath(row.number, &text);
      if (row.slot < 0) {
        ASSERT_EQ(text.size(), session_.tokens().size());
        while (kv_.length() < session_.length()) {
          kv_.FeedPosition(session_.tokens()[kv_.length()]);
        }
      } else {
        ASSERT_TRUE(slots.insert(row.slot).second);
        kv_.FeedSlot(row);
      }
      ASSERT_EQ(kv_.At(row), text);
      texts.push_back(std::move(text));
    }
    if (Below(4) == 0) Commit();
    Tail tail;
    for (const DraftTree::Row& row : rows) {
      Ids children;
      for (int i = 0, count = 1 + Below(4); i < count; ++i) {
        children.push_back(Below(9) == 0 && i == 0 ? 7 : 20 + i);
      }
      Expand(session_, row.number, children, &tail);
    }
    session_.FinishStep(&tail);
    ASSERT_TRUE(
        std::equal(text_.begin(), text_.end(), session_.tokens().begin()));
    if (tail.token_ids.empty()) return;
    ASSERT_EQ(buffer_.Add(tail, text_), DraftBuffer::Outcome::kApplied);
    // Both sides hold the same nodes.
    ASSERT_EQ(buffer_.tree().nodes().size(),
              session_.tree()->nodes().nodes().size());
    for (size_t i = 0; i < buffer_.tree().nodes().size(); ++i) {
      ASSERT_EQ(buffer_.tree().nodes()[i], session_.tree()->nodes().nodes()[i]);
    }
  }

  std::mt19937 random_;
  const int num_slots_;
  Ids text_ = {10, 11, 12};
  DraftSession session_;
  KvModel kv_;
  DraftBuffer buffer_;
};

TEST(DraftTree, KvHoldsWhatTheRowsNeedInAnyHistory) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    History(seed).Run();
    if (HasFailure()) return;
  }
}

DraftSession OpenShape(const char* name, int rows, int lead = 8) {
  DraftSession::Options options;
  options.max_length = 100;
  options.end_ids = {7};
  options.plan.lead_after_mismatch = options.plan.lead_in_flow = lead;
  options.plan.rows = rows;
  options.plan.tree = *ParseTreeSpec(name);
  options.num_slots = 64;
  return DraftSession(options, {10, 11, 12});
}

TEST(DraftTreeShapes, CapeGivesEachTokenOfAChainSiblings) {
  DraftSession session = OpenShape("cape", 4);
  // The first has probability 1/2: 6 candidates, whatever the others' are.
  const Ids many = {20, 21, 22, 23, 24, 25, 26, 27, 28};
  EXPECT_THAT(Step(session, {many}).token_ids,
              ElementsAre(20, 21, 22, 23, 24, 25));
  // And only the first is expanded.
  EXPECT_THAT(Step(session, {{30, 31}}).token_ids, ElementsAre(30, 31));
  // On another path, too.
  ASSERT_EQ(session.OnCommit({3, {22}}), Outcome::kMatched);
  EXPECT_THAT(Step(session, {{40, 41}}).token_ids, ElementsAre(40, 41));
}

TEST(DraftTreeShapes, Eagle2ExpandsTheLikeliestOfEachLevel) {
  DraftSession session = OpenShape("eagle2:k=2,depth=3,total=5", 4, 3);
  EXPECT_THAT(Step(session, {{20, 21, 22}}).token_ids, ElementsAre(20, 21));
  // Below 20 (-1): -2, -3; below 21 (-2): -3 is the fifth, -4 would be sixth.
  const Tail level = Step(session, {{30, 31}, {32, 33}});
  EXPECT_THAT(level.token_ids, ElementsAre(30, 31, 32));
  // Two of the three, those of the largest products, first ones first.
  const std::vector<DraftTree::Row> rows = Begin(session);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].token_id, 30);
  EXPECT_EQ(rows[1].token_id, 31);
  Tail tail;
  for (const DraftTree::Row& row : rows) {
    Expand(session, row.number, {40, 41}, &tail);
  }
  session.FinishStep(&tail);
  EXPECT_FALSE(session.WantsStep()) << "three levels";
  EXPECT_EQ(tail.stop, StopMark::kLead);
}

TEST(DraftTreeShapes, StaticGrowsThePathsOfItsList) {
  DraftSession session = OpenShape("static:[[0],[2],[2,1],[2,1,0]]", 4);
  EXPECT_THAT(Step(session, {{20, 21, 22, 23}}).token_ids, ElementsAre(20, 22));
  const std::vector<DraftTree::Row> rows = Begin(session);
  ASSERT_EQ(rows.size(), 1u) << "only [2] goes on";
  EXPECT_EQ(rows[0].token_id, 22);
  Tail tail;
  Expand(session, rows[0].number, {30, 31, 32}, &tail);
  session.FinishStep(&tail);
  // Its first child is always made: it may be kept on the way.
  EXPECT_THAT(tail.token_ids, ElementsAre(30, 31));
  EXPECT_EQ(tail.stop, StopMark::kNone);
  tail = Step(session, {{40, 41}});
  EXPECT_THAT(tail.token_ids, ElementsAre(40));
  EXPECT_EQ(tail.stop, StopMark::kLead) << "complete, although not deep";
  EXPECT_FALSE(session.WantsStep());
  // The paths are those from where the text ends.
  ASSERT_EQ(session.OnCommit({3, {20}}), Outcome::kMatched);
  EXPECT_THAT(Step(session, {{50, 51, 52}}).token_ids, ElementsAre(50, 52));
}

// The level of the stop is completed, and nothing grows deeper.
TEST(DraftTreeShapes, APolicyEndsTheDepthUntilTheNextCommit) {
  DraftSession session = OpenShape("eagle2:k=2,depth=9,total=60", 1);
  std::vector<DraftTree::Row> rows = Begin(session);
  ASSERT_TRUE(session.tree()->IsTipOfStep(rows[0].number));
  Tail tail;
  Expand(session, rows[0].number, {20, 21}, &tail);
  session.FinishStep(&tail);
  EXPECT_EQ(tail.stop, StopMark::kNone);
  rows = Begin(session);
  ASSERT_EQ(rows[0].token_id, 20);
  ASSERT_TRUE(session.tree()->IsTipOfStep(rows[0].number));
  tail = {};
  Expand(session, rows[0].number, {30, 31}, &tail, /*policy_stop=*/true);
  session.FinishStep(&tail);
  EXPECT_EQ(tail.stop, StopMark::kPolicy);
  ASSERT_TRUE(session.WantsStep()) << "21 is of the same level as 20";
  rows = Begin(session);
  ASSERT_EQ(rows[0].token_id, 21);
  EXPECT_FALSE(session.tree()->IsTipOfStep(rows[0].number));
  tail = {};
  Expand(session, rows[0].number, {32, 33}, &tail);
  session.FinishStep(&tail);
  EXPECT_EQ(tail.stop, StopMark::kPolicy);
  EXPECT_FALSE(session.WantsStep()) << "30 would be expanded next";
  ASSERT_EQ(session.OnCommit({3, {20}}), Outcome::kMatched);
  ASSERT_TRUE(session.WantsStep());
  EXPECT_EQ(Begin(session)[0].token_id, 30);
}

TEST(DraftTreeShapes, ADiscardedChildIsNotMade) {
  for (const int32_t next : {20, 21, 40}) {
    SCOPED_TRACE(next);
    DraftSession session = OpenShape("cape", 1);
    Step(session, {{20, 21}});
    std::vector<DraftTree::Row> rows = Begin(session);
    Tail tail;
    session.OnExpanded(rows[0].number, {}, &tail);
    session.FinishStep(&tail);
    EXPECT_THAT(tail.token_ids, IsEmpty());
    EXPECT_FALSE(session.WantsStep());
    const absl::optional<Tail> notice = session.TakeStopNotice();
    ASSERT_TRUE(notice.has_value());
    EXPECT_EQ(notice->stop, StopMark::kPolicy);
    // A commit that does not say what stands there changes nothing.
    session.OnCommit({3, {next}});
    EXPECT_EQ(session.WantsStep(), next != 20);
    if (next != 20) continue;
    ASSERT_EQ(session.OnCommit({4, {50}}), Outcome::kMatched);
    EXPECT_TRUE(session.last_commit().overtaken);
    ASSERT_TRUE(session.WantsStep());
    EXPECT_EQ(Begin(session)[0].position, 4);
  }
}

// The nodes that said so may come below what the text has left by then, and the
// target must not wait for more.
TEST(DraftTree, AnEndThatTheTextPassesIsSaidAgain) {
  DraftSession session = Open(2, 8);
  session.SetHorizon(5, /*is_last=*/true);
  Step(session, {{20, 21}});
  EXPECT_EQ(Step(session, {{30, 31}, {32, 33}}).stop, StopMark::kEnd);
  EXPECT_EQ(session.TakeStopNotice(), absl::nullopt) << "still the end";
  ASSERT_EQ(session.OnCommit({3, {20}}), Outcome::kMatched);
  EXPECT_EQ(session.TakeStopNotice(), absl::nullopt) << "still the end";
  ASSERT_EQ(session.OnCommit({4, {30, 40, 41}}), Outcome::kMatched);
  const absl::optional<Tail> notice = session.TakeStopNotice();
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->stop, StopMark::kEnd);
  EXPECT_EQ(notice->base_length, 7);
  // Once is enough: nothing of it is under way any more.
  ASSERT_EQ(session.OnCommit({7, {42}}), Outcome::kMatched);
  EXPECT_EQ(session.TakeStopNotice(), absl::nullopt);
}

TEST(DraftTreeShapes, ACommitSaysWhatItTookOfBranches) {
  DraftSession session = OpenShape("eagle2:k=2,depth=9,total=60", 4);
  Step(session, {{20, 21}});
  Step(session, {{30, 31}, {32, 33}});
  ASSERT_EQ(session.OnCommit({3, {21, 32}}), Outcome::kMatched);
  EXPECT_EQ(session.last_commit().accepted, 2);
  EXPECT_EQ(session.last_commit().of_branches, 2);
  Step(session, {{40, 41}});
  Step(session, {{50, 51}, {52, 53}});
  ASSERT_EQ(session.OnCommit({5, {40, 51, 9}}), Outcome::kMatched);
  EXPECT_EQ(session.last_commit().accepted, 2);
  EXPECT_EQ(session.last_commit().of_branches, 1);
}

// Whatever shape, children and commits: the tree holds its limits and the
// target's copy of it the same nodes.
TEST(DraftTreeShapes, HoldTheirLimitsForAnyHistory) {
  for (const char* name :
       {"cape", "eagle2", "eagle2:k=16,depth=64,total=64",
        "eagle2:k=1,depth=1,total=1", "static:[[15],[15,15],[3]]"}) {
    SCOPED_TRACE(name);
    std::mt19937 random(7);
    DraftSession session = OpenShape(name, 32, kMaxLead);
    DraftBuffer buffer(Verification::kExact, 3);
    Ids text = {10, 11, 12};
    for (int step = 0; step < 300 && session.committed_length() < 90; ++step) {
      if (session.WantsStep()) {
        std::vector<DraftTree::Row> rows = Begin(session);
        Tail tail;
        for (const DraftTree::Row& row : rows) {
          Ids ids(16);
          std::vector<float> log2s(16);
          for (int i = 0; i < 16; ++i) {
            ids[i] = 20 + i;
            log2s[i] = -0.2f * static_cast<float>(i) - 0.1f -
                       static_cast<float>(random() % 3) * 0.01f;
          }
          session.OnExpanded(row.number, {ids, log2s, log2s}, &tail);
        }
        session.FinishStep(&tail);
        ASSERT_LE(session.tree()->nodes().nodes().size(),
                  static_cast<size_t>(kMaxTailNodes));
        if (!tail.token_ids.empty()) {
          ASSERT_EQ(buffer.Add(tail, text), DraftBuffer::Outcome::kApplied);
          ASSERT_EQ(buffer.tree().nodes().size(),
                    session.tree()->nodes().nodes().size());
        }
      }
      if (random() % 3 != 0 && session.WantsStep()) continue;
      const int32_t token = 20 + static_cast<int32_t>(random() % 18);
      const int place = session.committed_length();
      session.OnCommit({place, {token}});
      text.push_back(token);
      buffer.OnCommitted(place, 1, text);
    }
    EXPECT_EQ(session.committed_length(), 90);
  }
}

}  // namespace
}  // namespace nacre::speculation
