// A draft session that grows a tree and a target session that verifies trees,
// in random orders (as session_pair_test.cc does for chains), with drafts that
// do harm: wrong children that they call certain, the right one last, all of it
// wrong. No token changes, and what the draft keeps in slots is what it says.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "simulation/random.h"
#include "speculation/draft_session.h"
#include "speculation/target_session.h"
#include "tests/testing/fake_models.h"
#include "tests/testing/sanitizers.h"

namespace nacre::speculation {
namespace {

using Ids = std::vector<int32_t>;
using simulation::Random;

// So many, or NACRE_PAIR_SEEDS.
int64_t NumTreeSeeds() {
  const char* given = std::getenv("NACRE_PAIR_SEEDS");
  if (given != nullptr) return std::strtoll(given, nullptr, 10);
  return testing::kIsSanitized ? 500 : 5'000;
}

// What a draft makes of the target's token.
enum class Harm {
  kNone,      // it is the first child, mostly
  kHides,     // the last child, called unlikely; wrong ones are called certain
  kNever,     // no child
  kRandom,    // some place or none, any probabilities
  kReverses,  // a deeper text is the likelier, the more wrong it is
};

struct TreeTotals {
  int64_t accepted = 0;
  int64_t branch_walks = 0;
  int64_t kept_slots = 0;
  int64_t late = 0;
  int64_t malformed = 0;
};

class TreePair {
 public:
  TreePair(uint64_t seed, Harm harm, TreeTotals* totals)
      : random_(seed * 8 + static_cast<uint64_t>(harm)),
        harm_(harm),
        has_faults_(random_.Percent(60)),
        max_tokens_(static_cast<int>(random_.Between(1, 60))),
        vocabulary_(static_cast<int>(random_.Between(3, 20))),
        models_(seed, vocabulary_),
        expected_(kPromptLength, 2),
        totals_(*totals) {
    do {
      expected_.push_back(models_.TargetToken(expected_));
    } while (expected_.back() != kEnd &&
             static_cast<int>(expected_.size()) < kPromptLength + max_tokens_);
    NewPlan();
    TargetSession::Options options;
    options.text.prompt_length = kPromptLength;
    options.text.max_tokens = max_tokens_;
    options.text.eos_ids = {kEnd};
    options.max_unacknowledged = static_cast<int>(random_.Between(1, 64));
    options.plan = target_plan_;
    options.epoch = 1;
    options.has_draft = true;
    options.num_slots = static_cast<int>(random_.Between(1, 64));
    target_.emplace(options, Ids(kPromptLength, 2));
    OpenDraft();
  }

  // Until the target has finished, or a check has failed.
  void Run() {
    for (int i = 0; !target_->finished() && !::testing::Test::HasFailure();
         ++i) {
      ASSERT_LT(i, 100'000) << "no end in sight";
      ++now_ns_;
      switch (random_.Between(0, 4)) {
        case 0:
          DraftStep();
          break;
        case 1:
          DeliverTail();
          break;
        case 2:
          DeliverCommit();
          break;
        case 3:
          TargetStep();
          break;
        default:
          if (has_faults_ && random_.Percent(20)) MakeTrouble();
      }
    }
    if (::testing::Test::HasFailure()) return;
    EXPECT_EQ(target_->committed(), expected_);
  }

 private:
  static constexpr int kPromptLength = 3;
  static constexpr int32_t kEnd = 0;

  void NewPlan() {
    const int window = static_cast<int>(random_.Between(1, 12));
    const auto up_to = [this](int64_t most) {
      return static_cast<int>(random_.Between(0, most));
    };
    draft_plan_ = {1 + up_to(2 * window), 1 + up_to(2 * window)};
    draft_plan_.rows = 1 + up_to(7);
    draft_plan_.least_score = -static_cast<float>(up_to(12));
    // No timer: every wait must end by what the draft says.
    target_plan_ = {up_to(window + 2), up_to(window + 2), window,
                    int64_t{1} << 50};
    target_plan_.tree_rows = up_to(64);
    target_plan_.takes_all = random_.Percent(30);
  }

  void OpenDraft() {
    DraftSession::Options options;
    options.epoch = ++epoch_;
    options.max_length = kPromptLength + max_tokens_ - 1;
    options.end_ids = {kEnd};
    options.plan = draft_plan_;
    num_slots_ = 1 + random_.Below(40);
    options.num_slots = num_slots_;
    draft_.emplace(options, target_->committed());
    commits_.clear();
    rows_.clear();
    slots_.clear();
    is_touched_ = true;
    SendStopNotice();
  }

  // ---- The draft ----

  void SendStopNotice() {
    if (!rows_.empty() || !std::exchange(is_touched_, false)) return;
    if (auto notice = draft_->TakeStopNotice()) {
      tails_.push_back(*std::move(notice));
    }
  }

  Ids TextOf(const DraftTree::Row& row) const {
    Ids text = draft_->tokens();
    text.resize(static_cast<size_t>(draft_->committed_length()));
    draft_->tree()->AppendPath(row.number, &text);
    return text;
  }

  // A step begins; or it ends, after what came meanwhile, or is given up.
  void DraftStep() {
    if (!draft_.has_value()) return;
    if (!rows_.empty()) {
      FinishDraftStep();
      return;
    }
    if (!draft_->WantsStep()) return;
    draft_->BeginStep(1 + random_.Below(8), &rows_);
    texts_.clear();
    for (const DraftTree::Row& row : rows_) {
      texts_.push_back(TextOf(row));
      ASSERT_LE(static_cast<int>(texts_.back().size()),
                kPromptLength + max_tokens_ - 2)
          << "it drafts the target's own last token";
      ASSERT_EQ(row.position + 1, static_cast<int>(texts_.back().size()));
      if (row.slot < 0) continue;
      ASSERT_LT(row.slot, num_slots_) << "more slots than were reserved";
      slots_[row.slot] = texts_.back();
    }
  }

  void FinishDraftStep() {
    if (random_.Percent(15)) {
      draft_->tree()->AbandonStep();
      rows_.clear();
      SendStopNotice();
      return;
    }
    Tail tail;
    for (size_t i = 0; i < rows_.size(); ++i) Expand(i, &tail);
    rows_.clear();
    draft_->FinishStep(&tail);
    if (!tail.token_ids.empty()) tails_.push_back(std::move(tail));
    is_touched_ = true;
    SendStopNotice();
  }

  void Expand(size_t index, Tail* tail) {
    const Ids& text = texts_[index];
    const int32_t right = models_.TargetToken(text);
    Ids children;
    const int most = std::min(1 + random_.Below(kRanks), vocabulary_ - 1);
    while (static_cast<int>(children.size()) < most) {
      const auto token_id = static_cast<int32_t>(random_.Below(vocabulary_));
      if (token_id != right &&
          std::count(children.begin(), children.end(), token_id) == 0) {
        children.push_back(token_id);
      }
    }
    PlaceRight(right, &children);
    std::array<float, kRanks> scores;
    std::array<float, kRanks> log2s;
    for (size_t k = 0; k < children.size(); ++k) {
      scores[k] = -static_cast<float>(k);
      const bool is_right = children[k] == right;
      log2s[k] = harm_ == Harm::kRandom
                     ? -static_cast<float>(random_.Below(160)) / 16
                 : harm_ == Harm::kReverses ? (is_right ? -0.5f : 0.0f)
                 : harm_ == Harm::kHides    ? (is_right ? -9.0f : 0.0f)
                                            : -static_cast<float>(k);
    }
    draft_->OnExpanded(rows_[index].number,
                       {children,
                        {scores.data(), children.size()},
                        {log2s.data(), children.size()}},
                       tail);
  }

  void PlaceRight(int32_t right, Ids* children) {
    switch (harm_) {
      case Harm::kNone:
        if (random_.Percent(70)) {
          children->front() = right;
          return;
        }
        break;
      case Harm::kNever:
        return;
      case Harm::kHides:
      case Harm::kReverses:
        children->back() = right;
        return;
      case Harm::kRandom:
        break;
    }
    const size_t at = static_cast<size_t>(random_.Below(kRanks + 1));
    if (at < children->size()) (*children)[at] = right;
  }

  void DeliverCommit() {
    if (!draft_.has_value() || commits_.empty()) return;
    const Commit commit = commits_.front();
    if (!has_faults_ || random_.Percent(80)) commits_.pop_front();
    const bool is_known =
        commit.first_position + static_cast<int>(commit.token_ids.size()) <=
        draft_->committed_length();
    const DraftSession::CommitOutcome outcome = draft_->OnCommit(commit);
    ASSERT_NE(outcome, DraftSession::CommitOutcome::kMalformed) << "a gap";
    ASSERT_EQ(outcome == DraftSession::CommitOutcome::kRepeated, is_known);
    if (is_known) return;
    const Ids& tokens = draft_->tokens();
    ASSERT_TRUE(std::equal(tokens.begin(),
                           tokens.begin() + draft_->committed_length(),
                           target_->committed().begin()));
    // The slots that become positions hold the text there.
    size_t length = static_cast<size_t>(draft_->kept_length());
    for (const int32_t slot : draft_->tree()->kept_slots()) {
      ASSERT_LT(length, tokens.size());
      const Ids text(tokens.begin(),
                     tokens.begin() + static_cast<std::ptrdiff_t>(++length));
      ASSERT_EQ(slots_.at(slot), text);
      ++totals_.kept_slots;
    }
    is_touched_ = true;
    SendStopNotice();
  }

  // ---- The target ----

  void DeliverTail() {
    if (tails_.empty()) return;
    const Tail tail = std::move(tails_.front());
    tails_.pop_front();
    DraftBuffer::Fates fates;
    ASSERT_NE(target_->OnTail(tail, &fates),
              TargetSession::TailOutcome::kMalformed);
    totals_.late += fates.committed + fates.contradicted;
    if (has_faults_) delivered_.push_back(tail);
  }

  void TargetStep() {
    if (!target_->step().running()) {
      if (target_->CheckReady(now_ns_) != TargetSession::Readiness::kReady) {
        return;
      }
      const absl::optional<StepTree> tree = target_->NextTree();
      if (tree.has_value()) {
        const int most =
            std::min(tree->most, static_cast<int>(tree->tree->nodes().size()));
        target_->BeginTreeStep(tree->takes_all ? most
                                               : random_.Below(most + 1));
      } else {
        target_->BeginStep();
      }
      return;
    }
    Ids text = target_->committed();
    Ids drawn;
    absl::optional<int> row = 0;
    while (row.has_value()) {
      drawn.push_back(models_.TargetToken(text));
      text.push_back(drawn.back());
      row = target_->step().RowBehind(*row, drawn.back());
      if (row > target_->step().path_length()) ++totals_.branch_walks;
    }
    const Verdict verdict = target_->FinishStep(drawn);
    ASSERT_LE(verdict.accepted, verdict.verified);
    totals_.accepted += verdict.accepted;
    if (harm_ == Harm::kNever) {
      EXPECT_EQ(verdict.accepted, 0);
      EXPECT_EQ(verdict.matched, 0);
    }
    if (draft_.has_value()) {
      commits_.push_back({verdict.base_length, verdict.token_ids});
    }
    target_->OnAcknowledged(target_->committed_length());
  }

  void MakeTrouble() {
    switch (random_.Between(0, 3)) {
      case 0:
        if (draft_.has_value() && random_.Percent(50)) {
          draft_.reset();
          tails_.clear();
          target_->OnDraftLost();
        } else {  // another one, in the middle of whatever runs
          OpenDraft();
          target_->OnDraftAttached(epoch_, target_->committed_length());
        }
        break;
      case 1:
        if (delivered_.empty()) break;
        EXPECT_NE(target_->OnTail(delivered_[static_cast<size_t>(
                      random_.Below(static_cast<int>(delivered_.size())))]),
                  TargetSession::TailOutcome::kMalformed);
        break;
      case 2:
        NewPlan();
        target_->OnPlan(target_plan_);
        if (draft_.has_value()) {
          draft_->OnPlan(draft_plan_);
          is_touched_ = true;
          SendStopNotice();
        }
        break;
      default:
        DeliverMalformedTree();
    }
  }

  void DeliverMalformedTree() {
    Tail tail;
    tail.epoch = epoch_;
    tail.base_length = tail.first_position = target_->committed_length();
    tail.first_node = 1'000'000;
    tail.token_ids = {1, 2};
    tail.parents = {0, 0};
    tail.scores = {-1, -1};
    switch (random_.Between(0, 6)) {
      case 0:
        tail.parents[0] = tail.first_node;  // itself
        break;
      case 1:
        tail.parents[0] = -1;
        break;
      case 2:
        tail.scores[0] = 1;
        break;
      case 3:
        tail.scores.pop_back();
        break;
      case 4:
        tail.first_node = 0;
        break;
      case 5:
        ++tail.base_length;
        break;
      default:
        ++tail.first_position;
    }
    const TargetSession::TailOutcome outcome = target_->OnTail(tail);
    EXPECT_TRUE(outcome == TargetSession::TailOutcome::kMalformed ||
                outcome == TargetSession::TailOutcome::kStale)
        << static_cast<int>(outcome);
    ++totals_.malformed;
  }

  Random random_;
  const Harm harm_;
  const bool has_faults_;
  const int max_tokens_;
  const int vocabulary_;
  const simulation::FakeModels models_;
  Ids expected_;
  TreeTotals& totals_;
  TargetPlan target_plan_;
  DraftPlan draft_plan_;
  absl::optional<TargetSession> target_;
  uint32_t epoch_ = 0;
  absl::optional<DraftSession> draft_;
  bool is_touched_ = false;  // as of the draft's engine
  int num_slots_ = 0;
  std::map<int32_t, Ids> slots_;      // the texts that they were fed with
  std::vector<DraftTree::Row> rows_;  // of the draft's step
  std::vector<Ids> texts_;            // that they end
  std::deque<Tail> tails_;            // on their way
  std::deque<Commit> commits_;
  std::vector<Tail> delivered_;
  int64_t now_ns_ = 0;
};

TreeTotals RunTreeSeeds(Harm harm) {
  TreeTotals totals;
  const int64_t num_seeds = NumTreeSeeds();
  for (int64_t seed = 1; seed <= num_seeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    TreePair(static_cast<uint64_t>(seed), harm, &totals).Run();
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(totals.malformed, num_seeds / 10);
  EXPECT_GT(totals.late, num_seeds / 10);
  return totals;
}

TEST(TreePair, AGoodDraft) {
  const TreeTotals totals = RunTreeSeeds(Harm::kNone);
  EXPECT_GT(totals.accepted, 4 * NumTreeSeeds());
  EXPECT_GT(totals.branch_walks, NumTreeSeeds() / 6);
  EXPECT_GT(totals.kept_slots, NumTreeSeeds() / 6);
}

TEST(TreePair, ADraftThatHidesTheRightToken) {
  const TreeTotals totals = RunTreeSeeds(Harm::kHides);
  EXPECT_GT(totals.branch_walks, NumTreeSeeds() / 10);
}

TEST(TreePair, ADraftThatPrefersWrongPaths) {
  const TreeTotals totals = RunTreeSeeds(Harm::kReverses);
  EXPECT_GT(totals.branch_walks, NumTreeSeeds() / 10);
}

TEST(TreePair, ADraftThatSaysAnything) {
  EXPECT_GT(RunTreeSeeds(Harm::kRandom).branch_walks, NumTreeSeeds() / 10);
}

TEST(TreePair, ADraftThatIsAlwaysWrong) {
  EXPECT_EQ(RunTreeSeeds(Harm::kNever).accepted, 0);
}

}  // namespace
}  // namespace nacre::speculation
