#include "speculation/session_schedule.h"

#include <utility>

namespace nacre::speculation {

SessionSchedule::SessionSchedule(Options options, std::vector<int32_t> prompt)
    : options_(options),
      committed_(std::move(prompt)),
      prompt_length_(static_cast<int>(committed_.size())),
      acceptance_(options.prior_alpha) {}

absl::optional<PipelinePlan> SessionSchedule::Replan(const StepCosts& costs) {
  PlanInputs inputs;
  inputs.method = options_.method;
  inputs.window = options_.window;
  inputs.alpha = acceptance_.alpha();
  if (!options_.always_drafts) inputs.pair_alpha = options_.prior_alpha;
  inputs.policy_length = options_.policy_length;
  inputs.follows_load = options_.follows_load;
  inputs.verification = options_.verification;
  inputs.costs = costs;
  PipelinePlan plan = MakePlan(inputs);
  // The timeout follows every measurement; only a real change is worth a
  // message.
  const int64_t old_timeout = plan_.target.gate_timeout_ns;
  const int64_t timeout = plan.target.gate_timeout_ns;
  if (planned_ && timeout < 2 * old_timeout && old_timeout < 2 * timeout) {
    plan.target.gate_timeout_ns = old_timeout;
  }
  if (planned_ && plan == plan_) return absl::nullopt;
  planned_ = true;
  plan_ = plan;
  return plan;
}

uint32_t SessionSchedule::AttachDraft() {
  draft_attached_ = true;
  return ++epoch_;
}

bool SessionSchedule::OnTail(const Tail& tail) {
  if (!draft_attached_ || tail.epoch != epoch_) {
    ++stats_.stale_messages;
    return false;
  }
  stats_.drafted += static_cast<int64_t>(tail.token_ids.size());
  return true;
}

SessionSchedule::VerdictOutcome SessionSchedule::OnVerdict(
    const Verdict& verdict, Commit* commit) {
  const int committed_length = static_cast<int>(committed_.size());
  if (verdict.base_length != committed_length || verdict.token_ids.empty() ||
      verdict.accepted < 0 || verdict.accepted > verdict.verified) {
    ++stats_.stale_messages;
    return verdict.base_length < committed_length ? VerdictOutcome::kRepeated
                                                  : VerdictOutcome::kMalformed;
  }
  committed_.insert(committed_.end(), verdict.token_ids.begin(),
                    verdict.token_ids.end());
  commit->first_position = verdict.base_length;
  commit->token_ids = verdict.token_ids;
  acceptance_.Add(verdict.verified, verdict.accepted);
  stats_.verified += verdict.verified;
  stats_.accepted += verdict.accepted;
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
  ++stats_.rounds;
  if (step_.degraded && wants_draft()) ++stats_.degraded_rounds;
}

}  // namespace nacre::speculation
