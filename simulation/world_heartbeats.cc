#include "simulation/world_heartbeats.h"

#include <algorithm>
#include <utility>

namespace nacre::simulation {

void World::Heartbeats::Begin(Connection& connection) {
  Process& process = ProcessOf(connection);
  if (!process.grants.has_value()) return;
  process.grants->Join(connection.coordinator_number);
  Pulse(connection);
}

void World::Heartbeats::Pulse(Connection& connection) {
  if (!IsBelieved(connection)) return;
  Beat(connection);
  const int64_t period_ns = world_.HeartbeatPeriodNs();
  if (period_ns == 0) return;
  world_.queue_.Post(world_.now_ns() + period_ns,
                     [this, &connection] { Pulse(connection); });
}

void World::Heartbeats::Beat(Connection& connection) {
  Process& process = ProcessOf(connection);
  const int64_t from_ns =
      std::max(process.hung_until_ns, process.quiet_until_ns);
  if (world_.now_ns() < from_ns) {
    if (std::exchange(connection.awaits_heartbeat, true)) return;
    world_.queue_.Post(from_ns, [this, &connection] {
      connection.awaits_heartbeat = false;
      if (IsBelieved(connection)) Beat(connection);
    });
    return;
  }
  const worker::KvGrants::Grant told =
      process.grants->Tell(connection.coordinator_number);
  if (!connection.carries_events) return;
  connection.heartbeats.Send([this, &connection, told] {
    Deliver(connection, {told.serial, told.tokens, told.other_sessions});
  });
}

void World::Heartbeats::Deliver(Connection& connection,
                                const coordinator::KvGrant& grant) {
  if (connection.dispatcher_id == 0 || !connection.carries_events) return;
  world_.OnGranted(connection, grant);
  world_.dispatcher(connection.coordinator)
      ->StateKept(connection.dispatcher_id, grant);
}

void World::Heartbeats::OnReport(Connection& connection,
                                 const absl::optional<wire::KvReport>& report) {
  Process& process = ProcessOf(connection);
  if (!report.has_value() || !process.grants.has_value()) return;
  process.grants->OnReport(connection.coordinator_number, *report);
  BeatUrgent(process);
}

void World::Heartbeats::BeatUrgent(Process& process) {
  for (const uint64_t number : process.grants->Urgent()) {
    for (Connection* const connection : process.connections) {
      if (connection != nullptr && connection->coordinator_number == number) {
        Beat(*connection);
      }
    }
  }
}

void World::Heartbeats::OnLost(Connection& connection) {
  Process& process = ProcessOf(connection);
  if (!process.grants.has_value()) return;
  process.leaving.push_back(
      {connection.coordinator, connection.coordinator_number, process.pushed});
}

void World::Heartbeats::OnRan(Process& process) {
  if (process.leaving.empty() || !process.alive()) return;
  const uint64_t applied = process.engine().stats().messages;
  while (!process.leaving.empty() &&
         process.leaving.front().pushed <= applied) {
    process.grants->Leave(process.leaving.front().coordinator_number);
    process.leaving.pop_front();
  }
  BeatUrgent(process);
}

}  // namespace nacre::simulation
