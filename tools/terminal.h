// Where a sub-command writes, results to `out`, progress and errors to `err`,
// and where the one that talks with a user reads.

#ifndef TOOLS_TERMINAL_H_
#define TOOLS_TERMINAL_H_

#include <functional>
#include <istream>
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

// Borrows the streams.
struct Terminal {
  std::ostream& out;
  std::ostream& err;
  bool err_is_tty = false;     // progress lines may overwrite each other
  std::istream* in = nullptr;  // null: a command that reads finds the end
  bool in_is_tty = false;      // a user types, and is told when
  bool out_is_tty = false;     // what a model writes is no command to it

  // A text of others on `out`, not flushed. On a tty control characters but
  // line ends and tabs are shown as U+FFFD. They could clear the screen, change
  // its title or put bytes into the user's input. `text` is UTF-8.
  void Show(absl::string_view text) const;
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
  // Reports a stage of work and how much of it is done, 0 to 1. A line of
  // progress comes for each percent, or for each 25 where lines stay. Borrows
  // this.
  std::function<void(absl::string_view stage, double fraction)>
  PercentProgress() const;
  // On a tty, clears the line of progress.
  void EndProgress() const;
};

}  // namespace nacre::tools

#endif  // TOOLS_TERMINAL_H_
