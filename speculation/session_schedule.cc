#include "speculation/session_schedule.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace nacre::speculation {
namespace {

// The most tokens that a draft holds beyond what it has applied, and the one
// that it is about to draw.
constexpr int kMaxTail = kMaxLead + 1;

bool IsSmall(const DraftDistribution& distribution) {
  return distribution.token_ids.size() <= kMaxDistribution &&
         distribution.weights.size() <= kMaxDistribution;
}

// Of a draft that has applied at most `committed_length` tokens. Whether the
// target can use it is the target's to say.
bool IsPossible(const Tail& tail, int committed_length) {
  const size_t count = tail.token_ids.size();
  if (tail.base_length < 0 || tail.base_length > committed_length) return false;
  if (tail.is_tree()) {
    return count <= kMaxTailNodes && tail.parents.size() == count &&
           tail.scores.size() == count && tail.distributions.empty() &&
           tail.first_position == tail.base_length;
  }
  return count <= kMaxTail && tail.distributions.size() <= kMaxTail &&
         tail.first_position >= 0 &&
         tail.first_position <=
             committed_length + kMaxTail - static_cast<int>(count) &&
         std::all_of(tail.distributions.begin(), tail.distributions.end(),
                     IsSmall);
}

// Of a step of a session that had generated so many tokens before.
bool IsPossible(const Verdict& verdict, int generated) {
  const size_t count = verdict.token_ids.size();
  if (count < 1 || count > kMaxWindow + 1 || verdict.window < 0 ||
      verdict.window > kMaxWindow || verdict.matched < 0 ||
      verdict.matched > kMaxWindow ||
      (!verdict.path.empty() &&
       static_cast<int>(verdict.path.size()) != verdict.matched) ||
      verdict.suffix_accepted < 0 ||
      verdict.suffix_accepted > verdict.suffix_proposed ||
      verdict.branch_accepted < 0 ||
      verdict.branch_accepted > verdict.matched ||
      verdict.suffix_proposed > verdict.window) {
    return false;
  }
  // Mostly the window and one more are compared. Tails that were held up on
  // their way may bring comparisons of all that was generated. A draft that is
  // attached anew may bring those of one tail twice.
  const int most = generated + static_cast<int>(count) + kMaxTail;
  return verdict.accepted >= 0 && verdict.accepted <= verdict.verified &&
         verdict.verified <= most;
}

// How many of these ranks, from the first on, are of places that verdicts have
// told. Forgets those places.
int TakeTold(std::deque<int>* places, absl::Span<const int> ranks) {
  int num_told = 0;
  for (const int rank : ranks) {
    if (places->empty()) break;
    ++num_told;
    // A rank above 1 is the last that the draft tells of a commit. On a branch
    // the verdict went on.
    if (rank > 1 || --places->front() == 0) places->pop_front();
  }
  return num_told;
}

}  // namespace

SessionSchedule::SessionSchedule(Options options, std::vector<int32_t> prompt)
    : options_(std::move(options)),
      committed_(std::move(prompt)),
      prompt_length_(static_cast<int>(committed_.size())),
      acceptance_(options_.prior_alpha),
      ranks_(options_.prior_alpha) {}

SessionSchedule::SessionSchedule(Options options, int prompt_length,
                                 absl::Span<const int32_t> generated)
    : options_(std::move(options)),
      committed_(generated.begin(), generated.end()),
      prompt_length_(prompt_length),
      kept_elsewhere_(prompt_length),
      acceptance_(options_.prior_alpha),
      ranks_(options_.prior_alpha) {}

PlanInputs SessionSchedule::plan_inputs(const StepCosts& costs) const {
  PlanInputs inputs;
  inputs.method = options_.method;
  inputs.window = options_.window;
  inputs.alpha = alpha();
  inputs.tree = options_.tree;
  inputs.draft_rows = options_.draft_rows;
  inputs.tree_rows = options_.tree_rows;
  inputs.next_three = ranks_.CaughtBy(3);
  if (!options_.always_drafts) inputs.pair_alpha = options_.prior_alpha;
  inputs.policy_length = options_.policy_length;
  inputs.follows_load = options_.follows_load;
  inputs.verification = options_.verification;
  inputs.ablation = options_.ablation;
  inputs.costs = costs;
  return inputs;
}

absl::optional<PipelinePlan> SessionSchedule::NewsOf(const PipelinePlan& now,
                                                     PipelinePlan plan) {
  // The timeout follows every measurement; only a real change is worth a
  // message.
  const int64_t old_timeout = now.target.gate_timeout_ns;
  const int64_t timeout = plan.target.gate_timeout_ns;
  if (timeout < 2 * old_timeout && old_timeout < 2 * timeout) {
    plan.target.gate_timeout_ns = old_timeout;
  }
  if (plan == now) return absl::nullopt;
  return plan;
}

absl::optional<PipelinePlan> SessionSchedule::Adopt(const PipelinePlan& plan) {
  if (!planned_) {
    planned_ = true;
    plan_ = plan;
    return plan;
  }
  absl::optional<PipelinePlan> news = NewsOf(plan_, plan);
  if (news.has_value()) plan_ = *news;
  return news;
}

void SessionSchedule::SetPairAlpha(double alpha, const MismatchShares& shares) {
  options_.prior_alpha = alpha;
  if (stats_.verified == 0) acceptance_ = AcceptanceEstimator(alpha);
  if (stats_.verified == 0 && !has_ranks_) {
    ranks_ = RankHistogram(alpha, shares);
  }
}

uint32_t SessionSchedule::AttachDraft() {
  draft_attached_ = true;
  // Verdicts tell of the pair until this draft tells ranks.
  counts_ranks_ = false;
  told_places_.clear();
  return ++epoch_;
}

bool SessionSchedule::OnTail(const Tail& tail) {
  if (!draft_attached_ || tail.epoch != epoch_ ||
      !IsPossible(tail, committed_length())) {
    ++stats_.stale_messages;
    return false;
  }
  stats_.drafted += static_cast<int64_t>(tail.token_ids.size());
  return true;
}

bool SessionSchedule::OnRanks(uint32_t epoch, absl::Span<const int> ranks,
                              int prepared) {
  const auto is_rank = [](int rank) { return rank >= 1 && rank <= kBeyond; };
  // One a committed position, whichever draft drafted it.
  const int64_t told =
      std::accumulate(stats_.ranks.begin(), stats_.ranks.end(), int64_t{0}) +
      static_cast<int64_t>(ranks.size());
  const auto mismatches = std::count_if(ranks.begin(), ranks.end(),
                                        [](int rank) { return rank > 1; });
  if (!draft_attached_ || epoch != epoch_ || told > generated() ||
      prepared < 0 || prepared > mismatches ||
      !std::all_of(ranks.begin(), ranks.end(), is_rank)) {
    ++stats_.stale_messages;
    return false;
  }
  for (const int rank : ranks) {
    ++stats_.ranks[static_cast<size_t>(rank - 1)];
    ranks_.Add(rank);
    has_ranks_ = true;
  }
  stats_.prepared += prepared;
  // A report of none is no sign that this draft tells them.
  counts_ranks_ |= options_.draft_rows > 1 && !ranks.empty();
  if (!counts_ranks_) return true;
  const int num_told = TakeTold(&told_places_, ranks);
  news_.verified += static_cast<int>(ranks.size()) - num_told;
  news_.accepted +=
      static_cast<int>(std::count(ranks.begin() + num_told, ranks.end(), 1));
  return true;
}

SessionSchedule::VerdictOutcome SessionSchedule::OnVerdict(
    const Verdict& verdict, Commit* commit) {
  const int committed_length = this->committed_length();
  if (verdict.base_length != committed_length ||
      !IsPossible(verdict, generated())) {
    ++stats_.stale_messages;
    return verdict.base_length < committed_length ? VerdictOutcome::kRepeated
                                                  : VerdictOutcome::kMalformed;
  }
  // A step tells its accepted tokens once before its last row: else its counts
  // could grow without limit.
  if (!step_ended_ && verdict.holds_last_row()) {
    ++stats_.stale_messages;
    return VerdictOutcome::kMalformed;
  }
  committed_.insert(committed_.end(), verdict.token_ids.begin(),
                    verdict.token_ids.end());
  commit->first_position = verdict.base_length;
  commit->token_ids = verdict.token_ids;
  acceptance_.Add(verdict.verified, verdict.accepted);
  if (!counts_ranks_) {
    if (verdict.verified > 0 && options_.draft_rows > 1) {
      told_places_.push_back(verdict.verified);
    }
    news_.verified += verdict.verified;
    news_.accepted += verdict.accepted;
  }
  stats_.verified += verdict.verified;
  stats_.accepted += verdict.accepted;
  stats_.suffix_proposed += verdict.suffix_proposed;
  stats_.suffix_accepted += verdict.suffix_accepted;
  stats_.committed += static_cast<int64_t>(verdict.token_ids.size());
  if (step_ended_) {
    step_ = verdict;
  } else {
    step_.token_ids.insert(step_.token_ids.end(), verdict.token_ids.begin(),
                           verdict.token_ids.end());
    step_.verified += verdict.verified;
    step_.accepted += verdict.accepted;
    step_.finish = verdict.finish;
  }
  step_ended_ = false;
  if (!verdict.holds_last_row()) EndStep();
  return VerdictOutcome::kApplied;
}

void SessionSchedule::EndStep() {
  if (std::exchange(step_ended_, true)) return;
  Count(step_, wants_draft() && options_.expects_draft, &stats_);
}

void SessionSchedule::Count(const Verdict& step, bool expects_draft,
                            SpeculationStats* stats) {
  ++stats->rounds;
  if (step.degraded && expects_draft) ++stats->degraded_rounds;
}

}  // namespace nacre::speculation
