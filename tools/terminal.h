// Where a sub-command writes: results to `out`, progress and errors to `err`.

#ifndef TOOLS_TERMINAL_H_
#define TOOLS_TERMINAL_H_

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/flag_set.h"

namespace nacre::tools {

// Exit codes of every sub-command.
enum ExitCode {
  kExitOk = 0,
  kExitError = 1,
  kExitUsage = 2,
  kExitInterrupted = 130,
};

// Borrows both streams.
struct Terminal {
  std::ostream& out;
  std::ostream& err;
  bool err_is_tty = false;  // progress lines may overwrite each other

  // "error: CODE: message" on err; returns kExitError.
  int Fail(const absl::Status& status) const;
  // "error: message" on err; returns kExitUsage.
  int FailUsage(const absl::Status& status) const;
  // Fills what `flags` borrows. The exit code where nothing is left to do: bad
  // flags, --help, --version.
  std::optional<int> ReadFlags(const std::vector<std::string>& args,
                               FlagSet* flags) const;
  // One line of progress; on a tty it replaces the last one.
  void Progress(absl::string_view line) const;
  // On a tty, clears the line of progress.
  void EndProgress() const;
};

}  // namespace nacre::tools

#endif  // TOOLS_TERMINAL_H_
