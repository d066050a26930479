#include "tools/terminal.h"

namespace nacre::tools {

int Terminal::Fail(const absl::Status& status) const {
  err << "error: " << absl::StatusCodeToString(status.code()) << ": "
      << status.message() << std::endl;
  return kExitError;
}

int Terminal::FailUsage(const absl::Status& status) const {
  err << "error: " << status.message() << std::endl;
  return kExitUsage;
}

void Terminal::Progress(absl::string_view line) const {
  // "\033[K" clears what a longer line left behind.
  if (err_is_tty) {
    err << '\r' << line << "\033[K" << std::flush;
  } else {
    err << line << std::endl;
  }
}

void Terminal::EndProgress() const {
  if (err_is_tty) err << "\r\033[K" << std::flush;
}

}  // namespace nacre::tools
