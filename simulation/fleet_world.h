// The world (world.h) as a fleet whose workers take given times: streams of
// requests, scripted models, failures, and an account of where time went. Only
// for fleet.cc.

#ifndef SIMULATION_FLEET_WORLD_H_
#define SIMULATION_FLEET_WORLD_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "simulation/fleet.h"
#include "simulation/script.h"
#include "simulation/scripted_model.h"
#include "simulation/world.h"

namespace nacre::simulation {

class FleetWorld final : public World {
 public:
  explicit FleetWorld(const FleetOptions& options);
  ~FleetWorld() override;

  FleetResult Run();

 private:
  class Sink;

  struct Stream {
    std::shared_ptr<MatchSource> matches;
    int requests_left = 0;
    int64_t next_match = 0;
  };
  struct Worker {
    WorkerTime time;             // of what it is no more
    int64_t down_since_ns = -1;  // or hung; -1: it works
    bool hangs = false;
    bool returns = false;  // whether it will be started again
    bool is_gone = false;  // a target, for good
  };

  // fleet_world.cc
  void Begin();
  void StartRequest(int stream);
  absl::optional<Script::Request> NextRequest(Stream& stream);
  void OnComplete(int stream, const coordinator::Completion& completion);
  void OnError(int stream, const absl::Status& status);
  std::unique_ptr<model::LanguageModel> NewModel(Process& process) override;
  coordinator::WorkerInfo InfoOf(const Process& process) override;
  LinkDelay HopOf(const Process& process) const override;
  int64_t SharedKvOf(const Process& process) const override;
  int64_t HeartbeatPeriodNs() const override;
  void Equip(const Process& process,
             target_worker::TargetEngine::Options* options) override;
  void Equip(const Process& process,
             draft_worker::DraftEngine::Options* options) override;
  void OnGateTimeout(Process&) override { ++result_.gate_timeouts; }

  // Puts the fixed plan in the place of the dispatcher's, which never knows it.
  void OnCommands(Connection&, wire::TargetCommands* commands) override;
  void OnCommands(Connection&, wire::DraftCommands* commands) override;

  // fleet_failures.cc
  void AwaitGrants();
  bool IsStalled() const;
  void Schedule(const Failure& failure, Process* process);
  void Fail(const Failure& failure, Process& process);
  void Die(Process& process);
  void Return(Process& process);
  void Hang(Process& process);
  void OnLosing(Connection& connection) override;
  void AttachWorker(Process& process, int coordinator);
  Worker& WorkerOf(const Process& process) {
    return workers_[static_cast<size_t>(process.index)];
  }
  // What the process has done since it started.
  WorkerTime TimeOf(const Process& process) const;
  void StopClock(Process& process);

  const FleetOptions& options_;
  const ScriptTokenizer tokenizer_;
  Script script_;
  std::vector<std::pair<int, int64_t>> target_times_;
  std::vector<std::pair<int, int64_t>> draft_times_;
  std::vector<Stream> streams_;
  std::vector<Worker> workers_;
  size_t next_replayed_ = 0;
  int next_coordinator_ = 0;  // that a request goes to
  int64_t begin_ns_ = 0;      // when the streams begin
  int num_targets_;           // that work or will again
  bool is_ending_ = false;
  int running_streams_ = 0;
  FleetResult result_;
};

}  // namespace nacre::simulation

#endif  // SIMULATION_FLEET_WORLD_H_
