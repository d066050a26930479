// What a simulated worker does for its coordinators beside their sessions: as
// worker/process/coordinators.h, without threads. Shares its KV among those
// that it is attached to and tells each its part, now and then and where a
// request waits for it. Only for the world's own sources.

#ifndef SIMULATION_WORLD_HEARTBEATS_H_
#define SIMULATION_WORLD_HEARTBEATS_H_

#include "absl/types/optional.h"
#include "simulation/world.h"
#include "wire/kv_report.h"

namespace nacre::simulation {

class World::Heartbeats {
 public:
  // The world outlives it.
  explicit Heartbeats(World* world) : world_(*world) {}

  // The coordinator has taken the worker.
  void Begin(Connection& connection);
  // What it says of its share, if it does.
  void OnReport(Connection& connection,
                const absl::optional<wire::KvReport>& report);
  // The worker has lost it: what it had is free once its sessions have ended.
  void OnLost(Connection& connection);
  // The engine has taken what had arrived.
  void OnRan(Process& process);

 private:
  // Beats, now and in every period.
  void Pulse(Connection& connection);
  void Beat(Connection& connection);
  void Deliver(Connection& connection, const coordinator::KvGrant& grant);
  void BeatUrgent(Process& process);
  Process& ProcessOf(const Connection& connection) {
    return world_.processes_[static_cast<size_t>(connection.worker)];
  }
  bool IsBelieved(const Connection& connection) {
    return ProcessOf(connection).connection(connection.coordinator) ==
           &connection;
  }

  World& world_;
};

}  // namespace nacre::simulation

#endif  // SIMULATION_WORLD_HEARTBEATS_H_
