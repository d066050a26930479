// Plans of a simulated fleet that are not the dispatcher's: one that is fixed,
// and those of ablations. They take the place of its own on their way to the
// workers.

#include <utility>

#include "simulation/ablation.h"
#include "simulation/fleet_world.h"

namespace nacre::simulation {

using speculation::DraftPlan;
using speculation::PipelinePlan;
using speculation::TargetPlan;
using speculation::Verdict;

TargetPlan FleetWorld::Changed(const TargetPlan& plan,
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

DraftPlan FleetWorld::Changed(const DraftPlan& plan,
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

void FleetWorld::OnCommands(Connection&, wire::TargetCommands* commands) {
  const bool ablates = options_.method.ablation != Ablation::kNone;
  if (!ablates && !options_.fixed_plan.has_value()) return;
  const auto last_of = [&](uint64_t session_id,
                           const TargetPlan& plan) -> const Verdict* {
    if (!ablates) return nullptr;
    Ablated& ablated = ablated_[session_id];
    ablated.target = plan;
    return ablated.last.has_value() ? &*ablated.last : nullptr;
  };
  for (wire::OpenTarget& open : commands->open) {
    open.plan = Changed(open.plan, last_of(open.session_id, open.plan));
  }
  for (auto& [session_id, plan] : commands->plans) {
    plan = Changed(plan, last_of(session_id, plan));
  }
  for (const uint64_t session_id : commands->close) ablated_.erase(session_id);
}

void FleetWorld::OnCommands(Connection&, wire::DraftCommands* commands) {
  const bool ablates = options_.method.ablation != Ablation::kNone;
  if (!ablates && !options_.fixed_plan.has_value()) return;
  const auto last_of = [&](uint64_t session_id,
                           const DraftPlan& plan) -> const Verdict* {
    if (!ablates) return nullptr;
    Ablated& ablated = ablated_[session_id];
    ablated.draft = plan;
    return ablated.last.has_value() ? &*ablated.last : nullptr;
  };
  for (wire::OpenDraft& open : commands->open) {
    open.plan = Changed(open.plan, last_of(open.session_id, open.plan));
  }
  for (auto& [session_id, plan] : commands->plans) {
    plan = Changed(plan, last_of(session_id, plan));
  }
  if (!ablates) return;
  // Applied before the commit: the lead depends on which step it was.
  for (const auto& commit : commands->commits) {
    const auto it = ablated_.find(commit.session_id);
    if (it == ablated_.end()) continue;
    commands->plans.push_back(
        {commit.session_id,
         Changed(it->second.draft,
                 it->second.last.has_value() ? &*it->second.last : nullptr)});
  }
}

// The plan of its next step depends on the one that has just ended.
void FleetWorld::OnSaid(Connection& connection, wire::TargetEvents* events) {
  if (options_.method.ablation == Ablation::kNone) return;
  target_worker::TargetCommands commands;
  commands.stream = static_cast<uint64_t>(connection.index) + 1;
  for (const wire::SessionVerdict& said : events->verdicts) {
    const auto it = ablated_.find(said.session_id);
    if (it == ablated_.end()) continue;
    commands.plans.push_back(
        {said.session_id, Changed(it->second.target, &said.verdict)});
  }
  processes_[static_cast<size_t>(connection.worker)].target->Push(
      std::move(commands));
}

void FleetWorld::OnHeard(Connection&, const void*,
                         const wire::TargetEvents& events) {
  if (options_.method.ablation == Ablation::kNone) return;
  for (const wire::SessionVerdict& said : events.verdicts) {
    const auto it = ablated_.find(said.session_id);
    if (it != ablated_.end()) it->second.last = said.verdict;
  }
}

}  // namespace nacre::simulation
