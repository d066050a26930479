// The whole service in one thread under virtual time: the real dispatcher, the
// real engines of any number of targets and drafts, and connections between
// them. Every message passes the codec. START HERE, then fleet.h (how fast
// would it be?) and tests/simulation/protocol/world.h (does it stay right
// whatever fails?): both are this world, one with step times, one with faults.
//
// An engine runs on a fiber. Its forward takes virtual time, during which
// others run and what arrives goes to the engine's inbox. An engine that may
// have something to do looks after all that arrives at one moment has arrived.
//
// A world decides nothing by itself but the order of equal times. Who derives
// from it says what models compute and for how long, and hears of what happens
// at every joint (the hooks). One thread; a world runs once.

#ifndef SIMULATION_WORLD_H_
#define SIMULATION_WORLD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/dispatch/dispatcher.h"
#include "draft_worker/draft_engine.h"
#include "simulation/event_queue.h"
#include "simulation/fiber.h"
#include "simulation/link.h"
#include "simulation/random.h"
#include "target_worker/target_engine.h"
#include "wire/draft_messages.h"
#include "wire/target_messages.h"

namespace nacre::simulation {

class World {
 public:
  virtual ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

 protected:
  using Events = std::variant<wire::TargetEvents, wire::DraftEvents>;

  // The session stream of one attachment: two directions, each in order.
  struct Connection {
    Connection(World* world, int number, int of_worker, LinkDelay hop)
        : index(number),
          worker(of_worker),
          to_worker(&world->queue_, &world->random_, hop),
          to_dispatcher(&world->queue_, &world->random_, hop) {}

    const int index;
    const int worker;
    uint64_t dispatcher_id = 0;  // 0 once the dispatcher was told of its loss
    bool carries_commands = true;
    bool carries_events = true;
    bool lost_at_worker = false;
    Link to_worker;
    Link to_dispatcher;
    // On their way.
    std::deque<target_worker::TargetCommands> target_commands;
    std::deque<draft_worker::DraftCommands> draft_commands;
    struct Message {
      Events events;
      std::shared_ptr<const void> note;  // of NoteOf
    };
    std::deque<Message> events;
  };

  // A worker, whether it is up or down.
  struct Process {
    int index = 0;
    coordinator::WorkerRole role = coordinator::WorkerRole::kTarget;
    // Null while it is down. The model outlives the engine.
    std::unique_ptr<model::LanguageModel> model;
    std::unique_ptr<target_worker::TargetEngine> target;
    std::unique_ptr<draft_worker::DraftEngine> draft;
    uint64_t incarnation = 0;
    int64_t hung_until_ns = 0;
    int64_t deadline_ns = -1;          // of an idle engine; -1: none
    Connection* connection = nullptr;  // the one it believes in

    bool alive() const { return model != nullptr; }
    bool is_target() const { return role == coordinator::WorkerRole::kTarget; }
    // In a forward.
    bool is_stepping() const { return !fiber->done(); }
    worker::Engine& engine() const {
      return is_target() ? static_cast<worker::Engine&>(*target) : *draft;
    }

    // Of the world alone:
    std::unique_ptr<Fiber> fiber;
    absl::StatusOr<worker::StepOutcome> outcome = worker::StepOutcome();
    uint64_t step = 0;  // counts forwards and what ended one
    bool step_ends = false;
    bool may_end_early = false;  // the step: it looks at what arrives
    bool stopping = false;
    int64_t posted_deadline_ns = -1;
    bool is_touched = false;  // or will be
  };

  // Times begin at `start_ns`.
  World(uint64_t seed, int64_t start_ns) : queue_(start_ns), random_(seed) {}
  // Every process is down and the dispatcher gone: before the hooks are.
  void End();

  int64_t now_ns() const { return queue_.now_ns(); }
  // Runs what comes next; false when nothing is left to happen.
  bool RunNext();
  // `options` lack the clock and the call for a Tick. The dispatcher's clock is
  // `clock_ns` ahead of the virtual time.
  void NewDispatcher(coordinator::DispatcherOptions options,
                     int64_t clock_ns = 0);

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

  // Connections (world_links.cc). Not OK: the dispatcher refuses it.
  absl::StatusOr<Connection*> Attach(Process& process);
  // It carries nothing more. What is on its way to the worker is lost; to the
  // dispatcher, if `loses_events`. Neither side has been told.
  static void Cut(Connection& connection, bool loses_events);
  // The dispatcher hears of its loss.
  void LoseAtDispatcher(Connection& connection);
  // The worker's engine does: it closes the sessions.
  void LoseAtWorker(Connection& connection);

  // What a world says of its workers:
  virtual std::unique_ptr<model::LanguageModel> NewModel(Process& process) = 0;
  virtual coordinator::WorkerInfo InfoOf(const Process& process) = 0;
  virtual LinkDelay HopOf(const Process& process) const = 0;
  // From an arrival until the engine looks, if it is idle: what arrives
  // meanwhile, it takes together.
  virtual int64_t DelayToLook(const Process&) { return 0; }
  // Whether one that hangs does so before it looks; else in the step that it
  // then begins, or when it looks again.
  virtual bool HangsIdle(const Process&) { return true; }
  // The worker's clock minus the virtual time.
  virtual int64_t ClockOffsetOf(const Process&) const { return 0; }
  // Options that are not the world's own.
  virtual void Equip(const Process&, target_worker::TargetEngine::Options*) {}
  virtual void Equip(const Process&, draft_worker::DraftEngine::Options*) {}

  // Hooks. What the dispatcher says, when it says it:
  virtual void OnOpening(Connection&, const coordinator::TargetOpening&) {}
  virtual void OnOpening(Connection&, const coordinator::DraftOpening&) {}
  virtual void OnClosing(Connection&, uint64_t /*session_id*/) {}
  virtual void OnCommands(Connection&, wire::TargetCommands*) {}
  virtual void OnCommands(Connection&, wire::DraftCommands*) {}
  // When it gets to the worker's engine:
  virtual void OnArrived(Connection&, const wire::TargetCommands&) {}
  virtual void OnArrived(Connection&, const wire::DraftCommands&) {}
  // What a worker says, when it says it (and may be changed), and as the codec
  // gives it back, which may get a note for its arrival:
  virtual void OnSaid(Connection&, wire::TargetEvents*) {}
  virtual void OnSaid(Connection&, wire::DraftEvents*) {}
  virtual std::shared_ptr<const void> NoteOf(Connection&,
                                             const wire::TargetEvents&) {
    return nullptr;
  }
  virtual std::shared_ptr<const void> NoteOf(Connection&,
                                             const wire::DraftEvents&) {
    return nullptr;
  }
  // Just before the dispatcher gets it:
  virtual void OnHeard(Connection&, const void* /*note*/,
                       const wire::TargetEvents&) {}
  virtual void OnHeard(Connection&, const void* /*note*/,
                       const wire::DraftEvents&) {}
  // The codec has changed a message, which holds nothing that is not equal to
  // itself: only asked where ChecksCodec().
  virtual bool ChecksCodec() const { return false; }
  virtual void OnCodecError(Connection&) {}
  // Just before the dispatcher is told of its loss:
  virtual void OnLosing(Connection&) {}
  // The engine has run once and is not in a step; its device has failed.
  virtual void OnRan(Process&) {}
  virtual void OnDeviceError(Process& process) { StopProcess(process); }
  // An idle target's gate opens by time.
  virtual void OnGateTimeout(Process&) {}

  EventQueue queue_;
  Random random_;
  std::deque<Process> processes_;
  std::deque<Connection> connections_;
  std::unique_ptr<coordinator::Dispatcher> dispatcher_;

 private:
  template <typename Collecting>
  class Client;
  class TargetClient;
  class DraftClient;

  void RunTouched();
  void Run(Process& process);
  void OnSwitchedBack(Process& process);
  void Wake(Process& process);
  void TouchAt(int64_t at_ns, Process& process);
  void DeliverCommand(Connection* connection);
  template <typename Message>
  void Say(Process& process, worker::StreamId stream, Message said);
  void DeliverEvents(Connection* connection);
  void TickAt(int64_t at_ns);  // on the dispatcher's clock

  int64_t dispatcher_clock_ns_ = 0;
  std::vector<Process*> touched_;
};

}  // namespace nacre::simulation

#endif  // SIMULATION_WORLD_H_
