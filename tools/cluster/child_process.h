// A program started by this one.

#ifndef TOOLS_CLUSTER_CHILD_PROCESS_H_
#define TOOLS_CLUSTER_CHILD_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/cluster/error_relay.h"

namespace nacre::tools {

// Owns the process: killed and reaped by the destructor. Not thread-safe. The
// kernel kills the process too when the THREAD that started it ends
// (PR_SET_PDEATHSIG), so that no worker outlives a killed launcher.
class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> argv;  // argv[0]: path of the program
    // stdout and stderr, appended. Empty: they go where those of this process
    // go.
    std::string log_file;
    // Whether the child sees the variables NACRE_... of this process. The same
    // name may be another flag to it (--listen).
    bool sees_flags = false;
  };

  // Starts the program in a process group of its own, with no signal blocked
  // and stdin from /dev/null. So Ctrl-C reaches only the launcher, which then
  // stops its children in order. Errors: NOT_FOUND (no such program, or it
  // cannot be run), PERMISSION_DENIED (log file), RESOURCE_EXHAUSTED (fork).
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(
      const Options& options);

  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }

  // How it ended, "exit code 3" or "signal 9 (Killed)"; unset while it runs.
  std::optional<std::string> Poll();

  // Waits up to `timeout`; true if it has ended.
  bool WaitForEnd(absl::Duration timeout);

  // Nothing if it has ended.
  void Signal(int signal_number);

  // The last line that it wrote to stderr, or to its log, if there is any; ""
  // if not. When it has ended.
  std::string LastLine();

 private:
  ChildProcess(pid_t pid, std::string log_file,
               std::unique_ptr<ErrorRelay> errors)
      : pid_(pid), log_file_(std::move(log_file)), errors_(std::move(errors)) {}

  const pid_t pid_;
  const std::string log_file_;
  const std::unique_ptr<ErrorRelay> errors_;  // null: there is a log file
  std::optional<std::string> end_;
};

}  // namespace nacre::tools

#endif  // TOOLS_CLUSTER_CHILD_PROCESS_H_
