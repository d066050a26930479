// What a world (world.h) consists of: coordinators, workers, and the
// connections between them. Values that the world fills and moves on.

#ifndef SIMULATION_WORLD_PARTS_H_
#define SIMULATION_WORLD_PARTS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/dispatcher.h"
#include "coordinator/fleet/worker_info.h"
#include "draft_worker/draft_engine.h"
#include "simulation/event_queue.h"
#include "simulation/fiber.h"
#include "simulation/link.h"
#include "simulation/random.h"
#include "target_worker/target_engine.h"
#include "wire/draft_messages.h"
#include "wire/target_messages.h"
#include "worker/process/kv_grants.h"

namespace nacre::simulation {

// A coordinator, whether it is up or down.
struct Coordinator {
  int index = 0;
  // Null while it is down.
  std::unique_ptr<coordinator::Dispatcher> dispatcher;
  uint64_t number = 0;   // names its process
  int64_t clock_ns = 0;  // its clock minus the virtual time
  // On its clock: when its next Tick is posted.
  int64_t tick_at_ns = coordinator::kNever;
};

// One attachment of a worker to a coordinator: the session stream, of two
// directions, each in order, and beside it the heartbeats.
struct Connection {
  using Events = std::variant<wire::TargetEvents, wire::DraftEvents>;

  Connection(int number, int of_worker, const Coordinator& of,
             EventQueue* queue, Random* random, LinkDelay hop)
      : index(number),
        worker(of_worker),
        coordinator(of.index),
        coordinator_number(of.number),
        to_worker(queue, random, hop),
        to_dispatcher(queue, random, hop),
        heartbeats(queue, random, hop) {}

  const int index;
  const int worker;
  const int coordinator;
  const uint64_t coordinator_number;
  uint64_t dispatcher_id = 0;  // 0 once the dispatcher was told of its loss
  bool carries_commands = true;
  bool carries_events = true;
  bool lost_at_worker = false;
  Link to_worker;
  Link to_dispatcher;
  Link heartbeats;
  bool awaits_heartbeat = false;  // one that is late, as its worker hangs
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
  int64_t deadline_ns = -1;  // of an idle engine; -1: none
  // By coordinator: those that it believes in.
  std::vector<Connection*> connections;
  // Where it shares its KV. Says no heartbeat before quiet_until_ns.
  absl::optional<worker::KvGrants> grants;
  int64_t quiet_until_ns = 0;

  bool alive() const { return model != nullptr; }
  bool is_target() const { return role == coordinator::WorkerRole::kTarget; }
  // In a forward.
  bool is_stepping() const { return !fiber->done(); }
  worker::Engine& engine() const {
    return is_target() ? static_cast<worker::Engine&>(*target) : *draft;
  }
  // Null: none.
  Connection* connection(int coordinator = 0) const {
    const auto at = static_cast<size_t>(coordinator);
    return at < connections.size() ? connections[at] : nullptr;
  }
  void Push(target_worker::TargetCommands commands) {
    ++pushed;
    target->Push(std::move(commands));
  }
  void Push(draft_worker::DraftCommands commands) {
    ++pushed;
    draft->Push(std::move(commands));
  }
  // It takes that coordinator for one that knows nothing of this worker: the
  // sessions that it had here have ended.
  bool HasLeft(int coordinator) const {
    for (const Leaving& each : leaving) {
      if (each.coordinator == coordinator) return false;
    }
    return true;
  }

  // Of the world alone:
  uint64_t pushed = 0;  // to this engine, altogether
  struct Leaving {
    int coordinator = 0;
    uint64_t coordinator_number = 0;
    uint64_t pushed = 0;  // with the end of its stream
  };
  std::deque<Leaving> leaving;
  std::unique_ptr<Fiber> fiber;
  absl::StatusOr<worker::StepOutcome> outcome = worker::StepOutcome();
  uint64_t step = 0;  // counts forwards and what ended one
  bool step_ends = false;
  bool may_end_early = false;  // the step: it looks at what arrives
  bool stopping = false;
  int64_t posted_deadline_ns = -1;
  bool is_touched = false;  // or will be
};

}  // namespace nacre::simulation

#endif  // SIMULATION_WORLD_PARTS_H_
