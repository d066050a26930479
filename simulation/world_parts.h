// What a world (world.h) consists of: workers, and their connections to the
// dispatcher. Values that the world fills and moves on.

#ifndef SIMULATION_WORLD_PARTS_H_
#define SIMULATION_WORLD_PARTS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <variant>

#include "absl/status/statusor.h"
#include "coordinator/fleet/worker_info.h"
#include "draft_worker/draft_engine.h"
#include "simulation/event_queue.h"
#include "simulation/fiber.h"
#include "simulation/link.h"
#include "simulation/random.h"
#include "target_worker/target_engine.h"
#include "wire/draft_messages.h"
#include "wire/target_messages.h"

namespace nacre::simulation {

// The session stream of one attachment: two directions, each in order.
struct Connection {
  using Events = std::variant<wire::TargetEvents, wire::DraftEvents>;

  Connection(int number, int of_worker, EventQueue* queue, Random* random,
             LinkDelay hop)
      : index(number),
        worker(of_worker),
        to_worker(queue, random, hop),
        to_dispatcher(queue, random, hop) {}

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

}  // namespace nacre::simulation

#endif  // SIMULATION_WORLD_PARTS_H_
