// A draft session and a target session in random orders: each drafts, steps and
// hears of the other at moments that a seed decides, while plans change, drafts
// are exchanged, and messages come twice, late or malformed. What the service
// around them does is another test's (tests/simulation/protocol/).

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "simulation/random.h"
#include "speculation/draft_session.h"
#include "speculation/policies/make_policy.h"
#include "speculation/target_session.h"
#include "tests/speculation/ratio_models.h"
#include "tests/testing/fake_models.h"
#include "tests/testing/sanitizers.h"

namespace nacre::speculation {
namespace {

using Ids = std::vector<int32_t>;
using simulation::Random;

// So many, or NACRE_PAIR_SEEDS.
int64_t NumSeeds() {
  const char* given = std::getenv("NACRE_PAIR_SEEDS");
  if (given != nullptr) return std::strtoll(given, nullptr, 10);
  return testing::kIsSanitized ? 1000 : 10'000;
}

// What is known of a drafted token.
enum class Kind { kNone, kWrongPrefix, kRight, kWrong };

struct Totals {
  int64_t accepted = 0;
  int64_t holds = 0;
  int64_t stale = 0;
  int64_t malformed = 0;
  int64_t policy_stops = 0;
};

class Pair {
 public:
  Pair(uint64_t seed, Verification verification)
      : random_(seed),
        seed_(seed),
        verification_(verification),
        has_faults_(random_.Percent(70)),
        max_tokens_(static_cast<int>(random_.Between(1, 40))),
        models_(seed, static_cast<int>(random_.Between(3, 60))),
        ratio_models_(static_cast<int>(3 + seed % 40),
                      static_cast<DraftKind>(seed % 5)),
        alpha_(random_.Unit()),
        policy_(RandomPolicy()),
        expected_(kPromptLength, 2) {
    NewPlan();
    if (!is_ratio()) {
      do {
        expected_.push_back(models_.TargetToken(expected_));
      } while (expected_.back() != kEnd && generated(expected_) < max_tokens_);
    }
    TargetSession::Options options;
    options.text.prompt_length = kPromptLength;
    options.text.max_tokens = max_tokens_;
    options.text.eos_ids = {kEnd};
    options.max_unacknowledged = static_cast<int>(random_.Between(1, 64));
    options.plan = target_plan_;
    options.epoch = 1;
    options.has_draft = true;
    options.verification = verification;
    target_.emplace(options, Ids(kPromptLength, 2));
    OpenDraft();
  }

  // Until the target has finished, or a check has failed.
  void Run(Totals* totals) {
    totals_ = totals;
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
          if (has_faults_ && random_.Percent(30)) MakeTrouble();
      }
    }
    CheckEnd();
  }

 private:
  static constexpr int kPromptLength = 3;
  static constexpr int32_t kEnd = 0;

  bool is_ratio() const { return verification_ == Verification::kRatio; }
  static int generated(const Ids& ids) {
    return static_cast<int>(ids.size()) - kPromptLength;
  }

  std::string RandomPolicy() {
    const std::vector<std::string> policies = {
        "",           "",       "constant:n=1", "constant:n=3",
        "heuristic",  "svip",   "beta-ts",      "cali-ts",
        "confidence", "oracle", "oracle:max=2", "beta-ts:max=5"};
    // By the ratio test none that looks at the token.
    return policies[static_cast<size_t>(
        random_.Between(0, is_ratio() ? 7 : 11))];
  }

  void NewPlan() {
    const int window = static_cast<int>(random_.Between(0, 16));
    const auto up_to = [this](int64_t most) {
      return static_cast<int>(random_.Between(0, most));
    };
    draft_plan_ = {up_to(2 * window + 1), up_to(2 * window + 1)};
    draft_plan_.waits_at_stop = random_.Percent(50);
    // No timer: every wait must end by what the draft says.
    target_plan_ = {up_to(window + 2), up_to(window + 2),
                    draft_plan_.rests() ? 0 : window, int64_t{1} << 50};
    target_plan_.holds_last_row =
        is_ratio() && !draft_plan_.rests() && random_.Percent(50);
    target_plan_.ends_chunks = random_.Percent(20);
  }

  void OpenDraft() {
    DraftSession::Options options;
    options.epoch = ++epoch_;
    options.max_length = kPromptLength + max_tokens_ - 1;
    options.end_ids = {kEnd};
    options.plan = draft_plan_;
    options.verification = verification_;
    draft_.emplace(options, target_->committed());
    commits_.clear();
    PolicyInputs inputs;
    inputs.seed = seed_;
    inputs.oracle_ids.assign(expected_.begin() + kPromptLength,
                             expected_.end());
    length_ = *MakePolicy(*ParsePolicySpec(policy_), std::move(inputs));
    SendStopNotice();
  }

  // ---- The draft ----

  void SendStopNotice() {
    if (auto notice = draft_->TakeStopNotice()) {
      tails_.push_back({*std::move(notice), Kind::kNone});
    }
    EXPECT_FALSE(draft_->TakeStopNotice().has_value()) << "it repeats it";
  }

  LengthDecision Decide(int32_t token_id) {
    if (length_ == nullptr) return LengthDecision::kContinue;
    DraftRow row;
    row.generated = draft_->length() - kPromptLength;
    row.entropy = static_cast<float>(4.0 * random_.Unit());
    row.token = DrawnToken{token_id, static_cast<float>(random_.Unit())};
    return length_->Decide(row);
  }

  Kind KindOf(const Ids& prefix, int32_t token_id) const {
    if (is_ratio()) return Kind::kNone;
    if (prefix.size() >= expected_.size() ||
        !std::equal(prefix.begin(), prefix.end(), expected_.begin())) {
      return Kind::kWrongPrefix;
    }
    return expected_[prefix.size()] == token_id ? Kind::kRight : Kind::kWrong;
  }

  void DraftStep() {
    if (!draft_.has_value() || !draft_->WantsStep()) return;
    const Ids tokens = draft_->tokens();
    ASSERT_LT(generated(tokens), max_tokens_ - 1)
        << "it drafts the target's own last token";
    DraftDistribution distribution;
    int32_t token_id;
    if (is_ratio()) {
      distribution = ratio_models_.Draft(tokens);
      token_id =
          DrawToken(Weighted(distribution), seed_,
                    static_cast<int>(tokens.size()), NoisePurpose::kDraft);
    } else {
      token_id =
          models_.DraftToken(tokens, models_.Matches(tokens.size(), alpha_));
    }
    const Kind kind = KindOf(tokens, token_id);
    const LengthDecision decision = Decide(token_id);
    if (decision == LengthDecision::kDiscard) {
      EXPECT_NE(kind, Kind::kRight) << "the oracle discards a match";
      draft_->OnDiscarded();
      EXPECT_FALSE(draft_->WantsStep()) << "it draws what it discarded";
      SendStopNotice();
      return;
    }
    Tail tail = draft_->OnDrafted(token_id, decision == LengthDecision::kStop);
    if (is_ratio()) tail.distributions.push_back(std::move(distribution));
    if (tail.stop == StopMark::kChunk || tail.stop == StopMark::kPolicy) {
      ++totals_->policy_stops;
      EXPECT_EQ(draft_->WantsStep(), tail.stop == StopMark::kChunk);
    }
    tails_.push_back({std::move(tail), kind});
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
    EXPECT_EQ(outcome == DraftSession::CommitOutcome::kRepeated, is_known);
    if (length_ != nullptr && !is_known) {
      length_->OnCommit(draft_->last_commit());
    }
    const int known = draft_->committed_length();
    ASSERT_GE(draft_->length(), known);
    EXPECT_TRUE(std::equal(draft_->tokens().begin(),
                           draft_->tokens().begin() + known,
                           target_->committed().begin()))
        << "what the draft knows as committed is not";
    SendStopNotice();
  }

  // ---- The target ----

  struct Said {
    Tail tail;
    Kind kind;
  };

  // Its tokens for a step over `rows`, up to the first that differs. By the
  // ratio test none for the row after an accepted tail, unless `last_row`.
  Ids Draw(const TargetSession& session, const Ids& rows, bool last_row) const {
    if (!is_ratio()) return models_.TargetTokens(session.committed(), rows);
    Ids prefix = session.committed();
    Ids drawn;
    for (size_t row = 0; row < rows.size() + (last_row ? 1 : 0); ++row) {
      const DraftDistribution law = ratio_models_.Target(prefix);
      const int position = static_cast<int>(prefix.size());
      const auto drafted = session.DraftedAt(static_cast<int>(row));
      drawn.push_back(drafted.has_value()
                          ? JudgeByRatio(Weighted(law), drafted->token_id,
                                         *drafted->distribution, seed_,
                                         position)
                          : DrawToken(Weighted(law), seed_, position,
                                      NoisePurpose::kSample));
      if (row == rows.size() || drawn.back() != rows[row] ||
          session.text().IsEnd(drawn.back())) {
        break;
      }
      prefix.push_back(drawn.back());
    }
    return drawn;
  }

  // All that it would do in this step and the two after it: equal texts mean
  // that a message changed nothing.
  std::string Future() const {
    TargetSession copy = *target_;
    Ids rows = rows_;
    std::string text = absl::StrCat(copy.committed_length(), "/");
    for (int step = 0; step < 3 && !copy.finished(); ++step) {
      if (!copy.step().running()) {
        absl::StrAppend(&text, copy.CheckReady(now_ns_), "/");
        const absl::Span<const int32_t> begun = copy.BeginStep();
        rows.assign(begun.begin(), begun.end());
      }
      const Verdict verdict = copy.FinishStep(Draw(copy, rows, true));
      absl::StrAppend(&text, absl::StrJoin(rows, ","), ":", verdict.matched,
                      "/", verdict.verified, "/", verdict.accepted, "/",
                      verdict.degraded, ";");
    }
    return text;
  }

  void DeliverTail() {
    if (tails_.empty()) return;
    const Said said = std::move(tails_.front());
    tails_.pop_front();
    const std::string before = has_faults_ ? Future() : "";
    const TargetSession::TailOutcome outcome = target_->OnTail(said.tail);
    ASSERT_NE(outcome, TargetSession::TailOutcome::kMalformed);
    if (outcome == TargetSession::TailOutcome::kStale) {
      ++totals_->stale;
      if (has_faults_) {
        EXPECT_EQ(Future(), before) << "a stale tail";
      }
    } else {
      right_ += said.kind == Kind::kRight ? 1 : 0;
      wrong_ += said.kind == Kind::kWrong ? 1 : 0;
      // The session compares no token at the last position.
      if ((said.kind == Kind::kRight || said.kind == Kind::kWrong) &&
          said.tail.first_position + 1 < static_cast<int>(expected_.size())) {
        ++comparable_;
      }
    }
    if (has_faults_) delivered_.push_back(said.tail);
  }

  void Commits(const Verdict& verdict, bool ends) {
    const int committed = static_cast<int>(verdict.token_ids.size());
    EXPECT_EQ(verdict.base_length + committed, target_->committed_length());
    EXPECT_EQ(verdict.window, static_cast<int>(rows_.size()));
    EXPECT_TRUE(committed == verdict.matched + (ends ? 1 : 0) ||
                (committed == verdict.matched &&
                 verdict.finish != FinishReason::kNone));
    if (!is_ratio() && target_->finished()) {
      EXPECT_EQ(verdict.finish, expected_.back() == kEnd
                                    ? FinishReason::kEos
                                    : FinishReason::kLength);
    }
    EXPECT_LE(0, verdict.accepted);
    EXPECT_LE(verdict.accepted, verdict.verified);
    verified_ += verdict.verified;
    accepted_ += verdict.accepted;
    totals_->accepted += verdict.accepted;
    if (!is_ratio()) {
      EXPECT_LE(accepted_, right_) << "more than the draft had right";
      EXPECT_LE(verified_ - accepted_, wrong_)
          << "a token after a wrong prefix was compared";
    }
    if (draft_.has_value()) {
      commits_.push_back({verdict.base_length, verdict.token_ids});
    }
    target_->OnAcknowledged(target_->committed_length());
  }

  void TargetStep() {
    if (!target_->step().running()) {
      if (target_->CheckReady(now_ns_) != TargetSession::Readiness::kReady) {
        return;
      }
      const absl::Span<const int32_t> begun = target_->BeginStep();
      rows_.assign(begun.begin(), begun.end());
      ASSERT_LE(
          target_->text().generated() + static_cast<int>(rows_.size()) + 1,
          max_tokens_)
          << "a step beyond max_tokens";
      return;
    }
    const Ids drawn = Draw(*target_, rows_, /*last_row=*/false);
    if (is_ratio() && drawn == rows_ &&
        (drawn.empty() || !target_->text().IsEnd(drawn.back())) &&
        target_->HoldsLastRow(now_ns_)) {
      ++totals_->holds;
      const absl::optional<Verdict> accepted = target_->CommitAccepted();
      ASSERT_EQ(accepted.has_value(), !rows_.empty());
      if (!accepted.has_value()) return;
      EXPECT_TRUE(accepted->holds_last_row());
      EXPECT_EQ(accepted->token_ids, rows_);
      Commits(*accepted, /*ends=*/false);
      rows_.clear();
      return;
    }
    Commits(target_->FinishStep(Draw(*target_, rows_, /*last_row=*/true)),
            /*ends=*/true);
    EXPECT_EQ(target_->kv_length(), target_->committed_length() - 1);
  }

  void MakeTrouble() {
    switch (random_.Between(0, 3)) {
      case 0:
        if (!draft_.has_value()) {
          OpenDraft();
          target_->OnDraftAttached(epoch_, target_->committed_length());
        } else if (random_.Percent(50)) {
          draft_.reset();
          target_->OnDraftLost();
        } else {  // another one, in the middle of whatever runs
          OpenDraft();
          target_->OnDraftAttached(epoch_, target_->committed_length());
        }
        break;
      case 1: {
        if (delivered_.empty()) break;
        const std::string before = Future();
        EXPECT_NE(
            target_->OnTail(delivered_[static_cast<size_t>(random_.Between(
                0, static_cast<int64_t>(delivered_.size()) - 1))]),
            TargetSession::TailOutcome::kMalformed);
        EXPECT_EQ(Future(), before) << "a repeated tail";
        break;
      }
      case 2:
        NewPlan();
        target_->OnPlan(target_plan_);
        if (draft_.has_value()) {
          draft_->OnPlan(draft_plan_);
          SendStopNotice();
        }
        break;
      default:
        DeliverMalformedTail();
    }
  }

  void DeliverMalformedTail() {
    Tail tail;
    tail.epoch = epoch_;
    tail.base_length = tail.first_position = target_->committed_length();
    tail.token_ids = {1, 2};
    tail.stop = StopMark::kLead;
    if (is_ratio()) tail.distributions = {{{1}, {1.0f}}, {{2}, {1.0f}}};
    switch (random_.Between(0, is_ratio() ? 8 : 4)) {
      case 0:
        ++tail.epoch;
        break;
      case 1:
        tail.base_length += 1 + static_cast<int>(random_.Between(0, 9));
        break;
      case 2:
        tail.first_position += kMaxLead + 2;
        break;
      case 3:
        tail.token_ids.assign(kMaxLead + 2, 1);
        break;
      case 5:
        tail.distributions.pop_back();
        break;
      case 6:
        tail.distributions[1].token_ids[0] = 1;
        break;
      case 7:
        tail.distributions[1].weights[0] = 0.0f;
        break;
      case 8:
        tail.distributions[1] = {{2, 2}, {1.0f, 1.0f}};
        break;
      default:
        tail.first_position = -1;
    }
    const std::string before = Future();
    const TargetSession::TailOutcome outcome = target_->OnTail(tail);
    EXPECT_TRUE(outcome == TargetSession::TailOutcome::kMalformed ||
                outcome == TargetSession::TailOutcome::kStale)
        << static_cast<int>(outcome);
    EXPECT_EQ(Future(), before) << "a malformed tail";
    ++totals_->malformed;
  }

  void CheckEnd() {
    if (::testing::Test::HasFailure() || is_ratio()) return;
    EXPECT_EQ(target_->committed(), expected_);
    // Each that was drafted after the right prefix and had come is compared,
    // once.
    if (!has_faults_) {
      EXPECT_GE(verified_, comparable_);
      EXPECT_LE(verified_, right_ + wrong_);
    }
  }

  Random random_;
  const uint64_t seed_;
  const Verification verification_;
  const bool has_faults_;
  const int max_tokens_;
  const simulation::FakeModels models_;
  const RatioModels ratio_models_;
  const double alpha_;
  const std::string policy_;
  Ids expected_;  // by exact match
  TargetPlan target_plan_;
  DraftPlan draft_plan_;
  absl::optional<TargetSession> target_;
  Ids rows_;
  uint32_t epoch_ = 0;
  absl::optional<DraftSession> draft_;
  std::unique_ptr<DraftLength> length_;
  std::deque<Said> tails_;  // on their way
  std::deque<Commit> commits_;
  std::vector<Tail> delivered_;
  int64_t now_ns_ = 0;
  int64_t right_ = 0;  // of the tails that the target took
  int64_t wrong_ = 0;
  int64_t comparable_ = 0;
  int64_t verified_ = 0;
  int64_t accepted_ = 0;
  Totals* totals_ = nullptr;
};

Totals RunSeeds(Verification verification) {
  Totals totals;
  const int64_t num_seeds = NumSeeds();
  for (int64_t seed = 1; seed <= num_seeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Pair(static_cast<uint64_t>(seed), verification).Run(&totals);
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(totals.accepted, num_seeds);
  EXPECT_GT(totals.stale, num_seeds);
  EXPECT_GT(totals.malformed, num_seeds);
  EXPECT_GT(totals.policy_stops, num_seeds);
  return totals;
}

TEST(SessionPair, KeepsTheInvariantsInRandomOrders) {
  RunSeeds(Verification::kExact);
}

TEST(SessionPair, KeepsThemByTheRatioTest) {
  EXPECT_GT(RunSeeds(Verification::kRatio).holds, NumSeeds() / 6);
}

}  // namespace
}  // namespace nacre::speculation
