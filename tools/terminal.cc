#include "tools/terminal.h"

#include "absl/strings/str_format.h"
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
  // "\033[K" clears what a longer line left there.
  if (err_is_tty) {
    err << '\r' << line << "\033[K" << std::flush;
  } else {
    err << line << std::endl;
  }
}

std::function<void(absl::string_view, double)> Terminal::PercentProgress()
    const {
  return [this, shown = -1](absl::string_view stage, double fraction) mutable {
    const int step = err_is_tty ? 1 : 25;
    const int percent = static_cast<int>(fraction * 100.0) / step * step;
    if (percent == shown) return;
    shown = percent;
    Progress(absl::StrFormat("%s: %d %%", stage, percent));
  };
}

void Terminal::EndProgress() const {
  if (err_is_tty) err << "\r\033[K" << std::flush;
}

}  // namespace nacre::tools
