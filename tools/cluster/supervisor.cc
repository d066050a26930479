#include "tools/cluster/supervisor.h"

#include <signal.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace nacre::tools {
namespace {

constexpr absl::Duration kCheckInterval = absl::Milliseconds(20);

// Workers that fit alone may need more together than the limit. What the kernel
// kills then says nothing of it.
std::string WhyEnded(const std::string& how, const MemoryFiles& memory) {
  if (!absl::StartsWith(how, absl::StrCat("signal ", SIGKILL, " "))) return "";
  const std::vector<MemoryLimit> limits = MemoryLimits(memory);
  const auto least =
      std::min_element(limits.begin(), limits.end(),
                       [](const MemoryLimit& a, const MemoryLimit& b) {
                         return a.limit < b.limit;
                       });
  constexpr char kWhy[] = ", which the kernel does when memory runs out";
  if (least == limits.end()) return kWhy;
  return absl::StrCat(kWhy, ": all processes together have ", least->limit,
                      " bytes (", least->origin, ")");
}

}  // namespace

Supervisor::Supervisor(Options options) : options_(std::move(options)) {
  if (!options_.report) options_.report = [](const std::string&) {};
}

Supervisor::~Supervisor() { Drain(absl::ZeroDuration()); }

absl::Status Supervisor::Start(Program program) {
  Running running{std::move(program), nullptr, absl::Now(), absl::Now(),
                  options_.backoff};
  NACRE_ASSIGN_OR_RETURN(running.process,
                         ChildProcess::Start(running.program.process));
  absl::MutexLock lock(&mu_);
  programs_.push_back(std::move(running));
  return absl::OkStatus();
}

std::optional<Supervisor::Ended> Supervisor::FindEnded() {
  absl::MutexLock lock(&mu_);
  for (Running& running : programs_) {
    const auto end = running.process->Poll();
    if (end.has_value()) {
      return Ended{running.program.name, *end, WhyEnded(*end, options_.memory),
                   running.process->LastLine()};
    }
  }
  return std::nullopt;
}

void Supervisor::SetArgv(const std::string& name,
                         std::vector<std::string> argv) {
  absl::MutexLock lock(&mu_);
  for (Running& running : programs_) {
    if (running.program.name == name) {
      running.program.process.argv = std::move(argv);
      return;
    }
  }
  NACRE_CHECK(false, name.c_str());
}

void Supervisor::Supervise() {
  NACRE_CHECK(!watcher_.joinable(), "Supervise is called once");
  watcher_ = std::thread([this] { Watch(); });
}

void Supervisor::Watch() {
  while (!stopping_.WaitForNotificationWithTimeout(kCheckInterval)) {
    absl::MutexLock lock(&mu_);
    if (stopping_.HasBeenNotified()) break;
    for (Running& running : programs_) Check(running);
  }
  drained_.WaitForNotification();
}

void Supervisor::Check(Running& running) {
  if (running.process == nullptr) {
    if (absl::Now() >= running.restart_at) Restart(running);
    return;
  }
  const auto end = running.process->Poll();
  if (!end.has_value()) return;
  running.process.reset();
  if (absl::Now() - running.started_at >= options_.stable_after) {
    running.backoff = options_.backoff;
  }
  ScheduleRestart(running, absl::StrCat("ended with ", *end,
                                        WhyEnded(*end, options_.memory)));
}

void Supervisor::Restart(Running& running) {
  absl::StatusOr<std::unique_ptr<ChildProcess>> process =
      ChildProcess::Start(running.program.process);
  if (!process.ok()) {
    ScheduleRestart(running, std::string(process.status().message()));
    return;
  }
  running.process = *std::move(process);
  running.started_at = absl::Now();
  options_.report(absl::StrCat(running.program.name, " runs again (pid ",
                               running.process->pid(), ")"));
}

void Supervisor::ScheduleRestart(Running& running, const std::string& why) {
  options_.report(absl::StrCat(running.program.name, " ", why,
                               "; starting it again in ",
                               absl::FormatDuration(running.backoff)));
  running.restart_at = absl::Now() + running.backoff;
  running.backoff = std::min(running.backoff * 2, options_.max_backoff);
}

void Supervisor::Drain(absl::Duration grace) {
  if (stopping_.HasBeenNotified()) return;
  stopping_.Notify();
  {
    absl::MutexLock lock(&mu_);
    std::set<int> stages;
    for (const Running& running : programs_) {
      stages.insert(running.program.drain_stage);
    }
    for (const int stage : stages) {
      std::vector<ChildProcess*> processes;
      for (Running& running : programs_) {
        if (running.program.drain_stage == stage && running.process) {
          processes.push_back(running.process.get());
        }
      }
      for (ChildProcess* process : processes) process->Signal(SIGTERM);
      const absl::Time deadline = absl::Now() + grace;
      for (ChildProcess* process : processes) {
        process->WaitForEnd(deadline - absl::Now());
      }
    }
    programs_.clear();  // kills what is left
  }
  drained_.Notify();
  if (watcher_.joinable()) watcher_.join();
}

pid_t Supervisor::PidOf(const std::string& name) {
  absl::MutexLock lock(&mu_);
  for (const Running& running : programs_) {
    if (running.program.name == name && running.process != nullptr) {
      return running.process->pid();
    }
  }
  return 0;
}

}  // namespace nacre::tools
