#include "simulation/world.h"

#include <utility>

#include "simulation/world_heartbeats.h"

namespace nacre::simulation {

World::World(uint64_t seed, int64_t start_ns)
    : queue_(start_ns),
      random_(seed),
      heartbeats_(std::make_unique<Heartbeats>(this)) {}

World::~World() = default;

void World::End() {
  // Sessions call their clients' sinks; engines free their sequences.
  for (Coordinator& coordinator : coordinators_) coordinator.dispatcher.reset();
  for (Process& process : processes_) StopProcess(process);
}

bool World::RunNext() {
  if (!queue_.empty() &&
      (touched_.empty() || queue_.next_time_ns() <= now_ns())) {
    queue_.RunNext();
    return true;
  }
  if (touched_.empty()) return false;
  RunTouched();
  return true;
}

void World::RunTouched() {
  for (Process* process : std::exchange(touched_, {})) {
    process->is_touched = false;
    Run(*process);
  }
}

void World::StartCoordinator(int index, coordinator::DispatcherOptions options,
                             int64_t clock_ns) {
  while (coordinators_.size() <= static_cast<size_t>(index)) {
    Coordinator& added = coordinators_.emplace_back();
    added.index = static_cast<int>(coordinators_.size()) - 1;
  }
  Coordinator& coordinator = coordinators_[static_cast<size_t>(index)];
  coordinator.number = ++last_coordinator_number_;
  coordinator.clock_ns = clock_ns;
  coordinator.tick_at_ns = coordinator::kNever;
  options.now_ns = [this, clock_ns] { return now_ns() + clock_ns; };
  options.wake_at = [this, &coordinator](int64_t at_ns) {
    TickAt(at_ns, coordinator);
  };
  coordinator.dispatcher =
      std::make_unique<coordinator::Dispatcher>(std::move(options));
}

void World::TickAt(int64_t at_ns, Coordinator& coordinator) {
  if (at_ns >= coordinator.tick_at_ns) return;
  coordinator.tick_at_ns = at_ns;
  queue_.Post(at_ns - coordinator.clock_ns, [this, at_ns, &coordinator] {
    // Another one has come before, or it is down.
    if (coordinator.tick_at_ns != at_ns || coordinator.dispatcher == nullptr) {
      return;
    }
    coordinator.tick_at_ns = coordinator::kNever;
    TickAt(coordinator.dispatcher->Tick(), coordinator);
  });
}

}  // namespace nacre::simulation
