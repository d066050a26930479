#include "simulation/changed_plans.h"

#include "simulation/ablation.h"

namespace nacre::simulation {

using speculation::DraftPlan;
using speculation::PipelinePlan;
using speculation::TargetPlan;
using speculation::Verdict;

bool ChangedPlans::ablates() const {
  return options_.method.ablation != Ablation::kNone;
}

TargetPlan ChangedPlans::Changed(const TargetPlan& plan,
                                 const Verdict* last) const {
  PipelinePlan whole;
  if (options_.fixed_plan.has_value()) {
    whole = *options_.fixed_plan;
  } else {
    whole.window = plan.window + 1;  // of pearl
    whole.target = plan;
  }
  return Ablate(options_.method.ablation, whole, last).target;
}

DraftPlan ChangedPlans::Changed(const DraftPlan& plan,
                                const Verdict* last) const {
  PipelinePlan whole;
  if (options_.fixed_plan.has_value()) {
    whole = *options_.fixed_plan;
  } else {
    whole.window = plan.lead_after_mismatch;  // of pearl
    whole.draft = plan;
  }
  return Ablate(options_.method.ablation, whole, last).draft;
}

ChangedPlans::Ablated* ChangedPlans::Keep(uint64_t session_id,
                                          const TargetPlan& plan) {
  if (!ablates()) return nullptr;
  Ablated& ablated = ablated_[session_id];
  ablated.target = plan;
  return &ablated;
}

ChangedPlans::Ablated* ChangedPlans::Keep(uint64_t session_id,
                                          const DraftPlan& plan) {
  if (!ablates()) return nullptr;
  Ablated& ablated = ablated_[session_id];
  ablated.draft = plan;
  return &ablated;
}

template <typename Plan>
void ChangedPlans::ChangeOne(uint64_t session_id, Plan* plan) {
  const Ablated* const ablated = Keep(session_id, *plan);
  *plan = Changed(*plan, ablated == nullptr ? nullptr : ablated->verdict());
}

template <typename Commands>
void ChangedPlans::ChangeAll(Commands* commands) {
  for (auto& open : commands->open) ChangeOne(open.session_id, &open.plan);
  for (auto& [session_id, plan] : commands->plans) ChangeOne(session_id, &plan);
}

void ChangedPlans::Change(wire::TargetCommands* commands) {
  if (!changes()) return;
  ChangeAll(commands);
  for (const uint64_t session_id : commands->close) ablated_.erase(session_id);
}

void ChangedPlans::Change(wire::DraftCommands* commands) {
  if (!changes()) return;
  ChangeAll(commands);
  if (!ablates()) return;
  // Applied before the commit: the lead depends on which step it was.
  for (const auto& commit : commands->commits) {
    const auto it = ablated_.find(commit.session_id);
    if (it == ablated_.end()) continue;
    commands->plans.push_back(
        {commit.session_id, Changed(it->second.draft, it->second.verdict())});
  }
}

wire::TargetCommands ChangedPlans::After(
    const wire::TargetEvents& events) const {
  wire::TargetCommands commands;
  for (const wire::SessionVerdict& said : events.verdicts) {
    const auto it = ablated_.find(said.session_id);
    if (it == ablated_.end()) continue;
    commands.plans.push_back(
        {said.session_id, Changed(it->second.target, &said.verdict)});
  }
  return commands;
}

void ChangedPlans::OnHeard(const wire::TargetEvents& events) {
  for (const wire::SessionVerdict& said : events.verdicts) {
    const auto it = ablated_.find(said.session_id);
    if (it != ablated_.end()) it->second.last = said.verdict;
  }
}

}  // namespace nacre::simulation
