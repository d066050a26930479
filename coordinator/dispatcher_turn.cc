#include "coordinator/dispatcher_turn.h"

#include <utility>
#include <vector>

#include "coordinator/clock.h"
#include "coordinator/session.h"

namespace nacre::coordinator {
namespace {

using speculation::SessionSchedule;

// Searches for the plans of the tasks; those that change something are left.
std::vector<PlanTask> MakePlans(std::vector<PlanTask> tasks) {
  speculation::WindowSearches searches;
  std::vector<PlanTask> changed;
  for (PlanTask& task : tasks) {
    const speculation::PipelinePlan plan =
        speculation::MakePlan(task.inputs, &searches);
    if (task.plan.has_value() &&
        !SessionSchedule::NewsOf(*task.plan, plan).has_value()) {
      continue;
    }
    task.plan = plan;
    changed.push_back(std::move(task));
  }
  return changed;
}

}  // namespace

void Dispatcher::BeginTurn() {
  mu_.Lock();
  turn_since_ns_ = MonotonicNs();
}

Leftovers Dispatcher::EndTurn() {
  Leftovers left = outbox_.Take();
  locked_ns_ += MonotonicNs() - turn_since_ns_;
  mu_.Unlock();
  return left;
}

void Dispatcher::Deliver(Leftovers left) {
  while (true) {
    // What workers wait for comes first.
    for (const auto& link : left.links) link->Flush();
    if (left.wake_at_ns != kNever && options_.wake_at) {
      options_.wake_at(left.wake_at_ns);
    }
    std::vector<uint64_t> stopped;
    for (const auto& answer : left.answers) {
      answer->queue().Run();
      if (answer->TakeStopped()) stopped.push_back(answer->session_id());
    }
    const std::vector<PlanTask> plans = MakePlans(std::move(left.plans));
    if (stopped.empty() && plans.empty()) return;
    BeginTurn();
    for (uint64_t session_id : stopped) {
      const auto it = sessions_.find(session_id);
      if (it != sessions_.end()) Complete(*it->second);
    }
    for (const PlanTask& plan : plans) Adopt(plan);
    Settle();
    left = EndTurn();
  }
}

void Dispatcher::PlanLater(const Session& session) {
  const Worker* target = FindWorker(session.target_worker);
  if (target == nullptr || !session.schedule().wants_draft()) return;
  PlanTask task;
  task.session_id = session.id();
  task.target_worker = session.target_worker;
  task.inputs = session.schedule().plan_inputs(Costs(session));
  task.step_times = target->step_times;
  if (session.schedule().has_plan()) task.plan = session.schedule().plan();
  outbox_.Plan(std::move(task));
}

void Dispatcher::Adopt(const PlanTask& task) {
  // Another target has a plan of its own. A search may end after a later one,
  // or its session may have another draft by now: what it found is adopted all
  // the same. Only speed follows a plan, and the next verdict asks for the
  // next.
  Session* session = FindSession(task.session_id, task.target_worker);
  if (session == nullptr) return;
  const auto plan = session->schedule().Adopt(*task.plan);
  if (!plan.has_value()) return;
  FindWorker(task.target_worker)
      ->client.target()
      .UpdateTarget(task.session_id, plan->target);
  if (Worker* draft = FindWorker(session->draft_worker)) {
    draft->client.draft().UpdateDraft(task.session_id, plan->draft);
  }
}

int64_t Dispatcher::locked_ns() const {
  absl::MutexLock lock(&mu_);
  return locked_ns_;
}

}  // namespace nacre::coordinator
