#include "tools/terminal.h"

#include "absl/strings/str_format.h"
#include "telemetry/build_info.h"

namespace nacre::tools {

namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

// How many bytes at the beginning of the text are a control character: of ASCII
// one, of those from U+0080 to U+009F two. Line ends and tabs do not count.
size_t ControlBytes(absl::string_view text) {
  const auto byte = static_cast<unsigned char>(text[0]);
  if (byte == '\r' && text.size() > 1 && text[1] == '\n') return 0;
  if (byte < 0x20 || byte == 0x7f) return byte != '\n' && byte != '\t' ? 1 : 0;
  if (byte != 0xc2 || text.size() < 2) return 0;
  const auto next = static_cast<unsigned char>(text[1]);
  return next >= 0x80 && next < 0xa0 ? 2 : 0;
}

}  // namespace

void Terminal::Show(absl::string_view text) const {
  if (!out_is_tty) {
    out << text;
    return;
  }
  std::string shown;
  while (!text.empty()) {
    const size_t control = ControlBytes(text);
    if (control > 0) {
      shown += kReplacement;
      text.remove_prefix(control);
    } else {
      shown += text[0];
      text.remove_prefix(1);
    }
  }
  out << shown;
}

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
