#include "simulation/world.h"

#include <utility>

namespace nacre::simulation {

World::~World() = default;

void World::End() {
  // Sessions call their clients' sinks; engines free their sequences.
  dispatcher_.reset();
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

void World::NewDispatcher(coordinator::DispatcherOptions options,
                          int64_t clock_ns) {
  dispatcher_clock_ns_ = clock_ns;
  options.now_ns = [this] { return now_ns() + dispatcher_clock_ns_; };
  options.wake_at = [this](int64_t at_ns) { TickAt(at_ns); };
  dispatcher_ = std::make_unique<coordinator::Dispatcher>(std::move(options));
}

void World::TickAt(int64_t at_ns) {
  if (at_ns == coordinator::kNever) return;
  queue_.Post(at_ns - dispatcher_clock_ns_,
              [this] { TickAt(dispatcher_->Tick()); });
}

}  // namespace nacre::simulation
