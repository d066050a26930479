// The worker processes of a world: their steps under virtual time.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "simulation/world.h"
#include "simulation/world_heartbeats.h"

namespace nacre::simulation {

using coordinator::WorkerRole;

std::string World::AddressOf(int worker) {
  return absl::StrCat("worker", worker);
}

World::Process& World::AddProcess(WorkerRole role) {
  Process& process = processes_.emplace_back();
  process.index = static_cast<int>(processes_.size()) - 1;
  process.role = role;
  process.fiber = std::make_unique<Fiber>();
  return process;
}

template <typename Engine, typename Said>
std::unique_ptr<Engine> World::NewEngine(Process& process) {
  typename Engine::Options options;
  options.now_ns = [this, offset_ns = ClockOffsetOf(process)] {
    return now_ns() + offset_ns;
  };
  options.model = process.model.get();
  options.send = [this, &process](worker::StreamId stream, Said events) {
    Say<Said>(process, stream, std::move(events));
  };
  Equip(process, &options);
  return std::make_unique<Engine>(std::move(options));
}

void World::StartProcess(Process& process) {
  ++process.incarnation;
  process.pushed = 0;
  if (const int64_t shared = SharedKvOf(process); shared > 0) {
    process.grants.emplace(shared);
  }
  process.model = NewModel(process);
  if (process.is_target()) {
    process.target =
        NewEngine<target_worker::TargetEngine, wire::TargetEvents>(process);
  } else {
    process.draft =
        NewEngine<draft_worker::DraftEngine, wire::DraftEvents>(process);
  }
}

void World::StopProcess(Process& process) {
  if (!process.alive()) return;
  process.stopping = true;
  while (process.is_stepping()) process.fiber->Resume();
  process.stopping = false;
  process.target.reset();
  process.draft.reset();
  process.model.reset();
  process.connections.clear();
  process.grants.reset();
  process.leaving.clear();
  process.hung_until_ns = process.quiet_until_ns = 0;
  if (std::find(touched_.begin(), touched_.end(), &process) == touched_.end()) {
    process.is_touched = false;
  }
  process.deadline_ns = process.posted_deadline_ns = -1;
}

void World::Touch(Process& process) {
  if (std::exchange(process.is_touched, true)) return;
  touched_.push_back(&process);
}

void World::TouchAt(int64_t at_ns, Process& process) {
  if (std::exchange(process.is_touched, true)) return;
  queue_.Post(at_ns, [this, &process, incarnation = process.incarnation] {
    if (process.incarnation != incarnation) return;
    process.is_touched = false;
    Touch(process);
  });
}

void World::Stir(Process& process) {
  if (process.is_stepping()) {
    if (process.may_end_early && now_ns() >= process.hung_until_ns) {
      Wake(process);
    }
    return;
  }
  const int64_t delay_ns = DelayToLook(process);
  delay_ns == 0 ? Touch(process) : TouchAt(now_ns() + delay_ns, process);
}

void World::Run(Process& process) {
  if (!process.alive() || process.is_stepping()) return;
  if (now_ns() < process.hung_until_ns && HangsIdle(process)) {
    TouchAt(process.hung_until_ns, process);
    return;
  }
  process.deadline_ns = -1;
  process.fiber->Start(
      [&process] { process.outcome = process.engine().RunOnce(); });
  OnSwitchedBack(process);
}

void World::OnSwitchedBack(Process& process) {
  heartbeats_->OnRan(process);
  if (process.is_stepping()) return;
  if (!process.outcome.ok()) {
    OnDeviceError(process);
    return;
  }
  OnRan(process);
  const worker::StepOutcome& outcome = *process.outcome;
  // One that wants to look again at once waits for no gate.
  const bool at_once =
      outcome.deadline_ns.has_value() &&
      *outcome.deadline_ns - ClockOffsetOf(process) <= now_ns();
  if (outcome.stepped || at_once) {
    Touch(process);
  } else if (outcome.deadline_ns.has_value()) {
    process.deadline_ns = *outcome.deadline_ns - ClockOffsetOf(process);
    if (std::exchange(process.posted_deadline_ns, process.deadline_ns) ==
        process.deadline_ns) {
      return;
    }
    queue_.Post(process.deadline_ns, [this, &process] {
      if (process.posted_deadline_ns == now_ns()) {
        process.posted_deadline_ns = -1;
      }
      if (process.deadline_ns != now_ns()) return;
      if (process.is_target()) OnGateTimeout(process);
      Touch(process);
    });
  }
}

absl::optional<absl::StatusOr<worker::StepOutcome>> World::RunIdle(
    Process& process) {
  process.deadline_ns = -1;
  process.fiber->Start(
      [&process] { process.outcome = process.engine().RunOnce(); });
  const bool began = process.is_stepping();
  OnSwitchedBack(process);
  if (began) return absl::nullopt;
  return process.outcome;
}

absl::Status World::Compute(Process& process, int64_t duration_ns,
                            const std::function<bool()>& interrupt) {
  NACRE_CHECK(process.fiber->is_running(), "a forward runs in an engine's run");
  process.step_ends = false;
  process.may_end_early = interrupt != nullptr;
  queue_.Post(now_ns() + duration_ns, [this, &process, step = ++process.step] {
    if (process.step != step) return;
    process.step_ends = true;
    Wake(process);
  });
  while (true) {
    process.fiber->Wait();
    if (process.stopping) {
      ++process.step;
      return absl::UnavailableError("the process dies");
    }
    if (process.step_ends) return absl::OkStatus();
    if (interrupt && interrupt()) {
      ++process.step;
      return absl::AbortedError("interrupted");
    }
  }
}

void World::Wake(Process& process) {
  if (now_ns() < process.hung_until_ns) {
    queue_.Post(process.hung_until_ns, [this, &process, step = process.step] {
      if (process.step == step) Wake(process);
    });
    return;
  }
  process.fiber->Resume();
  OnSwitchedBack(process);
}

}  // namespace nacre::simulation
