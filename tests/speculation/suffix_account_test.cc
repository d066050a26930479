#include "speculation/suffix_account.h"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "speculation/step_rows.h"
#include "speculation/suffix_draft.h"

namespace nacre::speculation {
namespace {

StepTimeCurve Curve(const std::vector<std::pair<int, int64_t>>& times) {
  StepTimeCurve curve;
  for (const auto& [rows, ns] : times) curve.Add(rows, ns);
  return curve;
}

TEST(SuffixAccountTest, RowsCostWhatAllSessionsOfTheStepWaitLonger) {
  const StepTimeCurve curve = Curve({{1, 1000}, {2, 1300}, {4, 1600}});
  EXPECT_NEAR(CostOfRows(1, 2, 1, curve), 0.3, 1e-9);
  EXPECT_NEAR(CostOfRows(1, 4, 3, curve), 0.6, 1e-9);
  EXPECT_NEAR(CostOfRows(2, 4, 2, curve), 2 * (1.6 / 1.3 - 1), 1e-9);
  EXPECT_EQ(CostOfRows(1, 2, 0, curve), 0);
  EXPECT_EQ(CostOfRows(1, 2, 1, Curve({{1, 1000}, {2, 900}})), 0);
}

TEST(SuffixAccountTest, PaysForAsManyRowsAsItCan) {
  const StepTimeCurve curve = Curve({{1, 1000}, {2, 1300}, {3, 1600}});
  SuffixAccount account;
  EXPECT_EQ(account.Pay(1, 3, 2, curve), 1) << "two cost 0.6 steps";
  EXPECT_NEAR(account.budget(), SuffixAccount::kCredit - 0.3, 1e-9);
  EXPECT_EQ(account.Pay(1, 3, 2, curve), 0);
  account.OnStep(2, 1);
  EXPECT_NEAR(account.budget(),
              SuffixAccount::kCredit - 0.3 + SuffixAccount::kShare + 1, 1e-9);
  EXPECT_EQ(account.Pay(1, 3, 2, curve), 2);
  for (int i = 0; i < 100; ++i) account.OnStep(5, 4);
  EXPECT_EQ(account.budget(), SuffixAccount::kMost);
}

TEST(SuffixAccountTest, WhatElseItCostsIsSpent) {
  SuffixAccount account;
  account.Spend(0.3);
  EXPECT_NEAR(account.budget(), SuffixAccount::kCredit - 0.3, 1e-12);
  account.Spend(0.3);
  EXPECT_LT(account.budget(), 0);
  const SuffixNode sure = {.token_id = 1, .probability = 1, .given_parent = 1};
  EXPECT_TRUE(WorthARow({&sure, 1}, account, 0).empty());
  EXPECT_EQ(WorthARow({&sure, 1}, SuffixAccount(), 0).size(), 1u);
}

TEST(SuffixAccountTest, ATokenIsWorthLessWhereTheDraftGivesMore) {
  SuffixAccount account;
  EXPECT_EQ(account.worth(), 1);
  for (int i = 0; i < 20; ++i) account.OnStep(8, 7);
  EXPECT_EQ(account.worth(), 1) << "what suffixes gave does not count";
  for (int i = 0; i < 200; ++i) account.OnStep(3, 0);
  EXPECT_NEAR(account.worth(), 1 / 3.0, 0.01);
}

TEST(SuffixAccountTest, WhatLooksEarnBeyondItsMostIsTakenOut) {
  SuffixAccount account;
  account.Spend(0.5);
  account.OnStep(4, 3, 3);  // has 3.01
  EXPECT_EQ(account.TakeSurplus(), 0) << "there was room";
  account.Spend(0.25);
  account.OnStep(4, 3, 3);
  EXPECT_NEAR(account.TakeSurplus(), 3.01 - 0.25 + 0.01 + 3 - 4, 1e-9);
  EXPECT_EQ(account.TakeSurplus(), 0);
  EXPECT_EQ(account.budget(), SuffixAccount::kMost);
}

TEST(SuffixAccountTest, AllThatLooksHaveEarnedIsTakenOutAtTheEnd) {
  const StepTimeCurve curve = Curve({{1, 1000}, {2, 1300}});
  SuffixAccount account;
  account.Spend(0.1);
  EXPECT_EQ(account.Pay(1, 2, 1, curve), 1);
  account.OnStep(2, 1, 1);
  EXPECT_NEAR(account.TakeAll(), 1 - 0.1 - 0.3, 1e-9);
  EXPECT_NEAR(account.budget(), SuffixAccount::kCredit + SuffixAccount::kShare,
              1e-9);
  EXPECT_EQ(account.TakeAll(), 0);
  account.Draw(0.5);
  EXPECT_NEAR(account.TakeAll(), 0.5, 1e-9) << "what it did not need";
  // What is spent is not there, even if looks earned it.
  account.Spend(0);
  account.OnStep(2, 1, 1);
  while (account.Pay(1, 2, 1, curve) > 0) {
  }
  EXPECT_NEAR(account.TakeAll(), 0.02, 1e-9);
  EXPECT_NEAR(account.budget(), 0, 1e-9);
}

TEST(SuffixAccountTest, WhatSuffixesAndStepsEarnIsNotTakenOut) {
  SuffixAccount account;
  for (int i = 0; i < 500; ++i) account.OnStep(1, 0);
  for (int i = 0; i < 10; ++i) account.OnStep(4, 3);
  // There was no look whose nodes it could be.
  for (int i = 0; i < 10; ++i) account.OnStep(4, 3, 3);
  account.Spend(0.1);
  account.OnStep(4, 3);
  EXPECT_EQ(account.budget(), SuffixAccount::kMost);
  EXPECT_EQ(account.TakeAll(), 0);
}

TEST(SuffixAccountTest, WhatIsDrawnIsCounted) {
  SuffixAccount account;
  EXPECT_EQ(account.may_draw(), SuffixAccount::kMostDrawn);
  account.Draw(0.5);
  EXPECT_EQ(account.budget(), SuffixAccount::kCredit + 0.5);
  EXPECT_EQ(account.may_draw(), SuffixAccount::kMostDrawn - 0.5);
  EXPECT_EQ(account.TakeAll(), 0.5);
  EXPECT_EQ(account.may_draw(), SuffixAccount::kMostDrawn - 0.5)
      << "in its life";
}

// What the planner does of one session without a draft; without `has_account`
// it believes the trust in matches alone.
class Session {
 public:
  Session(int percent_a_row, bool has_account)
      : times_(Curve({{1, 1000}, {101, 1000 + 1000 * percent_a_row}})),
        has_account_(has_account) {}

  // Returns how many rows the step has beside the first.
  int Begin() {
    const absl::Span<const SuffixNode> nodes = draft_.Propose(
        text_, nullptr, {TokenTree::kMaxLocal, 16, 1.0 / 64, true});
    tree_ = TokenTree(static_cast<int>(text_.size()));
    int parent = TokenTree::kRoot;
    const double price = CostOfRows(1, 2, 1, times_);
    for (const SuffixNode& node : WorthARow(nodes, account_, price)) {
      parent =
          *tree_.AddLocal(parent, node.token_id,
                          static_cast<float>(std::log2(node.given_parent)));
    }
    StepTree tree;
    tree.tree = &tree_;
    tree.max_depth = tree.most = 16;
    rows_ = ChooseStepRows({tree}, {1, 1, 512}, times_)[0];
    if (has_account_) {
      rows_ = account_.Pay(1, 1 + rows_, rows_, times_);
    }
    lost_ += CostOfRows(1, 1 + rows_, rows_, times_);
    return rows_;
  }

  void End(int32_t token_id) {
    const bool hit = rows_ > 0 && tree_.nodes()[0].token_id == token_id;
    account_.OnStep(hit ? 2 : 1, hit ? 1 : 0);
    lost_ -= hit ? 1 : 0;
    text_.push_back(token_id);
    ++steps_;
  }

  double lost() const { return lost_; }  // in steps
  double bound() const {
    return SuffixAccount::kCredit + SuffixAccount::kShare * steps_ + 1e-9;
  }
  int steps() const { return steps_; }

 private:
  const StepTimeCurve times_;
  const bool has_account_;
  SuffixDraft draft_{{}, 1 << 14};
  SuffixAccount account_;
  std::vector<int32_t> text_ = {1, 2};
  TokenTree tree_{2};
  int rows_ = 0;
  double lost_ = 0;
  int steps_ = 0;
};

// A text that repeats itself as long as no row is spent on it, and never where
// one is.
TEST(SuffixAccountTest, NoTextMakesSuffixesCostMoreThanTheLawSays) {
  for (const int percent : {1, 5, 30, 80}) {
    for (const bool has_account : {true, false}) {
      SCOPED_TRACE(percent);
      Session session(percent, has_account);
      int misses = 0;
      int32_t unused = 100;
      for (int i = 0; i < 4000; ++i) {
        if (session.Begin() > 0) {
          session.End(unused++);
          ++misses;
        } else {
          session.End(static_cast<int32_t>(session.steps() % 8));
        }
        if (has_account) {
          ASSERT_LE(session.lost(), session.bound());
        }
      }
      EXPECT_GT(misses, 20);
      if (!has_account && percent >= 30) {
        EXPECT_GT(session.lost(), 2 * session.bound())
            << "trust alone costs more";
      }
    }
  }
}

}  // namespace
}  // namespace nacre::speculation
