#include "coordinator/dispatch/dispatcher_turn.h"

#include <utility>
#include <vector>

#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/session.h"

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
      if (Session* session = state_.Find(session_id)) desk_.Complete(*session);
    }
    for (const PlanTask& plan : plans) pairing_.Adopt(plan);
    relocator_.Settle();
    left = EndTurn();
  }
}

int64_t Dispatcher::locked_ns() const {
  absl::MutexLock lock(&mu_);
  return locked_ns_;
}

}  // namespace nacre::coordinator
