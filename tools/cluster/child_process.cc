#include "tools/cluster/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace nacre::tools {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(5);

std::string DescribeEnd(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    return absl::StrCat("signal ", number, " (", strsignal(number), ")");
  }
  return absl::StrCat("exit code ", WEXITSTATUS(wait_status));
}

struct Streams {
  int in = -1;
  int out = -1;  // -1: that of this process
  int err = -1;
};

// Between fork and exec: async-signal-safe calls only, since other threads of
// the parent may have held locks. On failure writes errno to `error_fd`.
[[noreturn]] void Exec(char* const* argv, char* const* variables,
                       const Streams& streams, int error_fd, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before prctl
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  dup2(streams.in, STDIN_FILENO);
  if (streams.out >= 0) dup2(streams.out, STDOUT_FILENO);
  dup2(streams.err, STDERR_FILENO);
  // gRPC's sockets are not the child's.
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  execve(argv[0], argv, variables);
  const int error = errno;
  // If even this fails, exit code 127 tells.
  if (write(error_fd, &error, sizeof(error)) < 0) _exit(127);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const Options& options) {
  std::vector<char*> argv;
  argv.reserve(options.argv.size() + 1);
  for (const std::string& arg : options.argv) {
    argv.push_back(const_cast<char*>(arg.c_str()));
  }
  argv.push_back(nullptr);
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (options.sees_flags || !absl::StartsWith(*variable, "NACRE_")) {
      variables.push_back(*variable);
    }
  }
  variables.push_back(nullptr);

  const int stdin_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  auto close_stdin = absl::MakeCleanup([&] { close(stdin_fd); });
  int log_fd = -1;
  std::unique_ptr<ErrorRelay> errors;
  if (options.log_file.empty()) {
    NACRE_ASSIGN_OR_RETURN(errors, ErrorRelay::Create());
  } else {
    log_fd = open(options.log_file.c_str(),
                  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_fd < 0) {
      return absl::PermissionDeniedError(absl::StrCat(
          "cannot write ", options.log_file, ": ", std::strerror(errno)));
    }
  }
  auto close_log = absl::MakeCleanup([&] {
    if (log_fd >= 0) close(log_fd);
  });
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("pipe: ", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    Exec(argv.data(), variables.data(),
         {stdin_fd, log_fd, errors != nullptr ? errors->input() : log_fd},
         error_pipe[1], parent);
  }
  const int fork_error = errno;
  if (errors != nullptr) errors->CloseInput();
  close(error_pipe[1]);
  auto close_pipe = absl::MakeCleanup([&] { close(error_pipe[0]); });
  if (pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("fork: ", std::strerror(fork_error)));
  }
  auto child = absl::WrapUnique(
      new ChildProcess(pid, options.log_file, std::move(errors)));
  int exec_error = 0;
  ssize_t count;
  do {
    count = read(error_pipe[0], &exec_error, sizeof(exec_error));
  } while (count < 0 && errno == EINTR);
  if (count > 0) {
    return absl::NotFoundError(absl::StrCat("cannot run ", options.argv[0],
                                            ": ", std::strerror(exec_error)));
  }
  return child;
}

ChildProcess::~ChildProcess() {
  if (Poll().has_value()) return;
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::optional<std::string> ChildProcess::Poll() {
  if (end_.has_value()) return end_;
  int wait_status = 0;
  if (waitpid(pid_, &wait_status, WNOHANG) == pid_) {
    end_ = DescribeEnd(wait_status);
  }
  return end_;
}

bool ChildProcess::WaitForEnd(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!Poll().has_value()) {
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(kPollInterval);
  }
  return true;
}

std::string ChildProcess::LastLine() {
  if (errors_ != nullptr) return errors_->LastLine();
  const absl::StatusOr<std::string> log = ReadFile(log_file_);
  return log.ok() ? tools::LastLine(*log) : "";
}

void ChildProcess::Signal(int signal_number) {
  // Until it is reaped its id belongs to no one else.
  if (!Poll().has_value()) kill(pid_, signal_number);
}

}  // namespace nacre::tools
