// How workers of a simulated fleet fail and return, and where their time went.

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/check.h"
#include "simulation/fleet_world.h"

namespace nacre::simulation {

using worker::WorkerState;

namespace {

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

}  // namespace

void FleetWorld::AttachWorker(Process& process, int coordinator) {
  const absl::StatusOr<Connection*> attached = Attach(process, coordinator);
  NACRE_CHECK(attached.ok(), attached.status().ToString().c_str());
}

// A worker grants all of its KV to the first coordinator that it attaches to.
// The others get their parts when that one has answered to a smaller grant, two
// heartbeats later. A request that came before would take the first worker that
// has granted something, and so would all others.
void FleetWorld::AwaitGrants() {
  if (options_.coordinators == 1) return;
  const int64_t round_trip_ns =
      2 * std::max(options_.target_hop.max_ns, options_.draft_hop.max_ns);
  const int64_t until_ns = 3 * (HeartbeatPeriodNs() + round_trip_ns);
  while (queue_.next_time_ns() <= until_ns && RunNext()) {
  }
  begin_ns_ = now_ns();
  // The account begins here: until now there was no work.
  for (Worker& worker : workers_) worker.time.no_work_ns -= begin_ns_;
}

// Nothing will happen any more, or nothing but failures of other workers.
bool FleetWorld::IsStalled() const { return num_targets_ == 0; }

void FleetWorld::Schedule(const Failure& failure, Process* process) {
  double after_ns = static_cast<double>(failure.after_ns);
  if (failure.repeats) after_ns *= -std::log(1.0 - random_.Unit());
  queue_.Post(now_ns() + std::llround(after_ns),
              [this, &failure, process] { Fail(failure, *process); });
}

void FleetWorld::Fail(const Failure& failure, Process& process) {
  Worker& worker = WorkerOf(process);
  if (process.alive()) {
    failure.hangs ? Hang(process) : Die(process);
    worker.returns = failure.back_after_ns.has_value();
    if (process.is_target() && !worker.returns && !process.alive()) {
      worker.is_gone = true;
      --num_targets_;
    }
  }
  if (!failure.back_after_ns.has_value()) return;
  queue_.Post(now_ns() + *failure.back_after_ns, [this, &failure, &process] {
    if (process.alive()) Die(process);  // one that hung
    Return(process);
    if (failure.repeats) Schedule(failure, &process);
  });
}

// Loses everything; each dispatcher hears of it one hop later.
void FleetWorld::Die(Process& process) {
  StopClock(process);
  WorkerOf(process).down_since_ns = now_ns();
  WorkerOf(process).hangs = false;
  for (Connection* const connection : process.connections) {
    if (connection == nullptr) continue;
    Cut(*connection, /*loses_events=*/true);
    connection->lost_at_worker = true;
    const LinkDelay hop = HopOf(process);
    queue_.Post(now_ns() + random_.Between(hop.min_ns, hop.max_ns),
                [this, connection] { LoseAtDispatcher(*connection); });
  }
  StopProcess(process);
}

// With nothing from before.
void FleetWorld::Return(Process& process) {
  if (process.alive()) return;
  StopClock(process);
  Worker& worker = WorkerOf(process);
  worker.down_since_ns = -1;
  if (std::exchange(worker.is_gone, false)) ++num_targets_;
  StartProcess(process);
  const LinkDelay hop = HopOf(process);
  for (int to = 0; to < options_.coordinators; ++to) {
    queue_.Post(
        now_ns() + random_.Between(hop.min_ns, hop.max_ns),
        [this, to, &process, incarnation = process.incarnation] {
          if (!process.alive() || process.incarnation != incarnation) {
            return;
          }
          // The registry ends an older attachment first.
          for (Connection& each : connections_) {
            if (each.worker == process.index && each.coordinator == to) {
              LoseAtDispatcher(each);
            }
          }
          AttachWorker(process, to);
        });
  }
}

// Stays connected and does nothing until it dies.
void FleetWorld::Hang(Process& process) {
  Worker& worker = WorkerOf(process);
  if (worker.hangs) return;
  StopClock(process);
  worker.hangs = true;
  worker.down_since_ns = now_ns();
  process.hung_until_ns = kForever;
}

void FleetWorld::OnLosing(Connection& connection) {
  int64_t& lost = processes_[static_cast<size_t>(connection.worker)].is_target()
                      ? result_.lost_targets
                      : result_.lost_drafts;
  for (const coordinator::WorkerStatus& worker :
       dispatcher(connection.coordinator)->workers()) {
    if (worker.id == connection.dispatcher_id) lost += worker.sessions;
  }
}

WorkerTime FleetWorld::TimeOf(const Process& process) const {
  const worker::TimePartition::Totals spent = process.engine().stats().time;
  WorkerTime time;
  time.busy_ns = spent[WorkerState::kPrefill] + spent[WorkerState::kDraft] +
                 spent[WorkerState::kVerify];
  time.wait_ns =
      spent[WorkerState::kWaitDraftTokens] + spent[WorkerState::kWaitVerdict];
  time.no_work_ns =
      spent[WorkerState::kNoWork] + spent[WorkerState::kWaitAcknowledge];
  return time;
}

// The time until now is accounted for.
void FleetWorld::StopClock(Process& process) {
  Worker& worker = WorkerOf(process);
  if (worker.down_since_ns >= 0) {
    worker.time.down_ns += now_ns() - worker.down_since_ns;
  } else if (process.alive()) {
    worker.time += TimeOf(process);
  }
}

}  // namespace nacre::simulation
