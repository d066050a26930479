// Keeps a set of programs running: restarts those that die and stops all of
// them in order. Knows nothing of what they are.

#ifndef TOOLS_CLUSTER_SUPERVISOR_H_
#define TOOLS_CLUSTER_SUPERVISOR_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/memory_limit.h"
#include "tools/cluster/child_process.h"

namespace nacre::tools {

// Thread-safe, except that the thread that calls Start must outlive the
// programs (see ChildProcess).
class Supervisor {
 public:
  struct Options {
    // Before a restart; doubled each time the program dies within
    // `stable_after` of its start, up to `max_backoff`.
    absl::Duration backoff = absl::Milliseconds(500);
    absl::Duration max_backoff = absl::Seconds(30);
    absl::Duration stable_after = absl::Seconds(30);
    // Told of each death and restart, a line each; on the supervisor's thread.
    // May be left out.
    std::function<void(const std::string& line)> report;
    MemoryFiles memory;
  };

  // A program to run.
  struct Program {
    std::string name;  // in reports
    ChildProcess::Options process;
    // Drain stops stage 0 first, then 1, and so on.
    int drain_stage = 0;
  };

  explicit Supervisor(Options options);
  // Kills what still runs.
  ~Supervisor();

  // Errors: those of ChildProcess::Start.
  absl::Status Start(Program program) ABSL_LOCKS_EXCLUDED(mu_);

  struct Ended {
    std::string name;
    std::string how;        // ChildProcess::Poll
    std::string why;        // what may have been the cause; "": not known
    std::string last_line;  // ChildProcess::LastLine
  };
  // Before Supervise: a program that has ended, if any has.
  std::optional<Ended> FindEnded() ABSL_LOCKS_EXCLUDED(mu_);

  // What to run when `name` is next restarted.
  void SetArgv(const std::string& name, std::vector<std::string> argv)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Begins to restart programs that end. Once.
  void Supervise();

  // Ends the supervision, then stage by stage: SIGTERM to all, and SIGKILL to
  // those that are not gone within `grace`. Idempotent.
  void Drain(absl::Duration grace) ABSL_LOCKS_EXCLUDED(mu_);

  // Process id of a program, 0 if it does not run. For tests and reports.
  pid_t PidOf(const std::string& name) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Running {
    Program program;
    std::unique_ptr<ChildProcess> process;  // null between death and restart
    absl::Time started_at;
    absl::Time restart_at;  // where process is null
    absl::Duration backoff;
  };

  void Watch() ABSL_LOCKS_EXCLUDED(mu_);
  void Check(Running& running) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Restart(Running& running) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ScheduleRestart(Running& running, const std::string& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Options options_;  // constant after construction
  absl::Notification stopping_;
  absl::Mutex mu_;
  std::vector<Running> programs_ ABSL_GUARDED_BY(mu_);
  // The watcher started some of the programs, so it must outlive them.
  absl::Notification drained_;
  std::thread watcher_;
};

}  // namespace nacre::tools

#endif  // TOOLS_CLUSTER_SUPERVISOR_H_
