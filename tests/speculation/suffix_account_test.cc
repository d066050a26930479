#include "speculation/suffix_account.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
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

TEST(SuffixAccountTest, ATokenIsWorthLessWhereTheDraftGivesMore) {
  SuffixAccount account;
  EXPECT_EQ(account.worth(), 1);
  for (int i = 0; i < 20; ++i) account.OnStep(8, 7);
  EXPECT_EQ(account.worth(), 1) << "what suffixes gave does not count";
  for (int i = 0; i < 200; ++i) account.OnStep(3, 0);
  EXPECT_NEAR(account.worth(), 1 / 3.0, 0.01);
}

// What the planner does of one session without a draft.
class Session {
 public:
  explicit Session(StepTimeCurve curve) : curve_(std::move(curve)) {
    text_ = {1, 2};
  }

  // Returns how many rows the step has beside the first.
  int Begin() {
    const StepTimeCurve& times = curve_;
    draft_.Propose(text_, nullptr, {TokenTree::kMaxLocal, 16, 1.0 / 64, true});
    tree_ = TokenTree(static_cast<int>(text_.size()));
    int parent = TokenTree::kRoot;
    for (const SuffixNode& node :
         draft_.WorthARow(CostOfRows(1, 2, 1, times))) {
      parent =
          *tree_.AddLocal(parent, node.token_id,
                          static_cast<float>(std::log2(node.given_parent)));
    }
    StepTree tree;
    tree.tree = &tree_;
    tree.max_depth = tree.most = 16;
    tree.worth = draft_.account().worth();
    const int wanted = ChooseStepRows({tree}, {1, 1, 512}, times)[0];
    wanted_cost_ += CostOfRows(1, 1 + wanted, wanted, times);
    rows_ = draft_.account().Pay(1, 1 + wanted, wanted, times);
    lost_ += CostOfRows(1, 1 + rows_, rows_, times);
    return rows_;
  }

  // The likeliest next token of the proposal; absent: there is none.
  absl::optional<int32_t> likeliest() const {
    if (tree_.nodes().empty()) return absl::nullopt;
    return tree_.nodes()[0].token_id;
  }

  void End(int32_t token_id) {
    const int accepted = rows_ > 0 && likeliest() == token_id ? 1 : 0;
    draft_.account().OnStep(1 + accepted, accepted);
    lost_ -= accepted;
    text_.push_back(token_id);
    ++steps_;
  }

  double lost() const { return lost_; }                // in steps
  double wanted_cost() const { return wanted_cost_; }  // without an account
  int steps() const { return steps_; }

 private:
  const StepTimeCurve curve_;
  SuffixDraft draft_{{}, 1 << 14};
  std::vector<int32_t> text_;
  TokenTree tree_{2};
  int rows_ = 0;
  double lost_ = 0;
  double wanted_cost_ = 0;
  int steps_ = 0;
};

// A text that repeats itself as long as no row is spent on it, and never where
// one is.
TEST(SuffixAccountTest, NoTextMakesSuffixesCostMoreThanTheLawSays) {
  for (const int percent : {1, 5, 30, 80}) {
    SCOPED_TRACE(percent);
    Session session(Curve({{1, 1000}, {101, 1000 + 1000 * percent}}));
    int misses = 0;
    int32_t unused = 100;
    for (int i = 0; i < 4000; ++i) {
      const int rows = session.Begin();
      if (rows > 0) {
        session.End(unused++);
        ++misses;
      } else {
        session.End(static_cast<int32_t>(session.steps() % 8));
      }
      EXPECT_LE(session.lost(), SuffixAccount::kCredit +
                                    SuffixAccount::kShare * session.steps() +
                                    1e-9);
    }
    EXPECT_GT(misses, 20);
    EXPECT_GT(session.wanted_cost(), session.lost())
        << "trust alone would have cost more";
  }
}

}  // namespace
}  // namespace nacre::speculation
