// What the coordinator does, and what goes wrong around it.

#include <algorithm>
#include <utility>

#include "speculation/policies/make_policy.h"
#include "tests/speculation/simulated_pipeline.h"

namespace nacre::speculation {

StepCosts SimulatedPipeline::Costs() const {
  StepCosts costs;
  costs.target = &target_curve_;
  costs.hop_ns = options_.draft_to_coordinator.mean_ns() +
                 options_.coordinator_to_target.mean_ns();
  if (!draft_curve_.empty()) {
    costs.draft_token_ns = draft_curve_.At(options_.num_sessions);
  }
  return costs;
}

void SimulatedPipeline::Start(Session& s) {
  if (s.schedule.wants_draft()) s.schedule.AttachDraft();
  s.schedule.Replan(Costs());
  s.plan = options_.fixed_plan.value_or(s.schedule.plan());
  if (options_.gate_timeout_ns.has_value()) {
    s.plan.target.gate_timeout_ns = *options_.gate_timeout_ns;
  }
  TargetSession::Options target;
  target.text.prompt_length = options_.prompt_length;
  target.text.max_tokens = options_.max_tokens;
  if (options_.has_eos) target.text.eos_ids = {0};
  if (options_.has_stop_id) target.text.stop_ids = {1};
  target.max_unacknowledged = options_.max_unacknowledged;
  target.plan = s.plan.target;
  target.epoch = s.schedule.epoch();
  target.has_draft = s.schedule.draft_attached();
  target.verification = options_.verification;
  coordinator_to_target_.Send([this, &s, target] {
    s.target.emplace(target, s.schedule.committed());
    s.target_ready_ns = queue_.now_ns() + Draw(options_.target_prefill);
    queue_.Post(s.target_ready_ns, [] {});
  });
  if (s.schedule.draft_attached()) OpenDraft(s);
  if (options_.cancelled_at_ns.has_value()) {
    queue_.Post(*options_.cancelled_at_ns, [this, &s] {
      if (s.ended) return;
      Note(s, "cancelled");
      s.cancelled = true;
      End(s);
    });
  }
}

std::unique_ptr<DraftLength> SimulatedPipeline::MakeLength(const Session& s) {
  PolicyInputs inputs;
  inputs.seed = options_.seed;
  inputs.oracle_ids.assign(s.expected.begin() + s.prompt_length,
                           s.expected.end());
  absl::StatusOr<std::unique_ptr<DraftLength>> length =
      MakePolicy(s.policy, std::move(inputs));
  NACRE_CHECK(length.ok(), "a policy that needs nothing of a draft");
  return *std::move(length);
}

void SimulatedPipeline::OpenDraft(Session& s) {
  DraftSession::Options draft;
  draft.epoch = s.schedule.epoch();
  draft.max_length = options_.prompt_length + options_.max_tokens - 1;
  if (options_.has_eos) draft.end_ids.push_back(0);
  if (options_.has_stop_id) draft.end_ids.push_back(1);
  draft.plan = s.plan.draft;
  draft.verification = options_.verification;
  const int instance = ++s.opened_instances;
  coordinator_to_draft_.Send(
      [this, &s, draft, instance, committed = s.schedule.committed()] {
        Note(s, "draft ", instance, " opens at ", committed.size());
        s.draft.emplace(draft, committed);
        s.length = MakeLength(s);
        s.draft_instance = instance;
        s.draft_kv.clear();
        s.draft_ready_ns = queue_.now_ns() + Draw(options_.draft_prefill);
        queue_.Post(s.draft_ready_ns, [] {});
        SendStopNotice(s);
      });
}

void SimulatedPipeline::AttachDraft(Session& s) {
  if (s.ended) return;
  const uint32_t epoch = s.schedule.AttachDraft();
  const int length = static_cast<int>(s.schedule.committed().size());
  OpenDraft(s);
  coordinator_to_target_.Send([this, &s, epoch, length] {
    Note(s, "target: draft of epoch ", epoch, " from ", length);
    if (s.target.has_value()) s.target->OnDraftAttached(epoch, length);
  });
}

void SimulatedPipeline::ExchangeDraft(Session& s) {
  if (!s.schedule.draft_attached()) return;
  Note(s, "another draft is attached");
  AttachDraft(s);
}

void SimulatedPipeline::KillDraft(Session& s) {
  if (!s.draft.has_value() || !s.schedule.draft_attached()) return;
  Note(s, "draft ", s.draft_instance, " dies");
  s.draft.reset();
  if (Chance(0.5)) s.lost_instances.insert(s.draft_instance);
  const uint32_t epoch = s.schedule.epoch();
  queue_.Post(queue_.now_ns() + Draw(options_.death_notice), [this, &s, epoch] {
    if (s.ended || s.schedule.epoch() != epoch) return;
    Note(s, "coordinator: draft lost");
    s.schedule.OnDraftLost();
    coordinator_to_target_.Send([this, &s] {
      Note(s, "target: draft lost");
      if (s.target.has_value()) s.target->OnDraftLost();
    });
    if (Chance(0.2)) return;
    queue_.Post(queue_.now_ns() + Draw(options_.reattach), [this, &s, epoch] {
      if (s.schedule.epoch() == epoch) AttachDraft(s);
    });
  });
}

void SimulatedPipeline::MakeTrouble(Session& s) {
  if (s.ended) return;
  if (Chance(options_.draft_death)) KillDraft(s);
  if (Chance(options_.draft_exchange)) ExchangeDraft(s);
  if (Chance(options_.malformed_message)) DeliverMalformedTail(s);
  if (Chance(options_.late_message) && !s.delivered.empty()) {
    DeliverTail(s,
                s.delivered[random_.Between(
                    0, static_cast<int64_t>(s.delivered.size()) - 1)],
                /*again=*/true);
  }
  if (Chance(options_.plan_change)) {
    const int window = static_cast<int>(random_.Between(0, 16));
    const auto up_to = [this](int64_t most) {
      return static_cast<int>(random_.Between(0, most));
    };
    s.plan.draft = {up_to(2 * window + 1), up_to(2 * window + 1)};
    s.plan.target = {up_to(window + 2), up_to(window + 2),
                     s.plan.draft.rests() ? 0 : window,
                     random_.Between(0, 20'000'000)};
    s.plan.target.holds_last_row =
        s.is_ratio() && !s.plan.draft.rests() && Chance(0.5);
    SendPlan(s);
  }
}

void SimulatedPipeline::ReceiveTail(Session& s, int instance,
                                    SimulatedTail tail) {
  if (s.lost_instances.count(instance) > 0) return;
  MakeTrouble(s);
  if (s.ended || !s.schedule.OnTail(tail.tail)) return;
  const int copies = Chance(options_.repeated_message) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    coordinator_to_target_.Send(
        [this, &s, tail, i] { DeliverTail(s, tail, /*again=*/i > 0); });
  }
}

void SimulatedPipeline::ReceiveVerdict(Session& s, const Verdict& verdict) {
  if (s.ended) return;
  Commit commit;
  const auto outcome = s.schedule.OnVerdict(verdict, &commit);
  s.Require(outcome == SessionSchedule::VerdictOutcome::kApplied,
            "the coordinator refused a verdict");
  if (Chance(options_.repeated_message)) {
    const auto repeated = s.schedule.OnVerdict(verdict, &commit);
    s.Require(repeated == SessionSchedule::VerdictOutcome::kRepeated,
              "a repeated verdict was applied");
  }
  if (verdict.finish != FinishReason::kNone) {
    s.Require(verdict.finish == s.expected_finish, "another finish reason");
    End(s);
    return;
  }
  if (s.schedule.draft_attached()) {
    const int copies = Chance(options_.repeated_message) ? 2 : 1;
    const int instance = s.opened_instances;
    for (int i = 0; i < copies; ++i) {
      coordinator_to_draft_.Send([this, &s, instance, commit] {
        if (s.draft.has_value() && s.draft_instance == instance) {
          DeliverCommit(s, commit);
        }
      });
    }
  }
  const auto plan = s.schedule.Replan(Costs());
  if (plan.has_value() && !options_.fixed_plan.has_value()) {
    s.plan = *plan;
    SendPlan(s);
  }
  queue_.Post(queue_.now_ns() + Draw(options_.acknowledgement),
              [this, &s] { Acknowledge(s); });
  MakeTrouble(s);
}

void SimulatedPipeline::SendPlan(Session& s) {
  if (options_.gate_timeout_ns.has_value()) {
    s.plan.target.gate_timeout_ns = *options_.gate_timeout_ns;
  }
  coordinator_to_target_.Send([&s, plan = s.plan.target] {
    if (s.target.has_value()) s.target->OnPlan(plan);
  });
  coordinator_to_draft_.Send(
      [this, &s, plan = s.plan.draft, instance = s.opened_instances] {
        if (!s.draft.has_value() || s.draft_instance != instance) return;
        s.draft->OnPlan(plan);
        SendStopNotice(s);
      });
}

void SimulatedPipeline::Acknowledge(Session& s) {
  if (s.ended) return;
  const int length = static_cast<int>(s.schedule.committed().size());
  coordinator_to_target_.Send([&s, length] {
    if (s.target.has_value()) s.target->OnAcknowledged(length);
  });
}

void SimulatedPipeline::End(Session& s) {
  s.ended = true;
  result_.virtual_ns = std::max(result_.virtual_ns, queue_.now_ns());
  coordinator_to_target_.Send([&s] {
    if (s.target.has_value() && s.target->step().running() && !s.held) {
      s.target_closing = true;
    } else {
      s.target.reset();
    }
  });
  coordinator_to_draft_.Send([&s] { s.draft.reset(); });
}

}  // namespace nacre::speculation
