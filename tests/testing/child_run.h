// Runs what a planted bug may end in a process of its own, and tells how that
// ended. A check that fails and a crash are not the same: a test that expects
// the one should not pass by the other.
//
// Thread-compatible: no other thread while the process is started.

#ifndef TESTS_TESTING_CHILD_RUN_H_
#define TESTS_TESTING_CHILD_RUN_H_

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"

namespace nacre::testing {

struct ChildRun {
  std::string output;  // what it wrote, as far as it came
  int status = 0;      // of waitpid

  // It came to its end.
  bool finished() const {
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  // By a signal that no check raises (NACRE_CHECK aborts), and no limit of the
  // processor's time.
  bool crashed() const {
    return WIFSIGNALED(status) && WTERMSIG(status) != SIGABRT &&
           WTERMSIG(status) != SIGXCPU;
  }
  std::string How() const {
    if (WIFSIGNALED(status)) {
      return absl::StrCat("signal ", WTERMSIG(status), " (",
                          strsignal(WTERMSIG(status)), ")");
    }
    return absl::StrCat("exit code ", WEXITSTATUS(status));
  }
};

// `run` writes to the file what it is to say; its process ends with it, by code
// 0 unless it ends by itself.
inline ChildRun RunInChild(absl::FunctionRef<void(std::FILE*)> run) {
  ChildRun result;
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) std::abort();
  if (child == 0) {
    close(ends[0]);
    std::FILE* const file = fdopen(ends[1], "wb");
    run(file);
    std::_Exit(std::fclose(file));
  }
  close(ends[1]);
  char part[4096];
  for (ssize_t count; (count = read(ends[0], part, sizeof(part))) > 0;) {
    result.output.append(part, static_cast<size_t>(count));
  }
  close(ends[0]);
  if (waitpid(child, &result.status, 0) != child) std::abort();
  return result;
}

}  // namespace nacre::testing

#endif  // TESTS_TESTING_CHILD_RUN_H_
