#include "tools/terminal.h"

#include "telemetry/build_info.h"

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

std::optional<int> Terminal::ReadFlags(const std::vector<std::string>& args,
                                       FlagSet* flags) const {
  if (absl::Status status = flags->Parse(args); !status.ok()) {
    return FailUsage(status);
  }
  if (flags->help_requested()) {
    out << flags->Help();
    return kExitOk;
  }
  if (flags->version_requested()) {
    out << telemetry::VersionText("nacre") << "\n";
    return kExitOk;
  }
  return std::nullopt;
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
