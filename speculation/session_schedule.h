// One session as the coordinator sees it: which plan both workers follow, which
// draft may speak for it. Also what has been committed, and the account of it.
//
// Pure: no I/O, no clock, no threads.

#ifndef SPECULATION_SESSION_SCHEDULE_H_
#define SPECULATION_SESSION_SCHEDULE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "speculation/estimators.h"
#include "speculation/pipeline.h"
#include "speculation/plan.h"
#include "speculation/ranks.h"

namespace nacre::speculation {

// What drives a schedule, the service or the simulator, does alike:
//
// Tells the target so often how far it has got: well below the 64 tokens that
// the target may be ahead.
inline constexpr int kAcknowledgeEvery = 16;
// How much the rows of one step weigh in StepCosts' averages.
inline constexpr double kRowsWeight = 0.2;
// Of so many sessions one has always_drafts.
inline constexpr uint64_t kMeasuredSessions = 16;

// Sums over a session. acceptance rate = accepted / verified; mean accepted
// length = committed / rounds.
struct SpeculationStats {
  int64_t rounds = 0;  // target steps, once they have ended
  int64_t drafted = 0;
  int64_t verified = 0;
  int64_t accepted = 0;
  int64_t committed = 0;  // tokens that the rounds committed
  int64_t degraded_rounds = 0;
  int64_t stale_messages = 0;  // old, repeated or malformed: changed nothing
  // How often the target's token had each rank among the draft's candidates.
  std::array<int64_t, kBeyond> ranks = {};
  int64_t prepared = 0;  // of those above 1: a branch went on after the token
  // Tokens that the target itself proposed from suffixes, and how many of them
  // were right. Of the counts above only `committed` has them.
  int64_t suffix_proposed = 0;
  int64_t suffix_accepted = 0;
};

class SessionSchedule {
 public:
  struct Options {
    Method method = Method::kAsync;
    absl::optional<int> window;
    double prior_alpha = 0.7;  // the pair's acceptance so far
    // Drafts a little at any load, so that this acceptance is still measured.
    // Some sessions must, or all might rest for ever.
    bool always_drafts = true;
    // Whether a step without the draft that the method asks for is degraded.
    bool expects_draft = true;
    // As of PlanInputs.
    absl::optional<int> policy_length;
    bool follows_load = false;
    Verification verification = Verification::kExact;
    Ablation ablation = Ablation::kNone;
    TreeSpec tree;
    int draft_rows = 1;
    int tree_rows = 0;
  };

  SessionSchedule(Options options, std::vector<int32_t> prompt);
  // The caller keeps the prompt: committed() begins after it. With what was
  // generated before, elsewhere, which counts in no sum.
  SessionSchedule(Options options, int prompt_length,
                  absl::Span<const int32_t> generated = {});

  // Whether the method drafts at all.
  bool wants_draft() const { return options_.method != Method::kAr; }

  // The plan for the costs of now; nullopt when both workers already have it.
  absl::optional<PipelinePlan> Replan(const StepCosts& costs) {
    return Adopt(MakePlan(plan_inputs(costs)));
  }
  const PipelinePlan& plan() const { return plan_; }
  // The same in two parts: the search for a plan takes long, and needs nothing
  // but its inputs.
  PlanInputs plan_inputs(const StepCosts& costs) const;
  absl::optional<PipelinePlan> Adopt(const PipelinePlan& plan);
  // Whether plan() was adopted.
  bool has_plan() const { return planned_; }
  // What `plan` is worth telling to workers that follow `now`: nullopt where
  // it is as good as that.
  static absl::optional<PipelinePlan> NewsOf(const PipelinePlan& now,
                                             PipelinePlan plan);

  // The acceptance so far of the pair that it runs on from now, and of its
  // mismatches the shares of ranks. What it has measured itself stands.
  void SetPairAlpha(double alpha,
                    const MismatchShares& shares = kMismatchShares);
  // A draft is about to be opened with committed(): returns its epoch.
  uint32_t AttachDraft();
  void OnDraftLost() { draft_attached_ = false; }
  bool draft_attached() const { return draft_attached_; }
  // The target is gone and its tails with it. The session is to be opened anew
  // on another, with committed(), a higher epoch and, if at all, a draft that
  // is opened anew too.
  void OnTargetLost() {
    EndStep();
    draft_attached_ = false;
    ++epoch_;
  }
  uint32_t epoch() const { return epoch_; }

  // A verdict that is of another opening of the session, or a message that
  // could not be read.
  void CountStale() { ++stats_.stale_messages; }
  // Whether a tail from the draft is to be relayed to the target; counts it.
  // One with a length or a position that no draft reaches is not.
  bool OnTail(const Tail& tail);

  // Ranks from the draft that was opened with `epoch`; `prepared` of those
  // above 1 had a branch drafted after them. Returns whether they count; those
  // of an earlier draft do not.
  bool OnRanks(uint32_t epoch, absl::Span<const int> ranks, int prepared = 0);

  // Places of the text for which the draft had a token, and those of them for
  // which it had the right one.
  struct Comparisons {
    int verified = 0;
    int accepted = 0;
  };
  // What was applied since the last call tells of the pair's acceptance.
  // Verdicts tell it until the draft tells ranks. Its first ranks are of places
  // that verdicts have told, so each place counts once.
  Comparisons TakeNewsOfPair() { return std::exchange(news_, Comparisons()); }

  // A verdict of the target. On kApplied the new tokens have been appended to
  // committed() and `commit` is what the draft must be told. Repeated ones,
  // ones that leave a gap and ones with impossible counts change nothing.
  enum class VerdictOutcome { kApplied, kRepeated, kMalformed };
  VerdictOutcome OnVerdict(const Verdict& verdict, Commit* commit);
  // The whole step that the last applied verdict is of, in one; nullptr while
  // its last row is held. Valid until the next OnVerdict.
  const Verdict* ended_step() const { return step_ended_ ? &step_ : nullptr; }
  // That step as far as it has come, ended or not.
  const Verdict& step() const { return step_; }
  // Nothing more of that step will come, be its last row held.
  void EndStep();
  // Counts a step that has ended. `expects_draft`: one without is degraded.
  static void Count(const Verdict& step, bool expects_draft,
                    SpeculationStats* stats);

  const std::vector<int32_t>& committed() const { return committed_; }
  int committed_length() const {
    return kept_elsewhere_ + static_cast<int>(committed_.size());
  }
  int prompt_length() const { return prompt_length_; }
  int generated() const { return committed_length() - prompt_length_; }
  // Of the draft's first choice. Where it sends branches, verdicts accept
  // those, too, and its ranks tell.
  double alpha() const {
    return counts_ranks_ ? ranks_.alpha() : acceptance_.alpha();
  }
  const SpeculationStats& stats() const { return stats_; }

 private:
  Options options_;
  std::vector<int32_t> committed_;
  int prompt_length_;
  int kept_elsewhere_ = 0;  // committed tokens that are not in committed_
  PipelinePlan plan_;
  bool planned_ = false;
  uint32_t epoch_ = 0;
  bool draft_attached_ = false;
  AcceptanceEstimator acceptance_;
  RankHistogram ranks_;
  bool has_ranks_ = false;
  bool counts_ranks_ = false;  // they and not verdicts tell the acceptance
  // Of this draft by each verdict, not yet by its ranks.
  std::deque<int> told_places_;
  Comparisons news_;
  SpeculationStats stats_;
  Verdict step_;  // the parts of its verdict that have come
  bool step_ended_ = true;
};

}  // namespace nacre::speculation

#endif  // SPECULATION_SESSION_SCHEDULE_H_
