// What main() of the programs that serve has in common. It reads the flags,
// says what --help and --version ask for, runs, and ends with one line where
// that fails.

#ifndef TELEMETRY_PROGRAM_H_
#define TELEMETRY_PROGRAM_H_

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "common/flag_set.h"
#include "telemetry/build_info.h"

namespace nacre::telemetry {

// `Flags` registers itself with a FlagSet. The exit code: 0, or 1 after a line
// on stderr that begins with the program's name.
template <class Flags>
int RunProgram(int argc, char** argv, const std::string& name,
               const std::string& summary,
               absl::Status (*run)(const Flags& flags)) {
  Flags flags;
  FlagSet flag_set(name, summary);
  flags.Register(&flag_set);
  absl::Status status = flag_set.Parse({argv + 1, argv + argc});
  if (status.ok() && flag_set.help_requested()) {
    std::fputs(flag_set.Help().c_str(), stdout);
    return 0;
  }
  if (status.ok() && flag_set.version_requested()) {
    std::puts(VersionText(name).c_str());
    return 0;
  }
  if (status.ok()) status = run(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", name.c_str(),
               std::string(status.message()).c_str());
  return 1;
}

}  // namespace nacre::telemetry

#endif  // TELEMETRY_PROGRAM_H_
