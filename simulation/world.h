// The whole service in one thread under virtual time. It has the real
// dispatchers of one or several coordinators, the real engines of any number of
// targets and drafts, and connections between them. Every message passes the
// codec. START HERE, then fleet.h (how fast would it be?) and
// tests/simulation/protocol/world.h (does it stay right whatever fails?). Both
// are this world, one with step times, one with faults.
//
// An engine runs on a fiber. Its forward takes virtual time, during which
// others run and what arrives goes to the engine's inbox. An engine that may
// have something to do looks after all that arrives at one moment has arrived.
//
// A world decides nothing by itself but the order of equal times. A derived
// class says what models compute and for how long, and hears of what happens
// at every joint (world_hooks.h). One thread; a world runs once.

#ifndef SIMULATION_WORLD_H_
#define SIMULATION_WORLD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/dispatch/dispatcher.h"
#include "simulation/event_queue.h"
#include "simulation/random.h"
#include "simulation/world_hooks.h"
#include "simulation/world_parts.h"

namespace nacre::simulation {

class World : public WorldHooks {
 public:
  ~World() override;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

 protected:
  // For those that derive from it, wherever they are.
  using Connection = simulation::Connection;
  using Process = simulation::Process;
  using Events = Connection::Events;

  // Times begin at `start_ns`.
  World(uint64_t seed, int64_t start_ns);
  // Every process is down and each dispatcher gone: before the hooks are.
  void End();

  int64_t now_ns() const { return queue_.now_ns(); }
  // Runs what comes next; false when nothing is left to happen.
  bool RunNext();

  // Coordinators: one that knows nothing takes the place of this one, if it was
  // there. `options` lack the clock and the call for a Tick. The dispatcher's
  // clock is `clock_ns` ahead of the virtual time.
  void StartCoordinator(int index, coordinator::DispatcherOptions options,
                        int64_t clock_ns = 0);
  // Null while it is down.
  coordinator::Dispatcher* dispatcher(int index = 0) const {
    return coordinators_[static_cast<size_t>(index)].dispatcher.get();
  }

  // Processes (world_processes.cc):
  Process& AddProcess(coordinator::WorkerRole role);
  static std::string AddressOf(int worker);
  void StartProcess(Process& process);
  // It dies, in the middle of its step if it has one.
  void StopProcess(Process& process);
  // Its engine looks for work as soon as all that arrives now has arrived.
  void Touch(Process& process);
  // Something has got to its engine's inbox.
  void Stir(Process& process);
  // On the process's fiber, from its model's Forward: until `duration_ns` have
  // passed. Not OK: ABORTED if `interrupt`, which is asked at every arrival,
  // says so; UNAVAILABLE if the process dies.
  absl::Status Compute(Process& process, int64_t duration_ns,
                       const std::function<bool()>& interrupt = nullptr);
  // One RunOnce of an idle process, here and now. Nullopt: it began a step.
  absl::optional<absl::StatusOr<worker::StepOutcome>> RunIdle(Process& process);

  // Connections (world_links.cc). Not OK: the dispatcher refuses it. Requires:
  // it has left that coordinator, which is up.
  absl::StatusOr<Connection*> Attach(Process& process, int coordinator = 0);
  // It carries nothing more. What is on its way to the worker is lost; to the
  // dispatcher, if `loses_events`. Neither side has been told.
  static void Cut(Connection& connection, bool loses_events);
  // The dispatcher hears of its loss.
  void LoseAtDispatcher(Connection& connection);
  // The worker's engine does: it closes the sessions.
  void LoseAtWorker(Connection& connection);

  // It dies.
  void OnDeviceError(Process& process) override { StopProcess(process); }

  EventQueue queue_;
  Random random_;
  std::deque<Process> processes_;
  std::deque<Connection> connections_;
  std::deque<Coordinator> coordinators_;

 private:
  class Heartbeats;
  template <typename Collecting>
  class Client;
  class TargetClient;
  class DraftClient;

  template <typename Engine, typename Said>
  std::unique_ptr<Engine> NewEngine(Process& process);
  void RunTouched();
  void Run(Process& process);
  void OnSwitchedBack(Process& process);
  void Wake(Process& process);
  void TouchAt(int64_t at_ns, Process& process);
  void DeliverCommand(Connection* connection);
  template <typename Message>
  void Say(Process& process, worker::StreamId stream, Message said);
  void DeliverEvents(Connection* connection);
  void TickAt(int64_t at_ns, Coordinator& coordinator);  // on its clock

  uint64_t last_coordinator_number_ = 0;
  const std::unique_ptr<Heartbeats> heartbeats_;
  std::vector<Process*> touched_;
};

}  // namespace nacre::simulation

#endif  // SIMULATION_WORLD_H_
